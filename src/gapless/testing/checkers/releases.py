"""Releases: nothing leaves a pubend's log that a named subscription has not acknowledged, durably.

Statement: when a log is chopped, every event that goes was acknowledged by every subscription that
some broker's disk has (or was logged before that broker knew of it); unless the topic's retention
policy gives it up. What a disk has as acknowledged, its client has said; and a client is told that
an acknowledgement is durable only when its broker's disk has it.

An answer may come after the subscription was ended, and may have begun anew under the same name:
of one that was ended nothing is kept, so that all it has acknowledged is.

What brokers have on their disks is seen as it is written. A subscription that is handed over is on
two disks for a while, and both count.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless.core.client_messages import Done
from gapless.core.effects import Chop, Delete, Put
from gapless.core.identity import ClientName, PubendName
from gapless.core.ticks import PUBEND_BITS
from gapless.testing.checkers.checker import Checker
from gapless.testing.trace import show_tick

if TYPE_CHECKING:
    from gapless.core.effects import Write
    from gapless.core.identity import BrokerName, PeerName
    from gapless.core.messages import Message
    from gapless.node.config import Config
    from gapless.testing.checkers.checker import Broker
    from gapless.testing.record import Record

RELEASED = "released"
"""The table in which a broker keeps how far each of its subscriptions has acknowledged."""

LOG = "log/"


@dataclass(slots=True)
class Kept:
    """What a disk has of one subscription, and what was logged before it had it."""

    first: dict[str, int]
    released: dict[str, int]
    held_from: dict[str, int]


class Releases(Checker):
    """Follows the disks, and looks at every chop."""

    promise = "released only when acknowledged"

    def __init__(self, record: Record, config: Config) -> None:
        super().__init__(record, config)
        self._kept: dict[tuple[BrokerName, str], Kept] = {}
        self._moot: set[tuple[ClientName, int]] = set()  # requests of subscriptions that ended

    def written(self, broker: Broker, write: Write) -> None:
        match write:
            case Put(table, name, value) if table == RELEASED:
                self._put((broker.name, name), json.loads(value))
            case Delete(table, name) if table == RELEASED:
                self._kept.pop((broker.name, name), None)
                promised = self.record.promised
                self._moot.update(key for key, (named, _) in promised.items() if named.name == name)
            case Chop(stream, index) if stream.startswith(LOG):
                self._chop(broker, PubendName(stream.removeprefix(LOG)), index)
            case _:
                pass

    def replaced(self, broker: Broker) -> None:
        """What counts is what the disk has that the broker is given."""
        for key in [key for key in self._kept if key[0] == broker.name]:
            fact = broker.store.get(RELEASED, key[1])
            if fact is None:
                del self._kept[key]
            else:
                self._kept[key].released = json.loads(fact)

    def _put(self, key: tuple[BrokerName, str], token: dict[str, int]) -> None:
        kept = self._kept.get(key)
        if kept is None:
            logs = self.record.logs
            ends = {str(name): (log.ticks or [-1])[-1] + 1 for name, log in logs.items()}
            self._kept[key] = Kept(token, token, ends)
            return
        kept.released = token
        said = self.record.acknowledged(key[1])
        for pubend, tick in token.items():
            kept.first.setdefault(pubend, tick)  # it has found the oldest event that is kept
            if self.record.looks_for_start(key[1]):  # and does so anew, while no client was told
                kept.first[pubend] = max(kept.first[pubend], tick)
            if tick > max(kept.first.get(pubend, 0), said.get(PubendName(pubend), 0)):
                raise self.violated(
                    f"{key[0]} has it that {key[1]} acknowledged {pubend} {show_tick(tick)}, which "
                    f"it never did"
                )

    def sent(self, broker: Broker, to: PeerName, message: Message) -> None:
        if not isinstance(message, Done) or (ClientName(to), message.request) in self._moot:
            return
        named, token = self.record.promised.get((ClientName(to), message.request), (None, {}))
        kept = self._kept.get((broker.name, named.name)) if named else None
        for pubend, tick in token.items():
            if kept and kept.released.get(pubend, 0) < tick:
                raise self.violated(
                    f"{broker.name} assures {named} that {pubend} {show_tick(tick)} is durable, "
                    f"when its disk has {show_tick(kept.released.get(pubend, 0))}"
                )

    def _chop(self, broker: Broker, pubend: PubendName, index: int) -> None:
        if pubend not in self.record.logs:
            return  # of a topic without events, which was deleted
        log, topic = self.record.logs[pubend], self.record.network.pubends[pubend].topic
        gone = log.between(log.chopped, index)
        if gone and not self._is_given_up(broker, pubend, gone):
            self._check_kept(broker, pubend, gone)
        for (holder, name), kept in self._kept.items():
            if not self.record.is_of(name, topic):
                continue
            start = max(kept.released.get(pubend, 0), kept.held_from[pubend], log.chopped)
            gone = log.between(start, index)
            if gone and not self._is_given_up(broker, pubend, gone):
                raise self.violated(
                    f"{broker.name} chops {pubend} at {show_tick(index)}; {name} at {holder} has "
                    f"not acknowledged {show_tick(gone[0])}"
                )
            self.record.early_releases += bool(gone)

    def _check_kept(self, broker: Broker, pubend: PubendName, gone: list[int]) -> None:
        """What the topic keeps for everybody is there, whoever has acknowledged it."""
        log = self.record.logs[pubend]
        policy = self.record.network.topic[self.record.network.pubends[pubend].topic]
        young = broker.now - (policy.keep_us or 0)
        is_timed = policy.keep_us is not None and not broker.clock_jumps
        if is_timed and gone[-1] >> PUBEND_BITS >= young:
            raise self.violated(
                f"{broker.name} chops {pubend} {show_tick(gone[-1])}, which is younger than "
                f"{policy.keep_us} µs"
            )
        left = sum(len(log.events[tick]) for tick in log.between(gone[-1] + 1, 1 << 63))
        if policy.keep_bytes is not None and left < policy.keep_bytes:
            raise self.violated(
                f"{broker.name} leaves {left} bytes of {pubend}, which keeps {policy.keep_bytes}"
            )

    def _is_given_up(self, broker: Broker, pubend: PubendName, gone: list[int]) -> bool:
        """Does the topic's policy let these go before they are acknowledged?"""
        log = self.record.logs[pubend]
        policy = self.record.network.topic[self.record.network.pubends[pubend].topic]
        if policy.retention_us is not None:
            is_old = gone[-1] >> PUBEND_BITS < broker.now - policy.retention_us
            if is_old or broker.clock_jumps:  # it may have been old when it was decided
                return True
        if policy.retention_bytes is None:
            return False
        # The size of a log is kept to the batch of one write: what is gone of one still counts.
        batch = [tick for tick in log.ticks if tick < gone[0]][-self.record.largest_request * 8 :]
        size = sum(len(log.events[tick]) for tick in (*batch, *log.between(gone[0], 1 << 63)))
        return size > policy.retention_bytes
