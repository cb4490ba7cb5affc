"""Batches that have more matches than there is room for at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gapless.filters.matcher import Matcher
from gapless.filters.matching import batch_search, compiled_index, kernels

if TYPE_CHECKING:
    from gapless.core.events import Attributes


@pytest.mark.parametrize("room", [0, 7, 1_000])
def test_matches_are_the_same_however_often_room_is_made_for_them(
    room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled_index, "BATCH_OUT", room)
    matcher = Matcher({n: f"i >= {n % 5} AND s <> 'x{n}'" for n in range(20)}, engine="compiled")
    events: list[Attributes] = [{"i": i % 7, "s": f"x{i}"} for i in range(30)]
    wanted = [(row, n) for row, event in enumerate(events) for n in matcher.match(event)]
    assert matcher.match_batch(events) == wanted
    assert len(wanted) > 20 + 7
    assert matcher.match_batch([]) == []


@pytest.mark.parametrize("floats", [1, 5, 1_000])
def test_matches_are_the_same_however_few_events_are_matched_at_a_time(
    floats: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[int] = []
    match_rows = kernels.match_rows

    def watched(words: Any, rows: Any, *rest: Any) -> Any:
        encoded.append(len(rows))
        return match_rows(words, rows, *rest)

    for module in (compiled_index, batch_search):
        monkeypatch.setattr(module, "ROWS_FLOATS_MAX", floats)
    monkeypatch.setattr(kernels, "match_rows", watched)
    matcher = Matcher({n: f"i >= {n % 5} AND s <> 'x{n}'" for n in range(20)}, engine="compiled")
    events: list[Attributes] = [{"i": i % 7, "s": f"x{i}"} for i in range(30)]
    wanted = [(row, n) for row, event in enumerate(events) for n in matcher.match(event)]
    matcher._index.prepare()  # type: ignore[union-attr]
    assert matcher.match_batch(events) == wanted
    assert max(encoded) <= max(floats, 2)  # one row has two
