"""A filtered log that differs from brute force is found on the disk."""

from __future__ import annotations

import json
from struct import pack

import pytest

from gapless.core.effects import Append, Chop, Put
from gapless.testing.checkers.filtered_logs import FilteredLogs
from tests.testing.named_facts import HOST, NAME, PUBEND, Facts


class FilteredDisk(Facts):
    """A disk with a subscription to all prices above 15, known from tick 5 on."""

    def __init__(self, *records: tuple[int, int]) -> None:
        super().__init__()
        self.log(10, 20, 30, 40)
        since = {"number": 7, "topic": "t", "condition": "price > 15", "since": {PUBEND: 5}}
        unchanged = {"altered": 0, "former": []}
        encoded = tuple(pack("<IIq", 1, 7, previous) for _, previous in records)
        ticks = tuple(tick for tick, _ in records)
        self.host.store.commit(
            [
                Put("durable", NAME, json.dumps(since | unchanged).encode()),
                Put("delivered", PUBEND, (31).to_bytes(8, "little")),
                Append(f"filtered/{PUBEND}", ticks, encoded),
            ]
        )

    def wrong(self) -> list[str]:
        return FilteredLogs(self.record, HOST, self.host.store).wrong()


def test_a_filtered_log_with_just_what_matches_is_right() -> None:
    disk = FilteredDisk((20, -1), (30, 20))
    assert disk.wrong() == []
    disk.host.store.commit([Chop(f"filtered/{PUBEND}", 25)])
    assert disk.wrong() == []


@pytest.mark.parametrize(
    "records", [((20, -1),), ((10, -1), (20, 10), (30, 20)), ((20, -1), (30, 10))]
)
def test_a_filtered_log_that_misses_adds_or_strays_is_found(
    records: tuple[tuple[int, int], ...],
) -> None:
    assert len(FilteredDisk(*records).wrong()) == 1
