"""Which door of the network has which session.

Theory of operation
    The doors of a network tell each other of their durable sessions by events of a topic of their
    own. Each door follows that topic with a named subscription, and writes what it learns to its
    journal before it acknowledges. So a door that a client of another door connects to knows the
    client's filters and the name of its subscription: it redirects the client, or takes the session
    over. A session counts how often it has moved; the door with the highest count has it, and of
    two with the same count the one whose name is greater: a client reached both before they knew.

Bound: `ENTRIES_MAX` sessions of other doors; beyond it the oldest entry is forgotten, and that
session begins anew at this door.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from gapless.client.errors import RefusedError
from gapless.core.errors import GaplessError
from gapless.core.events import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gapless.client.client import Client
    from gapless.client.subscription import Subscription
    from gapless.doors.mqtt.journal import DoorJournal

TOPIC = "mqtt/sessions"
RETENTION_S = 30 * 24 * 3600.0
ENTRIES_MAX = 100_000
RETRY_S = 1.0


class SessionEntry(NamedTuple):
    """A session of another door. `record` is empty if that door has ended it."""

    door: str
    address: str
    moves: int
    record: Mapping[str, Any]


class SessionDirectory:
    """The directory of one door."""

    def __init__(
        self,
        door: tuple[str, str],
        journal: DoorJournal,
        on_entry: Callable[[str, SessionEntry], None],
    ) -> None:
        """`door`: the broker's name and the door's address. `on_entry` is called with a client and
        the entry of its session when another door has told of it."""
        self._door, self._address = door
        self._journal = journal
        self._on_entry = on_entry
        self._entries = {
            client: SessionEntry(*json.loads(value))
            for client, value in journal.facts("elsewhere").items()
        }
        self._news: dict[str, tuple[int, bytes]] = {}
        self._has_news = asyncio.Event()

    def get(self, client: str) -> SessionEntry | None:
        """Where the client's session is, if another door has it."""
        entry = self._entries.get(client)
        return entry if entry is not None and entry.record else None

    def moves(self, client: str) -> int:
        """How often the session has moved, as far as another door has told."""
        entry = self._entries.get(client)
        return 0 if entry is None else entry.moves

    def records(self) -> list[Mapping[str, Any]]:
        return [entry.record for entry in self._entries.values() if entry.record]

    def tell(self, client: str, moves: int, record: bytes = b"{}") -> None:
        """This door has the session, or has ended it. What is told later replaces it."""
        if self._entries.pop(client, None) is not None:
            self._journal.write([("elsewhere", client, None)])
        self._news[client] = moves, record
        self._has_news.set()

    async def open(self, own: Client) -> Subscription:
        """Begin to follow the topic; `follow` reads on."""
        with suppress(RefusedError):  # it exists
            await own.create_topic(TOPIC, retention_seconds=RETENTION_S)
        name = f"mqtt-sessions@{self._door}"
        subscription = own.subscribe(TOPIC, name=name, start="earliest")
        await subscription.__aenter__()
        return subscription

    async def follow(self, subscription: Subscription) -> None:
        async for batch in subscription.batches():
            changed = [each for each in batch if isinstance(each, Event) and self._take(each)]
            if changed:
                await self._journal.write(
                    [
                        ("elsewhere", client, json.dumps(entry).encode())
                        for client in dict.fromkeys(str(e.attributes["client"]) for e in changed)
                        if (entry := self._entries.get(client)) is not None
                    ]
                )
            await subscription.acknowledge()

    def _take(self, event: Event) -> bool:
        given = event.attributes
        client, door, moves = str(given["client"]), str(given["door"]), int(str(given["moves"]))
        known = self._entries.get(client)
        if door == self._door or (known and (known.moves, known.door) > (moves, door)):
            return False
        entry = SessionEntry(door, str(given["address"]), moves, json.loads(event.body))
        self._entries.pop(client, None)
        self._entries[client] = entry
        while len(self._entries) > ENTRIES_MAX:
            oldest = next(iter(self._entries))
            del self._entries[oldest]
            self._journal.write([("elsewhere", oldest, None)])
        self._on_entry(client, entry)
        return True

    async def publish(self, own: Client) -> None:
        """Tell the other doors, until cancelled."""
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            news, self._news = self._news, {}
            about = {"door": self._door, "address": self._address}
            try:
                await own.publish_many(
                    TOPIC,
                    [
                        ({**about, "client": client, "moves": moves}, record)
                        for client, (moves, record) in news.items()
                    ],
                )
            except GaplessError:
                self._news = news | self._news
                self._has_news.set()
                await asyncio.sleep(RETRY_S)
