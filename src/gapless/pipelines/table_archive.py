"""Table archive: a topic's log as a Delta or an Iceberg table, each event once.

Theory of operation
    The columns are those of a lake (`lake_schema`). A commit of the table has rows and the position
    behind them, and both become visible together: in Delta as application transactions, one for
    each pubend, whose version is the tick; in Iceberg as properties of the table and of the
    snapshot. The archive begins where the table's position is. So a killed archive goes on, a
    repeated one changes nothing, and a commit by others (compaction, deletion) does not disturb it.
    Of two archives at once one fails: both libraries refuse a commit whose base has changed.
    Rows come in one of two ways. In this process the library writes the files of each commit, on
    whatever storage it knows. With workers of Spark, each worker writes files of its slices of the
    log, as for a lake (`archive.write_slices`), into a folder that all see, and a commit adds them.
    What a killed run has written is in no commit: `VACUUM` and `remove_orphan_files` remove it.
    What the table has is acknowledged to the named subscription, which holds the log until then.

Invariants
    I1  acknowledged <= the table's position
    I2  a commit's position is behind its last event of each pubend, and before the next one

The libraries compact and expire the files. `deltalake` and `pyiceberg` are imported when a table is
opened.
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gapless.client.delivery import Gap
from gapless.core.errors import UsageError
from gapless.core.extras import missing_extra
from gapless.core.token import Token
from gapless.pipelines.archive import hold, plan_round, write_slices
from gapless.pipelines.lake import published
from gapless.pipelines.lake_files import FileTask
from gapless.pipelines.lake_schema import (
    ATTRIBUTE,
    DATE,
    LakeSchema,
    to_lake,
)
from gapless.pipelines.manifest import Coverage, Manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from gapless.pipelines.archive import ArchiveLimits, SliceRunner
    from gapless.pipelines.lake_files import NewFile
    from gapless.pipelines.topic_log import TopicLog

COMMIT_BYTES = 64 << 20
"""Events of one commit, as they come in memory."""

TOKEN, COLUMNS = "gapless-token", "gapless-columns"
NAMESPACE = "gapless"


@dataclass(frozen=True, slots=True)
class TableState:
    """How far the table has the log, and what its columns hold."""

    ticks: dict[str, int] = field(default_factory=dict)
    schema: LakeSchema = field(default_factory=LakeSchema)


@dataclass(frozen=True, slots=True)
class TableProgress:
    """One commit: its events, the ranges that were lost before it, and the position behind it."""

    events: int
    lost: tuple[tuple[int, int], ...]
    token: Token


class EventTable(Protocol):
    """A table of some format."""

    def state(self, pubends: Collection[str]) -> TableState: ...

    def append(self, rows: Any, state: TableState, pubend: str) -> None:
        """Commit the rows with the position of their pubend, or nothing."""

    def data_folder(self) -> Path:
        """Where workers write files that are to be added."""

    def add(self, files: Sequence[NewFile], state: TableState, pubends: Collection[str]) -> None:
        """Commit files of that folder with the positions of these pubends, or nothing."""


class DeltaEvents:
    """A Delta table in a folder."""

    def __init__(self, path: str | Path, topic: str) -> None:
        self._path, self._topic = str(path), topic
        self._table: Any = None  # as `state` or the last commit has seen it
        _need("deltalake")

    def state(self, pubends: Collection[str]) -> TableState:
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(self._path):
            return TableState()
        self._table = table = DeltaTable(self._path)
        versions = {name: table.transaction_version(self._application(name)) for name in pubends}
        columns = {
            each.name: (each.metadata[ATTRIBUTE.decode()], DELTA_KINDS[str(each.type.type)])
            for each in table.schema().fields
            if ATTRIBUTE.decode() in each.metadata
        }
        ticks = {name: version for name, version in versions.items() if version is not None}
        return TableState(ticks, LakeSchema(columns))

    def append(self, rows: Any, state: TableState, pubend: str) -> None:
        dates = pc.cast(rows.column("published").cast(pa.timestamp("us")), pa.date32())
        self._write(rows.append_column(DATE, dates), self._properties(state, [pubend]))

    def _write(self, rows: Any, properties: Any = None) -> None:
        from deltalake import DeltaTable, write_deltalake

        if self._table is None:
            self._table = DeltaTable.create(self._path, rows.schema, partition_by=[DATE])
        write_deltalake(
            self._table,  # this version of it: a commit in between with our position is refused
            rows,
            mode="append",
            schema_mode="merge",
            partition_by=[DATE],
            commit_properties=properties,
        )

    def data_folder(self) -> Path:
        folder = Path(self._path).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def add(self, files: Sequence[NewFile], state: TableState, pubends: Collection[str]) -> None:
        from deltalake.transaction import AddAction

        schema = _schema_of(files, self.data_folder()).append(pa.field(DATE, pa.date32()))
        known = self._table.schema().fields if self._table is not None else ()
        if set(schema.names) - {each.name for each in known}:
            self._write(schema.empty_table())  # new columns, in a commit without rows
        actions = [
            AddAction(
                path=file.name,
                size=file.bytes,
                partition_values={DATE: published(file.start).date().isoformat()},
                modification_time=int(time.time() * 1000),
                data_change=True,
                stats=json.dumps(
                    {
                        "numRecords": file.rows,
                        "minValues": {"tick": file.start},
                        "maxValues": {"tick": file.end - 1},
                        "nullCount": {"tick": 0},
                    }
                ),
            )
            for file in files
        ]
        self._table.create_write_transaction(
            actions,
            "append",
            self._table.schema(),
            [DATE],
            commit_properties=self._properties(state, pubends),
        )
        self._table.update_incremental()

    def _properties(self, state: TableState, pubends: Collection[str]) -> Any:
        from deltalake import CommitProperties, Transaction

        return CommitProperties(
            custom_metadata={TOKEN: json.dumps(state.ticks)},
            app_transactions=[
                Transaction(self._application(each), state.ticks[each]) for each in pubends
            ],
        )

    def _application(self, pubend: str) -> str:
        return f"gapless/{self._topic}/{pubend}"


DELTA_KINDS = {
    "boolean": "bool",
    "long": "int",
    "double": "float",
    "string": "text",
    "timestamp": "timestamp",
    "binary": "bytes",
}


class IcebergEvents:
    """An Iceberg table; without a catalog of yours, in a folder with a catalog in SQLite."""

    def __init__(self, path: str | Path, topic: str, catalog: Any = None) -> None:
        _need("pyiceberg")
        self._folder: Path | None = None
        if catalog is None:
            from pyiceberg.catalog.sql import SqlCatalog

            folder = Path(path).absolute()
            folder.mkdir(parents=True, exist_ok=True)
            self._folder = folder
            uri = f"sqlite:///{folder / 'catalog.db'}"
            catalog = SqlCatalog(NAMESPACE, uri=uri, warehouse=folder.as_uri())
        self._catalog, self._name = catalog, (NAMESPACE, topic)

    def state(self, pubends: Collection[str]) -> TableState:
        del pubends
        if not self._catalog.table_exists(self._name):
            return TableState()
        properties = self._catalog.load_table(self._name).properties
        columns = json.loads(properties.get(COLUMNS, "{}"))
        schema = LakeSchema({name: (pair[0], pair[1]) for name, pair in columns.items()})
        return TableState(json.loads(properties.get(TOKEN, "{}")), schema)

    def append(self, rows: Any, state: TableState, pubend: str) -> None:
        del pubend
        with self._transaction(rows.schema, state) as transaction:
            transaction.append(rows, snapshot_properties={TOKEN: json.dumps(state.ticks)})

    @contextmanager
    def _transaction(self, schema: pa.Schema, state: TableState) -> Iterator[Any]:
        """A commit of a table that has these columns, and the state."""
        from pyiceberg.transforms import HourTransform

        self._catalog.create_namespace_if_not_exists(NAMESPACE)
        if not self._catalog.table_exists(self._name):
            new = self._catalog.create_table(self._name, schema=schema)
            with new.update_spec() as spec:
                spec.add_field("published", HourTransform(), "published_hour")
        properties = {TOKEN: json.dumps(state.ticks), COLUMNS: json.dumps(state.schema.columns)}
        with self._catalog.load_table(self._name).transaction() as transaction:
            with transaction.update_schema() as update:
                update.union_by_name(schema)
            transaction.set_properties(properties)
            yield transaction

    def data_folder(self) -> Path:
        if self._folder is None:
            raise UsageError(
                "workers add files to tables of the local catalog only",
                "Leave Spark out: then the catalog's own storage is written.",
            )
        folder = self._folder.joinpath(*self._name, "data")
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def add(self, files: Sequence[NewFile], state: TableState, pubends: Collection[str]) -> None:
        del pubends
        folder = self.data_folder()
        with self._transaction(_schema_of(files, folder), state) as transaction:
            transaction.add_files(
                [(folder / file.name).as_uri() for file in files],
                snapshot_properties={TOKEN: json.dumps(state.ticks)},
                check_duplicate_files=False,  # each has a name that no other attempt has
            )


def _need(library: str) -> None:
    try:
        __import__(library)
    except ModuleNotFoundError as error:
        raise missing_extra(library, "this table format") or error from None


def archive_table(
    log: TopicLog,
    table: EventTable,
    name: str,
    tell: Callable[[TableProgress], None] = lambda _: None,
) -> int:
    """Move what is settled now into the table; how many events that were.

    `name` is that of the subscription which holds the log.
    """
    total = 0
    with log.connect() as client:
        positions = client.positions(log.topic)
        state = table.state(positions)
        hold(client, log.topic, name, Token(state.ticks))
        for pubend, (low, end) in sorted(positions.items()):
            batches, size, lost = list[Any](), 0, list[tuple[int, int]]()
            for item in log.read(client, pubend, (state.ticks.get(pubend) or low, end)):
                if isinstance(item, Gap):
                    lost.append((item.span.start, item.span.end))
                elif len(item):
                    batches.append(item.to_arrow())
                    size += batches[-1].nbytes
                if size >= COMMIT_BYTES:
                    state = _commit(table, state, pubend, batches)
                    total += _tell(tell, batches, lost, state)
                    batches, size, lost = [], 0, []
            if batches:
                state = _commit(table, state, pubend, batches)
                total += _tell(tell, batches, lost, state)
        hold(client, log.topic, name, Token(state.ticks))
    return total


def archive_table_by(
    run: SliceRunner,
    log: TopicLog,
    table: EventTable,
    name: str,
    limits: ArchiveLimits,
    tell: Callable[[TableProgress], None] = lambda _: None,
) -> int:
    """As `archive_table`, by workers that write files where all of them see the table's folder."""
    total, is_last, folder = 0, False, table.data_folder()
    with log.connect() as client:
        positions = client.positions(log.topic)
        ends = {pubend: end for pubend, (_, end) in positions.items()}
        state = table.state(positions)
        hold(client, log.topic, name, Token(state.ticks))
        while not is_last:
            before = {pubend: Coverage(at, at) for pubend, at in state.ticks.items()}
            manifest = Manifest(log.topic, schema=state.schema, pubends=before)
            plan = plan_round(client, log, manifest, ends, limits)
            task = FileTask(folder, folder, state.schema, limits.file_bytes_max)
            results, schema = write_slices(log, run, task, plan.slices)
            files = [file for result in results for file in result.files]
            if files:
                state = TableState({**state.ticks, **plan.ticks}, schema)
                table.add(files, state, plan.ticks)
                lost = {each for covered in plan.covered.values() for each in covered.lost}
                lost.update(each for result in results for each in result.lost)
                events = sum(result.events for result in results)
                tell(TableProgress(events, tuple(sorted(lost)), Token(state.ticks)))
                hold(client, log.topic, name, Token(state.ticks))
                total += events
            is_last = plan.is_last or not files
    return total


def _schema_of(files: Sequence[NewFile], folder: Path) -> pa.Schema:
    """Of a table that takes all of these files."""
    found = pa.unify_schemas([pq.read_schema(folder / file.name) for file in files])
    return pa.schema([each.with_nullable(True) for each in found])


def _commit(table: EventTable, state: TableState, pubend: str, batches: list[Any]) -> TableState:
    rows, schema = to_lake(batches, state.schema, grow=True)
    ticks: Mapping[str, int] = {**state.ticks, pubend: rows.column("tick")[-1].as_py() + 1}
    after = TableState(dict(ticks), schema)
    plain = pa.schema([each.with_nullable(True) for each in rows.schema])
    table.append(rows.cast(plain), after, pubend)
    return after


def _tell(
    tell: Callable[[TableProgress], None],
    batches: list[Any],
    lost: list[tuple[int, int]],
    state: TableState,
) -> int:
    events: int = sum(batch.num_rows for batch in batches)
    tell(TableProgress(events, tuple(lost), Token(state.ticks)))
    return events
