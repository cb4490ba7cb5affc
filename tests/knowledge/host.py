"""A pubend with a disk that answers when the test says so."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gapless.core.client_messages import Publish, PublisherQuery, Receipt, Refused
from gapless.core.effects import Effect, Persist, Send, Tell
from gapless.core.errors import StorageFullError
from gapless.core.events import EventBatch
from gapless.core.identity import ClientName, Instant, PublisherName, TopicName
from gapless.core.ticks import tick_at
from gapless.knowledge.pubend import FOR_EVER, Persisted, Pubend
from gapless.testing.memory_volume import MemoryVolume
from tests.bounds import so_long_as
from tests.knowledge.notation import CONFIG, PUBEND, nack

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gapless.core.broker_messages import Knowledge
    from gapless.core.messages import Message
    from gapless.knowledge.retention import Policy

NUMBER = 3
"""The number of the pubend among those of its topic."""


def tick(instant: int) -> int:
    """The tick that the pubend has at this instant."""
    return tick_at(Instant(instant), NUMBER)


class Host:
    """Collects what the pubend wants written, sends, and tells its relay."""

    def __init__(
        self,
        volume: MemoryVolume | None = None,
        now: int = 0,
        policy: Policy = FOR_EVER,
        **limits: Any,
    ) -> None:
        self.limits = limits
        self.volume = volume or MemoryVolume()
        config = replace(CONFIG, **limits)
        self.pubend = Pubend(PUBEND, NUMBER, self.volume, config, Instant(now), policy)
        self.disk: deque[Persist] = deque()
        self.sent: list[tuple[str, Message]] = []
        self.known: list[Knowledge] = []
        self.expected: list[int] = []

    def _do(self, effects: Iterable[Effect], knowledge: Iterable[Knowledge] = ()) -> None:
        for effect in effects:
            match effect:
                case Persist():
                    self.disk.append(effect)
                case Send(to, message):
                    self.sent.append((to, message))
                case Tell():
                    raise AssertionError("a pubend tells itself nothing before a write is durable")
        self.known += knowledge
        self.pubend.check()

    def publish(
        self,
        *events: str,
        now: int = 0,
        name: str | None = None,
        sequence: int = 0,
        request: int = 0,
        client: str = "client",
        term: int = 0,
        owner: str = "",
    ) -> None:
        batch = EventBatch.join(each.encode() for each in events)
        publisher = None if name is None else PublisherName(name)
        message = Publish(TopicName("news"), request, batch, publisher, sequence, term)
        self._do(self.pubend.publish(ClientName(client), message, Instant(now), owner))

    def take_over(
        self,
        name: str,
        client: str,
        request: int = 0,
        now: int = 0,
        opening: int = 0,
        owner: str = "",
    ) -> None:
        query = PublisherQuery(request, TopicName("news"), PublisherName(name), opening)
        self._do(self.pubend.position(ClientName(client), query, Instant(now), owner))

    def sync(self, now: int = 0) -> None:
        """The oldest write ends: durable, or without room."""
        persist = self.disk.popleft()
        try:
            self.volume.commit(persist.writes)
            follow = persist.then
        except StorageFullError:
            follow = persist.otherwise
        for effect in follow:
            if isinstance(effect, Send):
                self.sent.append((effect.to, effect.message))
                continue
            assert isinstance(effect, Tell)
            assert isinstance(effect.message, Persisted)
            self._do(*self.pubend.persisted(effect.message, Instant(now)))

    def sync_all(self, now: int = 0) -> None:
        for _ in so_long_as(lambda: self.disk):
            self.sync(now)

    def fire(self, now: int) -> None:
        effects, knowledge, expected = self.pubend.fire(Instant(now))
        self._do(effects, knowledge)
        self.expected += [expected] if expected else []

    def speak(self, now: int) -> None:
        self._do(*self.pubend.speak(Instant(now)))

    def ask(self, text: str, now: int = 0) -> None:
        self._do(*self.pubend.receive_nack(nack(text), Instant(now)))

    def restart(self, now: int) -> Host:
        """The process ends with all that was not synced, and begins again."""
        self.volume.reopen()
        return Host(self.volume, now, **self.limits)

    # --- what came out ---------------------------------------------------------------------------

    def receipts(self) -> list[tuple[int, ...]]:
        """The ticks of all receipts since the last call; nothing else was sent."""
        answers = [message for _, message in self.sent]
        self.sent.clear()
        assert all(isinstance(each, Receipt) for each in answers), answers
        return [each.ticks for each in answers if isinstance(each, Receipt)]

    def refusals(self) -> list[tuple[int, str, bool]]:
        answers = [message for _, message in self.sent]
        self.sent.clear()
        assert all(isinstance(each, Refused) for each in answers), answers
        return [(x.request, x.problem, x.retry) for x in answers if isinstance(x, Refused)]

    def told(self) -> list[Knowledge]:
        told, self.known = self.known, []
        return told

    def log(self) -> list[tuple[int, str]]:
        indices, records = self.volume.scan(self.pubend.stream, 0, 1 << 63)
        return [(i, r.decode()) for i, r in zip(indices, records, strict=True)]
