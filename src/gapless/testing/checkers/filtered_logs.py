"""Filtered logs: what a broker wrote down of who takes what is what brute force finds.

Unlike other checkers this one reads disks, when a phase is over. For every named subscription that
a disk has, from where the log knows it on, up to where the log is complete: the records that name
it are exactly those of the events that match, and each points back to the one before it.
It knows the format (`durable.filtered_log`), and shares no code with it.
"""

from __future__ import annotations

import json
from itertools import pairwise
from struct import iter_unpack
from typing import TYPE_CHECKING

from gapless.core.client_messages import Former
from gapless.core.identity import BrokerName, PubendName, TopicName
from gapless.testing.named import Conditions
from gapless.testing.record import Subscription
from gapless.testing.trace import show_tick

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gapless.core.store import Store
    from gapless.testing.record import Record

DEFINITIONS = "durable"
DELIVERED = "delivered"
RELEASED = "released"
STREAM = "filtered/"


class FilteredLogs:
    """Compares the disk of one broker with brute force."""

    promise = "the filtered log is right"

    def __init__(self, record: Record, broker: BrokerName, store: Store) -> None:
        self._record = record
        self._broker = broker
        self._store = store

    def wrong(self) -> list[str]:
        """What is not as it should be, in words."""
        found: list[str] = []
        records = {pubend: dict(self._scan(pubend)) for pubend in self._record.logs}
        for name, fact in self._store.items(DEFINITIONS).items():
            fields = json.loads(fact)
            subscription = Subscription(
                client=name,  # type: ignore[arg-type]  # only to be matched and shown
                number=fields["number"],
                topic=TopicName(fields["topic"]),
                condition=fields["condition"],
                order="publisher",
            )
            former = tuple(Former(*each) for each in fields["former"])
            subscription.conditions = Conditions(fields["condition"], fields["altered"], former)
            released: dict[str, int] = {}
            if fields["altered"] > len(former):  # older ones decided on what is acknowledged
                released = json.loads(self._store.get(RELEASED, name) or b"{}")
            for pubend, since in fields["since"].items():
                low = max(since, released.get(pubend, 0))
                found += self._compare(subscription, PubendName(pubend), low, records[pubend])
        return found

    def _scan(self, pubend: PubendName) -> Iterator[tuple[int, dict[int, int]]]:
        """By tick: the takers of an event, and the tick that each took before it."""
        stream, start = f"{STREAM}{pubend}", 0
        while (found := self._store.scan(stream, start, 1 << 63))[0]:
            for tick, record in zip(*found, strict=True):
                count = int.from_bytes(record[:4], "little")
                numbers, backs = record[4 : 4 + 4 * count], record[4 + 4 * count :]
                if len(backs) == 8:
                    backs *= count
                pairs = zip(iter_unpack("<I", numbers), iter_unpack("<q", backs), strict=True)
                yield tick, {number: back for (number,), (back,) in pairs}
                start = tick + 1

    def _compare(
        self,
        subscription: Subscription,
        pubend: PubendName,
        since: int,
        records: dict[int, dict[int, int]],
    ) -> Iterator[str]:
        low = max(since, self._store.bounds(f"{STREAM}{pubend}")[0])
        end = int.from_bytes(self._store.get(DELIVERED, pubend) or b"", "little")
        wanted = self._record.wanted(subscription, pubend, low, end)
        number = subscription.number
        taken = [tick for tick, takers in records.items() if number in takers and tick >= low]
        if taken != wanted:
            unlike = " ".join(map(show_tick, sorted(set(taken) ^ set(wanted))))
            yield f"{self._broker}: {pubend}: {subscription} differs at {unlike}"
        else:
            for before, tick in pairwise(taken):
                if records[tick][number] != before:
                    yield f"{self._broker}: {pubend}: {subscription} strays at {show_tick(tick)}"
