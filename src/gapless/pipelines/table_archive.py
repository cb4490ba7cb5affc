"""Table archive: a topic's log as a Delta or an Iceberg table, each event once.

Theory of operation
    The columns are those of a lake (`lake_schema`). A commit of the table has rows and the position
    behind them, and both become visible together: in Delta as application transactions, one for
    each pubend, whose version is the tick; in Iceberg as properties of the table and of the
    snapshot. The archive begins where the table's position is. So a killed archive goes on, a
    repeated one changes nothing, and a commit by others (compaction, deletion) does not disturb it.
    Of two archives at once one fails: both libraries refuse a commit whose base has changed.
    What the table has is acknowledged to the named subscription, which holds the log until then.

Invariants
    I1  acknowledged <= the table's position
    I2  a commit's position is that behind its last event, of one pubend

The libraries write the files, and compact and expire them. The local engine is this process;
`deltalake` and `pyiceberg` are imported when a table is opened.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from gapless.client.delivery import Gap
from gapless.core.extras import missing_extra
from gapless.core.token import Token
from gapless.pipelines.archive import hold
from gapless.pipelines.lake_schema import (
    ATTRIBUTE,
    DATE,
    LakeSchema,
    to_lake,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

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
        from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

        dates = pc.cast(rows.column("published").cast(pa.timestamp("us")), pa.date32())
        application = Transaction(self._application(pubend), state.ticks[pubend])
        properties = CommitProperties(
            custom_metadata={TOKEN: json.dumps(state.ticks)}, app_transactions=[application]
        )
        dated = rows.append_column(DATE, dates)
        if self._table is None:
            self._table = DeltaTable.create(self._path, dated.schema, partition_by=[DATE])
        write_deltalake(
            self._table,  # this version of it: a commit in between with our position is refused
            dated,
            mode="append",
            schema_mode="merge",
            partition_by=[DATE],
            commit_properties=properties,
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
        if catalog is None:
            from pyiceberg.catalog.sql import SqlCatalog

            folder = Path(path).absolute()
            folder.mkdir(parents=True, exist_ok=True)
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
        from pyiceberg.transforms import HourTransform

        del pubend
        self._catalog.create_namespace_if_not_exists(NAMESPACE)
        if not self._catalog.table_exists(self._name):
            new = self._catalog.create_table(self._name, schema=rows.schema)
            with new.update_spec() as spec:
                spec.add_field("published", HourTransform(), "published_hour")
        properties = {TOKEN: json.dumps(state.ticks), COLUMNS: json.dumps(state.schema.columns)}
        with self._catalog.load_table(self._name).transaction() as transaction:
            with transaction.update_schema() as update:
                update.union_by_name(rows.schema)
            transaction.set_properties(properties)
            transaction.append(rows, snapshot_properties={TOKEN: properties[TOKEN]})


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
