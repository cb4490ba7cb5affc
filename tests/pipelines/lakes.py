"""What tests of archive queries put into a topic, and find in a lake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.sync import Client


def fill(client: Client, topic: str, first: int, count: int) -> list[tuple[str, int]]:
    events = [({"i": i}, b"x" * 20) for i in range(first, first + count)]
    return [(each.pubend, each.tick) for each in client.publish_many(topic, events)]


def by_glob(root: Path) -> list[tuple[str, int]]:
    """As any reader of Parquet sees the folder, which knows nothing of a manifest."""
    table = ds.dataset(root, format="parquet").to_table()
    assert table.schema.field("i").type == pa.int64()
    return sorted(zip(table["pubend"].to_pylist(), table["tick"].to_pylist(), strict=True))
