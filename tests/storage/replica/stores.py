"""Stores for tests: one in memory, and one in PostgreSQL where the machine has that."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import pytest

from gapless.testing.memory_store import MemoryStore
from gapless.testing.processes.postgres import MISSING, REMEDY, PostgresServer, find_programs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gapless.storage.replica.store import CommitStore

NUMBERS = count(1)


@dataclass
class StoreLab:
    """Makes connections to one store, and gives each test a name of its own."""

    connect: Callable[[], CommitStore]
    name: str


def postgres_url() -> Iterator[str]:
    """Of a server that was started for these tests, with the schema in it."""
    if find_programs() is None:
        pytest.skip(f"{MISSING}. {REMEDY}")
    pytest.importorskip("psycopg")
    from gapless.storage.replica.postgres import init

    with PostgresServer("fsync=off") as server:  # nothing here outlives the machine
        init(server.url)
        yield server.url


def memory_lab() -> StoreLab:
    return StoreLab(MemoryStore(lambda: 0.0).connect, "memory")


def postgres_lab(url: str) -> StoreLab:
    from gapless.storage.replica.postgres import PostgresStore

    return StoreLab(lambda: PostgresStore(url), f"test-{os.getpid()}-{next(NUMBERS)}")
