"""A pubend whose disk answers at once, or when the test says so, and what clients stage at it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from gapless.core.client_messages import Done, Publish, Refused
from gapless.core.effects import Effect, Persist, Send, Tell
from gapless.core.errors import StorageFullError
from gapless.core.events import EventBatch
from gapless.core.identity import ClientName, Instant, ProducerName, TopicName
from gapless.core.transaction_messages import Abort, Commit, Committed, ProducerQuery, Stage
from gapless.knowledge.pubend import Persisted, Pubend
from gapless.knowledge.stages import Staged
from gapless.node.config import Config
from gapless.testing.memory_volume import MemoryVolume
from tests.bounds import so_long_as
from tests.knowledge.notation import PUBEND

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gapless.core.broker_messages import Knowledge
    from gapless.core.messages import Message

ANN, TOPIC, JOB = ClientName("ann"), TopicName("news"), ProducerName("job")
NUMBER = 3


class Teller:
    """One pubend, one client that speaks for all; requests are numbered from 1."""

    def __init__(self, volume: MemoryVolume | None = None, now: int = 0, **limits: Any) -> None:
        limits = {"copy_batches_max": 1, **limits}
        self.limits = limits
        self.volume = volume or MemoryVolume()
        self.now = Instant(now)
        self.pubend = Pubend(PUBEND, NUMBER, self.volume, Config(**limits), self.now)
        self.disk: deque[Persist] = deque()
        self.answers: dict[int, Message] = {}
        self.known: list[Knowledge] = []
        self.request = 0

    def do(self, effects: Iterable[Effect], knowledge: Iterable[Knowledge] = ()) -> None:
        for effect in effects:
            match effect:
                case Persist():
                    self.disk.append(effect)
                case Send(_, message):
                    self.answers[message.request] = message  # type: ignore[attr-defined]
                case Tell(Staged() as message):
                    self.do(self.pubend.transactions.staged(message, self.now))
                case Tell(message):
                    assert isinstance(message, Persisted)
                    self.do(*self.pubend.persisted(message, self.now))
        self.known += knowledge
        self.pubend.check()

    def sync(self, count: int = 1) -> None:
        """The oldest writes end: durable, or without room."""
        for _ in range(count):
            persist = self.disk.popleft()
            try:
                self.volume.commit(persist.writes)
            except StorageFullError:
                self.do(persist.otherwise)
            else:
                self.do(persist.then)

    def sync_all(self) -> None:
        """Until nothing is written any more, and nothing is due."""
        for _ in so_long_as(lambda: self.disk or self.has_more_to_tell):
            if self.has_more_to_tell:
                self.fire(0)
            else:
                self.sync()

    @property
    def has_more_to_tell(self) -> bool:
        due = self.pubend.transactions.deadline
        return due is not None and due <= self.now

    def fire(self, after: int) -> None:
        self.now = Instant(self.now + after)
        effects, knowledge, _ = self.pubend.fire(self.now)
        self.do(effects, knowledge)

    def restart(self) -> Teller:
        self.volume.reopen()
        return Teller(self.volume, self.now, **self.limits)

    def recall(self, spoken: int) -> None:
        """Another broker says that an earlier life had promised everything below."""
        self.do(self.pubend.recall(spoken, self.now))

    # --- what clients ask ------------------------------------------------------------------------

    def stage(
        self,
        text: Iterable[str],
        *,
        part: str = "p",
        position: int = 0,
        number: int = 1,
        producer: str = JOB,
        sync: bool = True,
    ) -> str:
        """Stage one event for each letter; the answer, if the disk is asked to give one."""
        self.request += 1
        events = EventBatch.join(letter.encode() for letter in text)
        message = Stage(TOPIC, self.request, ProducerName(producer), number, part, position, events)
        self.do(self.pubend.transactions.stage(ANN, message, self.now))
        return self._answer(sync)

    def commit(
        self,
        *parts: str,
        number: int = 1,
        producer: str = JOB,
        counts: tuple[int, ...] = (),
        sync: bool = True,
    ) -> str:
        self.request += 1
        message = Commit(TOPIC, self.request, ProducerName(producer), number, parts, counts)
        self.do(self.pubend.commit(ANN, message, self.now))
        return self._answer(sync)

    def abort(self, *, part: str | None = None, number: int = 1, sync: bool = True) -> str:
        self.request += 1
        message = Abort(TOPIC, self.request, JOB, number, part)
        self.do(self.pubend.transactions.abort(ANN, message, self.now))
        return self._answer(sync)

    def last(self, producer: str = JOB) -> int | None:
        query = ProducerQuery(TOPIC, 1, ProducerName(producer))
        (effect,) = self.pubend.transactions.position(ANN, query)
        assert isinstance(effect, Send)
        return effect.message.transaction  # type: ignore[attr-defined, no-any-return]

    def publish(self, text: str, *, sync: bool = True) -> None:
        self.request += 1
        events = EventBatch.join(letter.encode() for letter in text)
        self.do(self.pubend.publish(ANN, Publish(TOPIC, self.request, events), self.now))
        if sync:
            self.sync_all()

    def _answer(self, sync: bool) -> str:
        if sync:
            self.sync_all()
        return self.said(self.request)

    def said(self, request: int) -> str:
        """In short: done, committed N, repeated N, later: why, no: why; empty before the answer."""
        match self.answers.get(request):
            case Done():
                return "done"
            case Committed(count=count, repeated=repeated):
                return f"{'repeated' if repeated else 'committed'} {count}"
            case Refused(problem=problem, retry=retry):
                return f"{'later' if retry else 'no'}: {problem}"
            case _:
                return ""

    # --- what is there ---------------------------------------------------------------------------

    def log(self) -> str:
        return b"".join(self.volume.scan(self.pubend.stream, 0, 1 << 63)[1]).decode()

    def ticks(self) -> list[int]:
        return list(self.volume.scan(self.pubend.stream, 0, 1 << 63)[0])

    def told(self) -> str:
        """All events that were made known, in order."""
        return b"".join(event for each in self.known for event in each.events).decode()

    def staged_records(self) -> int:
        streams = [each for each in self.volume.streams() if each.startswith("stage/")]
        return sum(len(self.volume.scan(each, 0, 1 << 63)[0]) for each in streams)
