"""Rare situations: what a swarm should have met, counted, so that one can see what it never met.

Most are counted where they happen (links, disks, clients); those that only show between brokers
are recognised here, from the messages. `EXPECTED` names all, so that a zero is seen as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.broker_messages import (
    AckExpected,
    DigestNack,
    HandOver,
    Knowledge,
    Nack,
    Propagated,
    Purpose,
    Sideways,
    StartReply,
    SubscriptionChange,
    SubscriptionNack,
    SubscriptionState,
)
from gapless.core.client_messages import (
    CaughtUp,
    Done,
    Ended,
    FellBehind,
    Lost,
    Receipt,
    Subscribed,
)
from gapless.core.identity import BrokerName, ClientName
from gapless.testing.checkers.checker import Checker

if TYPE_CHECKING:
    from collections import Counter

    from gapless.core.identity import CellName, PeerName, PubendName
    from gapless.core.messages import Message
    from gapless.node.config import Config
    from gapless.testing.checkers.checker import Broker
    from gapless.testing.record import Record

EXPECTED = (
    "a message came twice",
    "a message was overtaken",
    "a stalled link let go what it held",
    "a stalled link swallowed what it held",
    "several writes in one commit",
    "durable, but nobody was told",
    "a torn write was cut",
    "the disk was full",
    "a sync failed",
    "a host lost what it knew of subscriptions",
    "a broker found an empty disk",
    "a broker found an older copy",
    "a publisher lost patience",
    "a publication was refused for a while",
    "a publisher was sent to another broker",
    "a publisher's name was opened",
    "a publisher whose name was taken over was refused",
    "a founder was sent to another broker",
    "createtopic done",
    "createtopic refused for good",
    "deletetopic done",
    "an anonymous publisher never knew",
    "a repeat recognised",
    "a repeat recognised after a restart",
    "a repeat recognised, its tick forgotten",
    "a slow subscriber was sent away",
    "a subscription in total order",
    "a nack",
    "a nack for several spans",
    "a nack answered from a cache",
    "a nack answered by the pubend",
    "an answer with several events",
    "scattered events in one answer",
    "another member of a cell took over",
    "a message went sideways",
    "a start query answered",
    "an acknowledgement expected",
    "a log was chopped",
    "silence ahead of the clock",
    "a change of subscriptions",
    "a change that removed",
    "a change came from a sibling",
    "all subscriptions told at once",
    "subscriptions asked for",
    "subscriptions went sideways",
    "a vector asked for",
    "an event was filtered",
    "an event passed because too little was known",
    "a subscription started ahead of what is settled",
    "a start with the oldest event",
    "a start at an instant",
    "a start at a token",
    "a client returned without a token",
    "a client returned with an old token",
    "a client returned after its broker had crashed",
    "a client came twice",
    "a client went to another broker",
    "a client went to another broker with an old token",
    "a client came without knowing where it was",
    "a client was sent to its subscription",
    "a subscription was handed over",
    "more was acknowledged where it was than its token said",
    "a named subscription was taken over",
    "a named subscription was forgotten",
    "a named subscription was refused for a while",
    "an acknowledgement was assured",
    "behind from the start",
    "a subscription fell behind",
    "a subscription caught up",
    "a subscription is behind and level at once",
    "a loss was told",
    "a question to catch up",
    "a question for all there was",
    "an event was released early",
    "a producer lost patience",
    "a producer was refused for a while",
    "a part was left half staged",
    "a producer forgot what it had staged",
    "a transaction was aborted",
    "a transaction had expired",
    "a repeated commit was recognised",
    "a commit was repeated with other parts",
    "an abort came after the commit",
    "a broker crashed right after a commit",
)


PLAIN: dict[type[Message], str] = {
    StartReply: "a start query answered",
    AckExpected: "an acknowledgement expected",
    SubscriptionState: "all subscriptions told at once",
    SubscriptionNack: "subscriptions asked for",
    DigestNack: "a vector asked for",
    CaughtUp: "a subscription caught up",
    FellBehind: "a subscription fell behind",
    Lost: "a loss was told",
    Done: "an acknowledgement was assured",
    HandOver: "a subscription was handed over",
}
"""What is recognised by the kind of a message alone."""


ASKED = {
    Purpose.DELIVERY: "a nack",
    Purpose.CATCH_UP: "a question to catch up",
    Purpose.WHOLE: "a question for all there was",
}


class Situations(Checker):
    """Watches messages and counts; never objects."""

    promise = "(counts only)"

    def __init__(self, record: Record, config: Config, reached: Counter[str]) -> None:
        super().__init__(record, config)
        self._reached = reached
        self._chosen: dict[tuple[str, str, CellName], PeerName] = {}
        self._receipted: dict[tuple[PubendName, int], None] = {}
        self._attached_to: dict[str, int] = {}

    def sent(self, broker: Broker, to: PeerName, message: Message) -> None:
        reached = self._reached
        match message:
            case Knowledge():
                self._knowledge(broker, to, message)
            case Nack(_, spans, _, purpose):
                reached[ASKED[purpose]] += 1
                if len(spans) > 1:
                    reached["a nack for several spans"] += 1
            case Sideways(message=inner):
                reached["a message went sideways"] += 1
                if isinstance(inner, Propagated):
                    reached["subscriptions went sideways"] += 1
            case SubscriptionChange():
                self._change(broker, to, message)
            case Receipt():
                self._receipt(broker, message)
            case Subscribed():
                self._subscribed(broker, ClientName(to), message)
            case HandOver(ahead=True):
                reached["more was acknowledged where it was than its token said"] += 1
            case Ended(_, problem) if "taken over" in problem:
                reached["a named subscription was taken over"] += 1
            case _ if type(message) in PLAIN:
                reached[PLAIN[type(message)]] += 1
            case _:
                pass

    def _subscribed(self, broker: Broker, to: ClientName, message: Subscribed) -> None:
        subscription = self.record.subscriptions.get((to, message.subscription))
        if subscription is None:
            return
        reached = self._reached
        if subscription.order == "total":
            reached["a subscription in total order"] += 1
        if message.behind:
            reached["behind from the start"] += 1
            if len(message.behind) < len(message.start):
                reached["a subscription is behind and level at once"] += 1
        if named := subscription.named:
            before = self._attached_to.setdefault(named.name, broker.incarnation)
            if before != broker.incarnation:
                reached["a client returned after its broker had crashed"] += 1
            self._attached_to[named.name] = broker.incarnation

    def _change(self, broker: Broker, to: PeerName, change: SubscriptionChange) -> None:
        self._reached["a change of subscriptions"] += 1
        if change.removed:
            self._reached["a change that removed"] += 1
        cell_of = self.record.network.cell_of
        if cell_of[broker.name] is cell_of[BrokerName(to)]:
            self._reached["a change came from a sibling"] += 1

    def sampled(self, broker: Broker) -> None:
        topics = broker.statistics().get("topics", {})
        assert isinstance(topics, dict)
        for figures in topics.values():
            self._reached["an event was filtered"] += bool(figures["filtered"])
            self._reached["an event passed because too little was known"] += bool(
                figures["flooded"]
            )
            self._reached["a subscription started ahead of what is settled"] += bool(
                figures["started_ahead"]
            )

    def _knowledge(self, broker: Broker, to: PeerName, message: Knowledge) -> None:
        if message.requested:
            from_log = self._is_host(broker, message)
            where = "by the pubend" if from_log else "from a cache"
            self._reached[f"a nack answered {where}"] += 1
            if len(message.ticks) > 1:
                self._reached["an answer with several events"] += 1
            self._reached["scattered events in one answer"] += message.scattered
            return
        cell = self.record.network.cell_of[BrokerName(to)].name
        before = self._chosen.get((broker.name, message.pubend, cell))
        if before is not None and before != to:
            self._reached["another member of a cell took over"] += 1
        self._chosen[broker.name, message.pubend, cell] = to
        if self._is_host(broker, message) and message.span.end >> 10 > broker.now:
            self._reached["silence ahead of the clock"] += 1

    def _is_host(self, broker: Broker, message: Knowledge) -> bool:
        pubend = self.record.network.pubends.get(message.pubend)
        return pubend is not None and pubend.host == broker.name

    def _receipt(self, broker: Broker, message: Receipt) -> None:
        for tick in message.ticks:
            if tick < 0:
                self._reached["a repeat recognised, its tick forgotten"] += 1
                continue
            committed = self.record.committed_at.get((message.pubend, tick), broker.incarnation)
            if committed != broker.incarnation:
                self._reached["a repeat recognised after a restart"] += 1
            elif (message.pubend, tick) in self._receipted:
                self._reached["a repeat recognised"] += 1
            self._receipted[message.pubend, tick] = None

    def finished(self) -> None:
        self._reached["an event was released early"] += self.record.early_releases
        if any(log.chopped for log in self.record.logs.values()):
            self._reached["a log was chopped"] += 1
