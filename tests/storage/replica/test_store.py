"""What every store promises, in memory and in PostgreSQL alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gapless.core.effects import Append, Chop, Delete, Put
from gapless.core.errors import StorageError
from gapless.storage.replica.changes import Changes, decode_extent
from gapless.storage.replica.store import CommitStore, StorageFencedError
from gapless.storage.volume import NO_BOUNDS, Bounds
from tests.storage.replica.stores import StoreLab, memory_lab, postgres_lab, postgres_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gapless.core.effects import Write

pytestmark = pytest.mark.xdist_group("postgres")
url = pytest.fixture(scope="module")(postgres_url)
LEASE_S = 1000.0


@pytest.fixture(params=["memory", "postgres"])
def lab(request: pytest.FixtureRequest) -> StoreLab:
    if request.param == "memory":
        return memory_lab()
    return postgres_lab(request.getfixturevalue("url"))


@pytest.fixture
def store(lab: StoreLab) -> Iterator[CommitStore]:
    store = lab.connect()
    yield store
    store.close()


def changes(*writes: Write, bounds: Bounds = NO_BOUNDS) -> Changes:
    return Changes.of(writes, lambda _: bounds)


def held(store: CommitStore, name: str) -> int:
    grant = store.acquire(name, "p1", "a:1", LEASE_S)
    assert grant is not None
    return grant.term


def read(store: CommitStore, name: str, after: int = 0) -> Changes:
    every = Changes()
    with store.read(name, after) as (_, pieces):
        for piece in pieces:
            every.extents += piece.extents
            every.bounds |= piece.bounds
            every.facts |= piece.facts
    return every


def test_one_process_gets_the_lease_and_others_do_not(store: CommitStore, lab: StoreLab) -> None:
    assert store.acquire(lab.name, "p1", "a:1", LEASE_S) == (1, 0)
    assert store.acquire(lab.name, "p2", "a:2", LEASE_S) is None
    state = store.state(lab.name)
    assert state is not None
    assert (state.holder, state.address, state.term) == ("p1", "a:1", 1)
    assert 0 < state.lease_s <= LEASE_S


def test_a_lease_that_was_released_or_has_ended_is_given_under_the_next_term(
    store: CommitStore, lab: StoreLab
) -> None:
    term = held(store, lab.name)
    store.release(lab.name, term)
    assert store.acquire(lab.name, "p2", "a:2", 0.0) == (2, 0)
    assert store.acquire(lab.name, "p1", "a:1", LEASE_S) == (3, 0)


def test_a_commit_under_an_older_term_is_fenced_and_leaves_nothing(
    store: CommitStore, lab: StoreLab
) -> None:
    term = held(store, lab.name)
    store.append(lab.name, term, 1, changes(Put("t", "k", b"1")))
    store.release(lab.name, term)
    newer = held(store, lab.name)
    with pytest.raises(StorageFencedError):
        store.append(lab.name, term, 2, changes(Put("t", "k", b"2")))
    with pytest.raises(StorageFencedError):
        store.renew(lab.name, term, LEASE_S)
    store.release(lab.name, term)  # which changes nothing
    assert store.acquire(lab.name, "p3", "", LEASE_S) is None
    assert read(store, lab.name).facts == {("t", "k"): b"1"}
    store.append(lab.name, newer, 2, changes(Put("t", "k", b"3")))


def test_a_position_is_given_once_and_none_is_left_out(store: CommitStore, lab: StoreLab) -> None:
    term = held(store, lab.name)
    store.append(lab.name, term, 1, changes(Put("t", "k", b"1")))
    for position in (1, 3):
        with pytest.raises(StorageFencedError):
            store.append(lab.name, term, position, changes(Put("t", "k", b"2")))
    state = store.state(lab.name)
    assert state is not None
    assert (state.position, state.position_term) == (1, term)


def test_what_was_appended_chopped_put_and_deleted_is_read_back(
    store: CommitStore, lab: StoreLab
) -> None:
    term = held(store, lab.name)
    odd = "log/\x00ß"
    first = Append(odd, (1, 2, 9), (b"a", b"", b"c" * 5000))
    store.append(lab.name, term, 1, changes(first, Put("t", "k\x00", b"\x00"), Put("t", "b", b"")))
    second = Append(odd, range(10, 20, 5), (b"d", b"e"))
    store.append(lab.name, term, 2, changes(second, Delete("t", "b"), bounds=Bounds(0, 10)))
    every = read(store, lab.name)
    assert [decode_extent(each.data)[1] for each in every.extents] == [
        [b"a", b"", b"c" * 5000],
        [b"d", b"e"],
    ]
    assert list(decode_extent(every.extents[1].data)[0]) == [10, 15]
    assert every.bounds == {odd: Bounds(0, 16)}
    assert every.facts == {("t", "k\x00"): b"\x00", ("t", "b"): None}
    newer = read(store, lab.name, 1)
    assert [each.first for each in newer.extents] == [10]
    assert newer.facts == {("t", "b"): None}
    store.append(lab.name, term, 3, changes(Chop(odd, 10), bounds=Bounds(0, 16)))
    assert [each.first for each in read(store, lab.name).extents] == [10]
    assert read(store, lab.name, 2).bounds == {odd: Bounds(10, 16)}


def test_a_commit_is_contradicted_by_a_later_term_that_began_before_it(
    store: CommitStore, lab: StoreLab
) -> None:
    first = held(store, lab.name)
    store.append(lab.name, first, 1, changes(Put("t", "k", b"1")))
    store.release(lab.name, first)
    second = held(store, lab.name)
    store.append(lab.name, second, 2, changes(Put("t", "k", b"2")))
    assert not store.contradicts(lab.name, first, 1)
    assert store.contradicts(lab.name, first, 2)
    assert not store.contradicts(lab.name, second, 2)


def test_processes_that_stand_by_are_listed_with_how_far_they_are(
    store: CommitStore, lab: StoreLab
) -> None:
    held(store, lab.name)
    store.stand_by(lab.name, "p2", "a:2", 0)
    store.stand_by(lab.name, "p2", "a:2", 7)
    state = store.state(lab.name)
    assert state is not None
    assert [each[:3] for each in state.standbys] == [("p2", "a:2", 7)]


def test_names_do_not_see_each_other(store: CommitStore, lab: StoreLab) -> None:
    other = f"{lab.name}-other"
    term = held(store, lab.name)
    store.append(lab.name, term, 1, changes(Put("t", "k", b"1"), Append("s", (1,), (b"x",))))
    assert store.state(other) is None
    term = held(store, other)
    assert read(store, other) == Changes()


def test_a_role_that_init_named_may_call_the_functions_and_touch_no_table(url: str) -> None:
    import psycopg

    from gapless.storage.replica.postgres import PostgresStore, init

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create role clerk login")
        own = url.replace("gapless@", "clerk@")
        with pytest.raises(StorageError, match="--role"):
            PostgresStore(own).acquire("rights", "p", "", 1.0)
        assert not init(url, "clerk")
        lab = StoreLab(lambda: PostgresStore(own), "rights")
        store = lab.connect()
        term = held(store, lab.name)
        store.append(lab.name, term, 1, changes(Put("t", "k", b"1")))
        store.renew(lab.name, term, LEASE_S)
        store.stand_by(lab.name, "p2", "", 1)
        assert read(store, lab.name).facts == {("t", "k"): b"1"}
        store.close()
        with (
            psycopg.connect(own, autocommit=True) as clerk,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            clerk.execute("select * from gapless.fact")


def test_a_database_without_the_schema_is_told_with_the_command_that_makes_it(url: str) -> None:
    import psycopg

    from gapless.storage.replica.postgres import PostgresStore

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create database bare")
    with pytest.raises(StorageError, match="gapless store init"):
        PostgresStore(url.replace("/postgres", "/bare")).state("x")
