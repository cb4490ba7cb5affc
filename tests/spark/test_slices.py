"""A plan covers its interval once, however it is cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gapless
from gapless.core.errors import UsageError
from gapless.core.token import Token
from gapless.spark.slices import find_cuts, plan, resolve_end, resolve_start
from gapless.spark.topics import topic_of
from tests.test_sync import broker_in_a_thread

if TYPE_CHECKING:
    from pathlib import Path

TOKENS = st.dictionaries(st.sampled_from(["t/0", "t/1", "t/2"]), st.integers(0, 300)).map(Token)
POSITIONS = {"t/0": (10, 100 << 10), "t/1": (0, 50 << 10)}


CUTS = st.lists(st.integers(0, 300)).map(sorted)


@given(start=TOKENS, end=TOKENS, cuts=CUTS)
def test_slices_are_disjoint_and_cover_the_interval(
    start: Token, end: Token, cuts: list[int]
) -> None:
    inside = {name: [tick for tick in cuts if start.get(name) < tick < high] for name, high in end}
    slices = plan(["t"], start, end, inside)
    ticks = [(each.pubend, tick) for each in slices for tick in range(each.low, each.high)]
    whole = {(name, tick) for name, high in end for tick in range(start.get(name), high)}
    assert set(ticks) == whole
    assert len(ticks) == len(whole)
    assert {each.topic for each in slices} <= {"t"}


def test_starts_and_ends_are_found_by_name_time_or_token() -> None:
    assert resolve_start("earliest", POSITIONS) == Token({"t/0": 10})
    assert resolve_start("latest", POSITIONS) == Token({"t/0": 100 << 10, "t/1": 50 << 10})
    assert resolve_start(60, POSITIONS) == Token({"t/0": 60 << 10, "t/1": 50 << 10})
    kept = {"t/0": (70 << 10, 100 << 10)}
    assert resolve_start(60, kept) == Token({"t/0": 70 << 10}), "it begins with what is kept"
    assert resolve_start(60, kept, gaps="rows") == Token({"t/0": 60 << 10}), "and a row tells"
    assert resolve_start(Token({"t/1": 5}), POSITIONS) == Token({"t/0": 10, "t/1": 5})
    assert resolve_end(Token({"t/1": 5}), POSITIONS) == Token({"t/1": 5})
    assert resolve_end(60, POSITIONS) == Token({"t/0": 60 << 10, "t/1": 50 << 10})


def test_a_place_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="'u/0', which is no pubend"):
        resolve_start(Token({"u/0": 1}), POSITIONS)
    with pytest.raises(UsageError, match="settled up to 51200, and not up to 51201"):
        resolve_end(Token({"t/1": 51201}), POSITIONS)
    with pytest.raises(UsageError, match="before everything"):
        resolve_end("earliest", POSITIONS)


def test_slices_have_as_many_events_wherever_in_time_these_are(tmp_path: Path) -> None:
    """Else the slices of a young topic share out the time since 1970, and one has all the rows."""
    with broker_in_a_thread(tmp_path) as url, gapless.sync.connect(url) as client:
        client.create_topic("young", pubends=2)
        with client.subscribe("young", name="keeper", start="earliest"):
            pass
        for name, count in (("alice", 1_000), ("bob", 3_000)):
            with client.publisher("young", name=name) as publisher:
                publisher.send_many(({"i": i}, b"") for i in range(count))
        positions = client.positions("young")
        interval = resolve_start("earliest", positions), resolve_end("latest", positions)
        for condition, total in (("", 4_000), ("i >= 500", 3_000)):
            cuts = find_cuts(client, ["young"], condition, interval, 8)
            counts = [
                sum(
                    len(batch)
                    for batch in client.read(
                        part.topic,
                        condition,
                        start=Token({part.pubend: part.low}),
                        end=Token({part.pubend: part.high}),
                        pubends=[part.pubend],
                    )
                )
                for part in plan(["young"], *interval, cuts)
            ]
            assert sum(counts) == total
            assert 8 <= len(counts) <= 9
            assert max(counts) <= 1.2 * total / 8
        assert plan(["young"], *interval, find_cuts(client, ["young"], "i < 0", interval, 8)) == []


def test_a_pubend_tells_its_topic() -> None:
    assert topic_of("trades/0", ["trades", "orders"]) == "trades"
    assert topic_of("trades@3/0", ["trades", "orders"]) == "trades"
    assert topic_of("a/b@2/0", ["a/b@2"]) == "a/b@2"
