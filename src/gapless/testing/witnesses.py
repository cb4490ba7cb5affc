"""Clients that keep journals: sources publish under a name, witnesses subscribe, come and go.

What they write down is what an application sees of the client library, no more; `journals` holds it
against the promises.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from gapless.client.client import connect
from gapless.client.parts import topic_of
from gapless.core.events import Event
from gapless.testing.journals import PublisherJournal, Session, SubscriberJournal
from gapless.testing.record import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from gapless.client.joint_subscription import JointSubscription
    from gapless.client.publisher import Publisher
    from gapless.client.subscription import Subscription
    from gapless.core.client_messages import Order, TokenKeeper
    from gapless.core.events import Attributes
    from gapless.core.token import Token

PACE_S = 0.02
"""How often events of the time that has passed are sent."""

LOOK_S = 0.02
PATIENCE_S = 120.0
"""How long a client waits for its broker, which may be down for a while."""


def now_s() -> float:
    """By the loop's clock, which may be a simulated one."""
    return asyncio.get_running_loop().time()


class Source:
    """A named publisher at a steady rate, from `start` to `stop`."""

    def __init__(
        self,
        topic: str,
        name: str,
        events_per_s: float,
        make: Callable[[int], tuple[Attributes, bytes]],
    ) -> None:
        """`make`: attributes and body of the event with this number."""
        self.name = name
        self.journal = PublisherJournal(name, topic)
        self._events_per_s = events_per_s
        self._make = make
        self._is_over = False
        self._task: asyncio.Task[None] | None = None

    def start(self, url: str) -> None:
        self._task = asyncio.create_task(self._run(url), name=f"source {self.name}")

    async def stop(self) -> None:
        """When this returns all that was sent is on stable storage. Raises what went wrong."""
        self._is_over = True
        assert self._task is not None
        await self._task

    async def cancel(self) -> None:
        """At once, whatever was sent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, url: str) -> None:
        async with (
            connect(url, patience_s=PATIENCE_S) as client,
            client.publisher(self.journal.topic, name=self.name) as publisher,
        ):
            begin_s = now_s()
            while not self._is_over:
                await self._send(publisher, int((now_s() - begin_s) * self._events_per_s))
                await asyncio.sleep(PACE_S)
            await publisher.flush()
            self.journal.durable = len(self.journal.sent)

    async def _send(self, publisher: Publisher, due: int) -> None:
        sent = self.journal.sent
        while len(sent) < due:
            sent.append(self._make(len(sent)))
            await publisher.send(*sent[-1])


class Witness:
    """A subscriber that writes down all it is handed, over all its sessions."""

    def __init__(
        self,
        topic: str,
        condition: str = "",
        *,
        label: str,
        is_named: bool = True,
        tokens: TokenKeeper = "client",
    ) -> None:
        name = label if is_named else None
        self.journal = SubscriberJournal(label, topic, condition, name)
        self.subscription: Subscription | JointSubscription | None = None
        self._tokens = tokens
        self._token: Token | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_here(self) -> bool:
        return self.subscription is not None

    async def come(self, url: str) -> None:
        """Subscribe, or go on where it was; returns when that counts."""
        ready = asyncio.Event()
        self._task = asyncio.create_task(self._read(url, ready), name=self.journal.label)
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait((self._task, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._task.done():
            self._task.result()  # raises why

    async def leave(self) -> None:
        """Close the connection. Raises what ended the subscription, if anything did."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _read(self, url: str, ready: asyncio.Event) -> None:
        is_named = self.journal.name is not None
        shown = self._token if self._tokens == "client" else None
        async with (
            connect(url, patience_s=PATIENCE_S) as client,
            client.subscribe(
                self.journal.topic,
                self.journal.condition,
                name=self.journal.name,
                start=shown or "latest",
                tokens=self._tokens if is_named else "client",
                interruption="gap",
                silence=True,
            ) as subscription,
        ):
            session = Session(dict(subscription.token), dict(shown) if shown else None)
            self.journal.sessions.append(session)
            self.subscription = subscription
            ready.set()
            try:
                async for batch in subscription.batches():
                    session.items += batch
            finally:
                self._token, self.subscription = subscription.token, None
                session.token = dict(self._token)

    def has_settled(self, pubend: str, tick: int) -> bool:
        """Was it handed all that it is owed up to here?"""
        if self._task is not None and self._task.done():
            self._task.result()
        return self.subscription is not None and self.subscription.token.get(pubend) > tick


class JointWitness(Witness):
    """A witness of several topics: a journal for each, and the order in which all came."""

    def __init__(
        self,
        topics: Sequence[str],
        condition: str,
        *,
        label: str,
        order: Order,
        tokens: TokenKeeper = "client",
    ) -> None:
        super().__init__(topics[0], condition, label=label, tokens=tokens)
        self.journals = [
            SubscriberJournal(f"{label} of {topic}", topic, condition, f"{label} of {topic}")
            for topic in topics
        ]
        self._order: Order = order

    async def _read(self, url: str, ready: asyncio.Event) -> None:
        shown = self._token if self._tokens == "client" else None
        async with (
            connect(url, patience_s=PATIENCE_S) as client,
            client.subscribe(
                [each.topic for each in self.journals],
                self.journal.condition,
                name=self.journal.name,
                order=self._order,
                start=shown or "latest",
                tokens=self._tokens,
                silence=True,
            ) as subscription,
        ):
            sessions = [
                Session(of_topic(subscription.token, each.topic), of_topic(shown, each.topic))
                for each in self.journals
            ]
            whole = Session({})
            for journal, session in zip(self.journals, sessions, strict=True):
                journal.sessions.append(session)
            self.journal.sessions.append(whole)
            self.subscription = subscription
            ready.set()
            try:
                async for batch in subscription.batches():
                    whole.items += batch
            finally:
                self._token, self.subscription = subscription.token, None
                for journal, session in zip(self.journals, sessions, strict=True):
                    session.items = [each for each in whole.items if each.topic == journal.topic]
                    session.token = of_topic(self._token, journal.topic) or {}

    def check_order(self) -> None:
        """In total order everything comes in the order of ticks: also over all sessions, where the
        client keeps the token."""
        if self._order == "publisher":
            return
        sessions = [each.items for each in self.journal.sessions]
        for items in [self.journal.events] if self._tokens == "client" else sessions:
            places = [(each.tick, each.pubend) for each in items if isinstance(each, Event)]
            if wrong := [pair for pair in pairwise(places) if pair[0] >= pair[1]]:
                text = f"{self.journal.label} got {wrong[0][1]} after {wrong[0][0]}"
                raise Violation("one total order", text)


def of_topic(token: Token | None, topic: str) -> Any:
    """The positions of one topic; None if there is no token."""
    if token is None:
        return None
    return {pubend: tick for pubend, tick in token if topic_of(pubend) == topic}


class Bell:
    """Single events, to tell by who has come past them."""

    def __init__(self, topic: str) -> None:
        self.journal = PublisherJournal(None, topic)
        self.token: dict[str, int] = {}
        """Who has all below it has come past the last one."""

    async def settled(
        self, url: str, witnesses: Iterable[Witness], patience_s: float
    ) -> list[Witness]:
        """Ring it, and wait until all have come past that; who has not by then."""
        async with connect(url, patience_s=PATIENCE_S) as client:
            event: Attributes = {"bell": len(self.journal.sent)}
            bell = await client.publish(self.journal.topic, event)
            self.journal.sent.append((event, b""))
            self.journal.durable += 1
            self.token[bell.pubend] = bell.tick + 1
        end_s = now_s() + patience_s
        while True:
            late = [each for each in witnesses if not each.has_settled(bell.pubend, bell.tick)]
            if not late or now_s() > end_s:
                return late
            await asyncio.sleep(LOOK_S)


def read_log(folder: Path, pubend: str) -> list[tuple[int, bytes]]:
    """What the disk of a stopped broker has of a pubend: all that was not released."""
    from gapless.storage.disk import DiskVolume

    volume = DiskVolume(folder / "volume")
    try:
        found: list[tuple[int, bytes]] = []
        start = 0
        while indices := (part := volume.scan(f"log/{pubend}", start, 1 << 63))[0]:
            found += zip(indices, map(bytes, part[1]), strict=True)
            start = indices[-1] + 1
        return found
    finally:
        volume.close()
