"""DeadLetters: what a group gives up goes to another topic, once, with why.

Theory of operation
    One letter at a time. The group publishes under a publisher's name of its own, at the first
    pubend of the dead-letter topic that is hosted here. It asks for the next number of that name
    once in the life of the broker. The event that gets the number is written down; when that is
    durable, the copy is published under it; when that is durable too, the event is finished.
    After a crash the pubend knows whether the number was used: then the event is finished at once.
    Whatever is refused is tried again later, from the question on.

Source: docs/protocols/groups.md, 3.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.client_messages import (
    Publish,
    PublisherPosition,
    PublisherQuery,
    Receipt,
    Refused,
)
from gapless.core.events import EventBatch
from gapless.core.identity import Instant, PublisherName
from gapless.node.groups.member_group import Letter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.core.effects import Effect
    from gapless.core.events import Attributes
    from gapless.core.identity import ClientName, PubendName
    from gapless.durable.subscriptions import Definition
    from gapless.knowledge.pubend import Pubend
    from gapless.node.context import Context
    from gapless.node.groups.lane import OpenEvent
    from gapless.node.groups.member_group import MemberGroup
    from gapless.node.network import Topic

OPENING = 1
"""Each broker life takes the publisher's name over in the same way, so that its term stays."""


def hosted_pubends(topic: Topic, pubends: Mapping[PubendName, Pubend]) -> list[Pubend]:
    """The pubends of a topic that are hosted here."""
    return [pubends[each.name] for each in topic.pubends if each.name in pubends]


class DeadLetters:
    """The dead letters of one group. `sender` is the name under which the group gets answers."""

    def __init__(
        self,
        context: Context,
        pubends: Mapping[PubendName, Pubend],
        group: MemberGroup,
        definition: Definition,
        sender: ClientName,
    ) -> None:
        self.deadline: Instant | None = None
        self._context = context
        self._pubends = pubends
        self._group = group
        self._definition = definition
        self._sender = sender
        name = f"dead letters of group {sender.rpartition(' ')[2]} at {context.name}"
        self._publisher = PublisherName(name.encode()[:255].decode(errors="ignore"))
        self._place: tuple[int, int] | None = None  # the next number of that name, and its term
        self._request = 0  # answers of earlier requests do not count
        self._is_asking = False
        self._durable_letter = group.letter
        self._written_letter: Letter | None = None

    # --- the write of the group's fact ------------------------------------------------------------

    def encoded(self) -> None:
        """The group's fact is being written, as it is now."""
        self._written_letter = self._group.letter

    def written(self) -> None:
        """That write is durable."""
        self._durable_letter = self._written_letter

    # --- one letter at a time ---------------------------------------------------------------------

    def go_on(self, now: Instant) -> list[Effect]:
        """Do the next step for the first event that is dying, unless an answer is awaited."""
        if self._is_asking or not self._group.dying:
            return []
        if self.deadline is not None and now < self.deadline:
            return []
        self.deadline = None
        name = self._definition.dead_letters
        assert name is not None, "only a group with dead letters gives events up"
        topic = self._context.network.topic.get(name)
        hosted = hosted_pubends(topic, self._pubends) if topic is not None else []
        if not hosted:
            return self._retry(now)
        if self._place is None:
            return self._ask_place(hosted[0], now)
        event, letter = self._address(self._place[0]), self._group.letter
        if event is None or letter is None or letter != self._durable_letter:
            return []  # its write is on the way
        if letter.number < self._place[0]:
            self._group.bury(event)
            return self.go_on(now)
        return self._publish(hosted[0], event, now)

    def _address(self, number: int) -> OpenEvent | None:
        """The event whose letter is under way, or the next, which gets this number. None: the
        former has not come again since the feed began."""
        group, letter = self._group, self._group.letter
        event = next(iter(group.dying))
        if letter is not None:
            progress = group.progress[letter.pubend]
            if letter.tick in progress.open:
                event = progress.open[letter.tick]
                if letter.number <= number:
                    return event  # or else the pubend has forgotten the name: begin anew
            elif letter.tick >= progress.through:
                return None
        group.address(Letter(event.pubend, event.tick, number))
        return event

    def _ask_place(self, pubend: Pubend, now: Instant) -> list[Effect]:
        topic = self._context.network.pubends[pubend.name].topic
        query = PublisherQuery(self._next_request(), topic, self._publisher, OPENING)
        return pubend.position(self._sender, query, now, self._definition.owner)

    def _publish(self, pubend: Pubend, event: OpenEvent, now: Instant) -> list[Effect]:
        assert self._place is not None
        topic, (number, term) = self._context.network.pubends[pubend.name].topic, self._place
        events = EventBatch((self._copy(event),))
        request = self._next_request()
        message = Publish(topic, request, events, self._publisher, number, term)
        return pubend.publish(self._sender, message, now, self._definition.owner)

    def _copy(self, event: OpenEvent) -> bytes:
        attempts = self._group.attempts(event)
        why: Attributes = {
            "dead_letter_subscription": self._definition.name,
            "dead_letter_topic": self._definition.topic,
            "dead_letter_pubend": event.pubend,
            "dead_letter_tick": event.tick,
            "dead_letter_attempts": attempts.number,
            "dead_letter_reason": attempts.reason,
        }
        extend = self._context.encoding.extend
        return extend(event.encoded, why) if extend is not None else event.encoded

    def _next_request(self) -> int:
        self._is_asking = True
        self._request += 1
        return self._request

    def _retry(self, now: Instant) -> list[Effect]:
        self._place = None
        self.deadline = Instant(now + self._context.config.storage_retry)
        return []

    def receive(self, message: Receipt | PublisherPosition | Refused, now: Instant) -> None:
        """The answer of the pubend; `go_on` follows."""
        if message.request != self._request:
            return
        self._is_asking = False
        match message:
            case PublisherPosition(sequence=sequence, term=term):
                self._place = sequence, term
            case Receipt():
                assert self._place is not None
                self._place = self._place[0] + 1, self._place[1]
            case Refused():
                self._retry(now)
