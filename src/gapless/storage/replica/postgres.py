"""A store in PostgreSQL: each operation is one call of a function in the schema `gapless`.

Theory of operation
    `schema.sql` has the tables and the functions. A commit is one statement, so it is one
    transaction, and the check of the term is part of it. Commits are sent in libpq's pipeline mode:
    the next one leaves before the answer to the last has come. The broker's role needs
    the right to call the functions and no other. The connection is libpq's, so the URL has all its
    options: TLS, several hosts, password files. It is made at the first call, and anew after a
    failure.

    Every failure other than a missing schema or a missing right counts as *unreachable*: the caller
    tries again. PostgreSQL that shuts down, fails over or has become read-only is back some time
    later.

Threads: one thread may `send` while another is in `settle`; `_wire` is held while libpq is called.
Cost: `python -m benchmarks store` compares drivers and measures commits.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from gapless.core.errors import StorageError, UsageError
from gapless.core.extras import missing_extra
from gapless.storage.replica.changes import Changes, StoredExtent
from gapless.storage.replica.store import (
    TOMBSTONES_MAX,
    Grant,
    StandbyState,
    StorageFencedError,
    StoreState,
    StoreUnreachableError,
)
from gapless.storage.volume import Bounds

try:
    import psycopg
    from psycopg import conninfo, errors, sql
    from psycopg.pq import ExecStatus
except ModuleNotFoundError as error:
    raise missing_extra("psycopg", "a store") or error from None

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from psycopg import Connection, Cursor
    from psycopg.pq.abc import PGconn

VERSION = 1
PIECE_BYTES = 4 << 20
ROWS = 50
OPTIONS = {
    "connect_timeout": "2",
    "keepalives_idle": "2",
    "keepalives_interval": "1",
    "keepalives_count": "2",
    "tcp_user_timeout": "3000",
    "target_session_attrs": "read-write",
    "application_name": "gapless",
}
"""What a connection gets unless the URL says otherwise: a dead one is noticed within seconds."""

SESSION = """
select set_config('synchronous_commit', 'on', false)
    where current_setting('synchronous_commit') = 'off';
"""
"""An answer must mean that the commit is durable. Stronger settings than `on` are left alone."""

APPEND = (
    "select gapless.append($1::text, $2::bigint, $3::bigint,"
    " $4::bytea[], $5::bigint[], $6::bigint[], $7::bytea[],"
    " $8::bytea[], $9::bigint[], $10::bigint[],"
    " $11::bytea[], $12::bytea[], $13::bytea[], $14::bytea[], $15::bytea[])"
)
STATEMENT = b"gapless_append"
BINARY = 1
BYTEA, BIGINT = 17, 20
NUMBER = struct.Struct("!q")
LENGTH = struct.Struct("!i")
ARRAY = struct.Struct("!iiiii")  # dimensions, has nulls, type, count, lower bound

MISSING = "the database has no schema for a store, or an incomplete one"
INIT = "Create it, as a role that may: gapless store init URL"


class PostgresStore:
    """A `CommitStore`: one connection. See the module docstring."""

    def __init__(self, url: str) -> None:
        try:
            given = conninfo.conninfo_to_dict(url)
        except psycopg.Error as error:
            raise UsageError(
                f"the store's URL cannot be read: {_first_line(error)}",
                "Give one such as postgresql://user@host:5432/database",
            ) from None
        self._options: dict[str, Any] = {**OPTIONS, **given}
        self._connection: Connection[Any] | None = None
        self._wire = threading.Lock()
        self._is_pipeline = self._is_prepared = False
        self._sent = 0  # commits without an answer
        self._is_refused = False

    # --- lease -----------------------------------------------------------------------------------

    def acquire(self, name: str, process: str, address: str, lease_s: float) -> Grant | None:
        lease = timedelta(seconds=lease_s)
        row = self._row(
            "select * from gapless.acquire(%s, %s, %s, %s)", name, process, address, lease
        )
        return Grant(*row) if row else None

    def renew(self, name: str, term: int, lease_s: float) -> None:
        lease = timedelta(seconds=lease_s)
        row = self._row("select gapless.renew(%s, %s, %s, %s)", name, term, lease, TOMBSTONES_MAX)
        self._check_fence(name, row)

    def release(self, name: str, term: int) -> None:
        self._row("select gapless.release(%s, %s)", name, term)

    def ask_for_hand_over(self, name: str, term: int) -> None:
        """The holder under this term sees it with its next renewal."""
        self._row("select gapless.ask_for_hand_over(%s, %s)", name, term)

    def stand_by(self, name: str, process: str, address: str, position: int) -> None:
        self._row("select gapless.stand_by(%s, %s, %s, %s)", name, process, address, position)

    # --- commits ---------------------------------------------------------------------------------

    def append(self, name: str, term: int, position: int, changes: Changes) -> None:
        try:
            self.send(name, term, position, changes)
        except StoreUnreachableError:
            self.close()
            raise
        self.settle()

    def send(self, name: str, term: int, position: int, changes: Changes) -> None:
        row = append_row(name, term, position, changes)
        try:
            with self._wire:
                wire = self._pipeline()
                wire.send_query_prepared(STATEMENT, row, [BINARY] * len(row), BINARY)
                wire.pipeline_sync()
                self._sent += 1
                is_left = wire.flush()
            while is_left:
                _wait(wire.socket, select.POLLOUT)
                with self._wire:
                    is_left = wire.flush()
        except psycopg.Error as error:
            self.interrupt()  # whoever waits for answers is to know
            raise unreachable(error) from error

    def settle(self) -> int:
        with self._in_our_words():
            while True:
                with self._wire:
                    if self._connection is None or not self._sent:
                        raise StoreUnreachableError("the connection to the store is broken")
                    wire = self._connection.pgconn
                    wire.consume_input()
                    wire.flush()
                    count = self._answers(wire)
                if count:
                    return count
                if self._is_refused:
                    self.close()
                    raise StorageFencedError("the store refused a commit")
                _wait(wire.socket, select.POLLIN)

    def _answers(self, wire: PGconn) -> int:
        """How many commits were confirmed just now, up to the first that was refused."""
        count = 0
        while self._sent and not self._is_refused and not wire.is_busy():
            result = wire.get_result()
            if result is None:
                continue
            if result.status == ExecStatus.TUPLES_OK:
                self._is_refused = result.get_value(0, 0) != b"\x01"
            elif result.status == ExecStatus.PIPELINE_SYNC:
                self._sent -= 1
                count += 1
            elif result.status != ExecStatus.COMMAND_OK:  # of the preparation
                raise errors.error_from_result(result)
        return count

    def _pipeline(self) -> PGconn:
        """The connection, ready to take commits one behind the other."""
        wire = self._connected(keeps_pipeline=True).pgconn
        if not self._is_pipeline:
            wire.enter_pipeline_mode()
            self._is_pipeline = True
        if not self._is_prepared:
            wire.send_prepare(STATEMENT, APPEND.encode())
            self._is_prepared = True
        return wire

    def _check_fence(self, name: str, row: tuple[Any, ...] | None) -> None:
        if not row or not row[0]:
            raise StorageFencedError(f"another process holds {name!r} under a newer term")

    # --- reading ---------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """All names that the store knows."""
        with self._guarded() as connection:
            return [name for (name,) in connection.execute("select gapless.names()")]

    def state(self, name: str) -> StoreState | None:
        with self._guarded() as connection:
            return self._state(connection, name)

    def contradicts(self, name: str, term: int, position: int) -> bool:
        row = self._row("select gapless.contradicts(%s, %s, %s)", name, term, position)
        return bool(row and row[0])

    def _state(self, connection: Connection[Any], name: str) -> StoreState | None:
        row = connection.execute("select * from gapless.state(%s)", (name,)).fetchone()
        if row is None:
            return None
        identity, term, position, position_term, floor, holder, address, lease_s, leaving = row
        standbys = connection.execute("select * from gapless.standbys(%s)", (name,))
        return StoreState(
            identity=identity,
            term=term,
            position=position,
            position_term=position_term,
            floor=floor,
            holder=holder,
            address=address,
            lease_s=lease_s,
            leaving=leaving,
            standbys=tuple(StandbyState(*each) for each in standbys),
        )

    @contextmanager
    def read(self, name: str, after: int) -> Iterator[tuple[StoreState, Iterator[Changes]]]:
        with self._guarded() as connection, connection.transaction():
            connection.execute("set transaction isolation level repeatable read, read only")
            state = self._state(connection, name)
            if state is None:
                raise StorageError(f"the store knows no {name!r}")
            yield state, self._pieces(connection, name, after, state.floor)

    def _pieces(
        self, connection: Connection[Any], name: str, after: int, floor: int
    ) -> Iterator[Changes]:
        """Bounds, then extents, then facts, a few megabytes at a time."""
        changes, size = Changes(), 0
        query = "select * from gapless.read_streams(%s, %s)"
        for stream, start, end in connection.execute(query, (name, after)):
            changes.bounds[stream.decode()] = Bounds(start, end)
        for stream, first, last, data in self._rows(connection, "read_extents", name, after):
            changes.extents.append(StoredExtent(stream.decode(), first, last, data))
            size += len(data)
            if size > PIECE_BYTES:
                yield changes
                changes, size = Changes(), 0
        facts_after = after if after >= floor else -1
        for table, key, value in self._rows(connection, "read_facts", name, facts_after):
            changes.facts[table.decode(), key.decode()] = value
            size += len(key) + len(value or b"")
            if size > PIECE_BYTES:
                yield changes
                changes, size = Changes(), 0
        yield changes

    def _rows(
        self, connection: Connection[Any], function: str, name: str, after: int
    ) -> Iterator[tuple[Any, ...]]:
        query = sql.SQL("select * from gapless.{}(%s, %s)").format(sql.Identifier(function))
        with connection.cursor(name=function, binary=True) as cursor:
            cursor.itersize = ROWS
            cursor.execute(query, (name, after))
            yield from cursor

    # --- the connection --------------------------------------------------------------------------

    def _row(self, query: Any, *arguments: object) -> tuple[Any, ...] | None:
        with self._guarded() as connection:
            cursor: Cursor[Any] = connection.execute(query, arguments, prepare=True)
            return cursor.fetchone() if cursor.description else None

    @contextmanager
    def _guarded(self) -> Iterator[Connection[Any]]:
        """The connection; what goes wrong with it is told in our words."""
        with self._in_our_words():
            yield self._connected()

    @contextmanager
    def _in_our_words(self) -> Iterator[None]:
        try:
            yield
        except (psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedFunction):
            self.close()
            raise StorageError(MISSING, INIT) from None
        except psycopg.errors.InsufficientPrivilege as error:
            self.close()
            raise StorageError(
                f"the store refuses: {_first_line(error)}",
                "Give the role its rights: gapless store init URL --role ROLE",
            ) from None
        except psycopg.Error as error:
            self.close()
            raise unreachable(error) from error

    def _connected(self, *, keeps_pipeline: bool = False) -> Connection[Any]:
        connection = self._connection
        if connection is None or connection.closed:
            self.close()
            connection = psycopg.connect(**self._options, autocommit=True)
            try:
                connection.execute(SESSION)
                row = connection.execute("select to_regclass('gapless.version')").fetchone()
                if row is None or row[0] is None:
                    raise psycopg.errors.InvalidSchemaName
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        if self._is_pipeline and not keeps_pipeline:
            connection.pgconn.exit_pipeline_mode()
            self._is_pipeline = False
        return connection

    def interrupt(self) -> None:
        connection = self._connection
        with suppress(OSError, psycopg.Error, ValueError):
            if connection is not None:
                with socket.socket(fileno=os.dup(connection.fileno())) as same:
                    same.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self._is_pipeline = self._is_prepared = self._is_refused = False
        self._sent = 0
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()


def append_row(name: str, term: int, position: int, changes: Changes) -> list[bytes]:
    """The arguments of the function `append` of the schema, in PostgreSQL's binary form."""
    extents, bounds = changes.extents, changes.bounds
    puts = [(*key, value) for key, value in changes.facts.items() if value is not None]
    gone = [key for key, value in changes.facts.items() if value is None]
    return [
        name.encode(),
        NUMBER.pack(term),
        NUMBER.pack(position),
        _array(BYTEA, [each.stream.encode() for each in extents]),
        _numbers([each.first for each in extents]),
        _numbers([each.last for each in extents]),
        _array(BYTEA, [each.data for each in extents]),
        _array(BYTEA, [stream.encode() for stream in bounds]),
        _numbers([each.start for each in bounds.values()]),
        _numbers([each.end for each in bounds.values()]),
        _array(BYTEA, [table.encode() for table, _, _ in puts]),
        _array(BYTEA, [key.encode() for _, key, _ in puts]),
        _array(BYTEA, [value for _, _, value in puts]),
        _array(BYTEA, [table.encode() for table, _ in gone]),
        _array(BYTEA, [key.encode() for _, key in gone]),
    ]


def _numbers(numbers: Sequence[int]) -> bytes:
    return _array(BIGINT, [NUMBER.pack(each) for each in numbers])


def _array(kind: int, values: Sequence[bytes]) -> bytes:
    parts = [ARRAY.pack(1, 0, kind, len(values), 1)]
    for each in values:
        parts += (LENGTH.pack(len(each)), each)
    return b"".join(parts)


def _wait(descriptor: int, event: int) -> None:
    """Until it can be read or written, or is broken."""
    poll = select.poll()
    poll.register(descriptor, event)
    poll.poll()


def unreachable(error: psycopg.Error) -> StoreUnreachableError:
    return StoreUnreachableError(f"the store cannot be reached: {_first_line(error)}")


def init(url: str, role: str = "") -> bool:
    """Create the schema, unless it is there, and let `role` use it; whether it was created."""
    try:
        options: dict[str, Any] = {**OPTIONS, **conninfo.conninfo_to_dict(url)}
        with psycopg.connect(**options) as connection:
            row = connection.execute("select to_regclass('gapless.version')").fetchone()
            is_new = row is None or row[0] is None
            if is_new:
                text = files("gapless.storage.replica").joinpath("schema.sql").read_text("utf-8")
                connection.execute(text.encode())
            else:
                _check_version(connection)
            if role:
                name = sql.Identifier(role)
                connection.execute(sql.SQL("grant usage on schema gapless to {}").format(name))
                grant = sql.SQL("grant execute on all functions in schema gapless to {}")
                connection.execute(grant.format(name))
    except psycopg.Error as error:
        raise StorageError(
            f"the store could not be prepared: {_first_line(error)}",
            "Give the URL of a role that may create a schema in that database.",
        ) from None
    return is_new


def _check_version(connection: Connection[Any]) -> None:
    row = connection.execute("select number from gapless.version").fetchone()
    if row is None or row[0] != VERSION:
        raise StorageError(
            f"the store has version {row and row[0]} of the schema; this gapless knows {VERSION}",
            "Use the version of gapless that made it.",
        )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
