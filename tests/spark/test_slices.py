"""A plan covers its interval once, however it is cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gapless
from gapless.core.errors import UsageError
from gapless.core.token import Token
from gapless.spark.options import parse_options
from gapless.spark.slices import first_events, plan, resolve_end, resolve_start
from tests.test_sync import broker_in_a_thread

if TYPE_CHECKING:
    from pathlib import Path

TOKENS = st.dictionaries(st.sampled_from(["t/0", "t/1", "t/2"]), st.integers(0, 300)).map(Token)
POSITIONS = {"t/0": (10, 100 << 10), "t/1": (0, 50 << 10)}


@given(start=TOKENS, end=TOKENS, count=st.integers(1, 40))
def test_slices_are_disjoint_cover_the_interval_and_are_as_many_as_asked_for(
    start: Token, end: Token, count: int
) -> None:
    slices = plan(start, end, count)
    ticks = [(each.pubend, tick) for each in slices for tick in range(each.low, each.high)]
    whole = {(name, tick) for name, high in end for tick in range(start.get(name), high)}
    assert set(ticks) == whole
    assert len(ticks) == len(whole)
    assert len(slices) >= min(count, len(whole))


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


def test_slices_begin_with_the_first_event_that_matches(tmp_path: Path) -> None:
    """Else the slices of a young topic share out the time since 1970, and one has all the rows."""
    with broker_in_a_thread(tmp_path) as url, gapless.sync.connect(url) as client:
        client.create_topic("young")
        with client.subscribe("young", name="keeper", start="earliest"):
            pass
        receipts = client.publish_many("young", [({"i": i}, b"") for i in range(20)])
        positions = client.positions("young")
        start, end = resolve_start("earliest", positions), resolve_end("latest", positions)
        for condition, first in (("", 0), ("i >= 7", 7)):
            given = {"url": url, "topic": "young", "filter": condition}
            options = parse_options(given, is_stream=False)
            assert dict(first_events(client, options, start, end)) == {
                "young/0": receipts[first].tick
            }
        options = parse_options({"url": url, "topic": "young", "filter": "i > 99"}, is_stream=False)
        assert plan(first_events(client, options, start, end), end, 8) == []
