"""The oracle of all matcher tests: every filter, one after the other, in the promised order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gapless.filters.filter import Filter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gapless.core.events import Value
    from gapless.filters.matcher import Matcher


class LinearScan:
    """A matcher without any idea. A freed place is taken by the next filter, the last one first."""

    def __init__(self) -> None:
        self._places: list[tuple[object, Filter] | None] = []
        self._free: list[int] = []

    def add(self, key: object, condition: str | Filter) -> None:
        entry = (key, Filter.parse(condition) if isinstance(condition, str) else condition)
        if self._free:
            self._places[self._free.pop()] = entry
        else:
            self._places.append(entry)

    def remove(self, key: object) -> None:
        place = next(i for i, entry in enumerate(self._places) if entry and entry[0] == key)
        self._places[place] = None
        self._free.append(place)

    def match(self, attributes: Mapping[str, Value]) -> list[Any]:
        return [entry[0] for entry in self._places if entry and entry[1].matches(attributes)]


def assert_agree(
    scan: LinearScan, matchers: Sequence[Matcher[Any]], events: Sequence[Mapping[str, Value]]
) -> int:
    """Every matcher, one by one and in a batch, finds what the scan finds; how many matches.

    The compiled engine before it has prepared for the columns there are, and after.
    """
    expected = [scan.match(event) for event in events]
    pairs = [(index, key) for index, keys in enumerate(expected) for key in keys]
    for matcher in matchers:
        engine = matcher.statistics()["engine"]
        for prepare in (False, True) if engine == "compiled" else (False,):
            if prepare:
                matcher._index.prepare()  # type: ignore[union-attr]
            for event, keys in zip(events, expected, strict=True):
                assert matcher.match(event) == keys, (engine, prepare, event)
            assert matcher.match_batch(list(events)) == pairs, (engine, prepare)
    return len(pairs)
