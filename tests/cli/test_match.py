"""A table of subscriptions is read as it stands, or refused: nothing in it is guessed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gapless.cli.job import told_by
from gapless.cli.match import read_table
from gapless.core.errors import GaplessError, StorageMissingError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

ROWS = [("a", "x = 'y,\n\"z\"'"), ("7", "")]


def test_tables_of_all_kinds_say_the_same(tmp_path: Path) -> None:
    csv, lines, parquet = (tmp_path / f"t.{kind}" for kind in ("csv", "jsonl", "parquet"))
    csv.write_text('name,condition\na,"x = \'y,\n""z""\'"\n7,\n')
    lines.write_text(
        '{"name": "a", "condition": "x = \'y,\\n\\"z\\"\'"}\n{"name": "7", "condition": null}\n'
    )
    names = pa.array(["a", "7"]).dictionary_encode()
    pq.write_table(
        pa.table({"condition": [ROWS[0][1], None], "name": names, "more": [1, 2]}), parquet
    )
    for path in (csv, lines, parquet):
        assert list(read_table(path)) == ROWS, path


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("t.csv", "name,condition\na\n", "line 2 has fewer fields"),
        ("t.csv", "name,condition\n,x = 1\n", "has no name"),
        ("t.csv", "name,name,condition\n", "has the name 'name' twice"),
        ("t.csv", "name,filter\n", "no column 'condition'"),
        ("t.jsonl", '{"name": "a"}\n', "has the fields name"),
        (
            "t.jsonl",
            '{"name": "a", "condition": 5}\n',
            "line 1 of .*the condition is 5, and no text",
        ),
        ("t.jsonl", '{"name": "a", "condition": ""}\n{"name"\n', "line 2 is not JSON"),
        ("t.parquet", "no such thing", "cannot read"),
    ],
)
def test_a_table_that_is_none_is_refused(
    tmp_path: Path, name: str, text: str, problem: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(GaplessError, match=problem):
        list(read_table(path))


@pytest.mark.parametrize(
    ("name", "kind"),
    [("condition", pa.int64()), ("name", pa.timestamp("us")), ("condition", pa.list_(pa.string()))],
)
def test_a_parquet_column_of_another_type_is_named_with_it(
    tmp_path: Path, name: str, kind: pa.DataType
) -> None:
    columns = {"name": pa.array(["a"]), "condition": pa.array([""])} | {name: pa.nulls(1, kind)}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    with pytest.raises(UsageError, match=f"the column '{name}' is of type "):
        list(read_table(tmp_path / "t.parquet"))


def test_what_a_worker_failed_of_is_told_without_its_traceback() -> None:
    text = (
        "An exception was thrown\n  File …\n"
        "gapless.core.errors.StorageMissingError: there is no x. Restore it.\n"
    )
    told = told_by(RuntimeError(text))
    assert isinstance(told, StorageMissingError)
    assert (told.problem, told.remedy) == ("there is no x", "Restore it.")
    other = RuntimeError("no Java")
    assert told_by(other) is other
