"""Transactions: their events are in the log all, once, side by side and in order, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.identity import ClientName
from gapless.core.ticks import PUBEND_BITS
from gapless.core.transaction_messages import FORGOTTEN, Committed
from gapless.testing.checkers.checker import Checker
from gapless.testing.trace import show_tick

if TYPE_CHECKING:
    from gapless.core.identity import PeerName, PubendName
    from gapless.core.messages import Message
    from gapless.node.config import Config
    from gapless.testing.checkers.checker import Broker
    from gapless.testing.ledger import Key
    from gapless.testing.record import Record


class WholeTransactions(Checker):
    """Looks at every event that is logged, and at every answer to a commit. That nothing stays half
    done, and no space is kept, is what the producers wait for at the end."""

    promise = "a transaction as a whole, once"

    def __init__(self, record: Record, config: Config) -> None:
        super().__init__(record, config)
        self._newest: dict[PubendName, Key | None] = {}

    def committed(self, pubend: PubendName, tick: int, encoded: bytes) -> None:
        ledger = self.record.ledger
        key, before = ledger.owner.get(encoded), self._newest.get(pubend)
        self._newest[pubend] = key
        if before is not None and key != before and not ledger.is_whole(before):
            raise self.violated(f"{pubend} {show_tick(tick)} comes amid transaction {before}")
        if key is None:
            return
        logged = ledger.logged.setdefault(key, [])
        if logged and logged[-1][:2] != (pubend, tick - (1 << PUBEND_BITS)):
            raise self.violated(f"{pubend} {show_tick(tick)} of {key} is not beside the last one")
        logged.append((pubend, tick, encoded))
        events = [event for _, _, event in logged]
        if not any(each[: len(events)] == events for each in ledger.candidates(key)):
            raise self.violated(
                f"{pubend} {show_tick(tick)} is event {len(events) - 1} of {key}, "
                f"which was not asked for in {len(ledger.asked.get(key, []))} commits"
            )

    def sent(self, broker: Broker, to: PeerName, message: Message) -> None:
        if not isinstance(message, Committed):
            return
        ledger, told = self.record.ledger, (message.pubend, message.first_tick, message.count)
        key = ledger.requests.get((ClientName(to), message.request))
        if key is None:
            raise self.violated(f"{broker.name} tells {to} of a commit that it never asked for")
        if message.count == FORGOTTEN:
            if not any(other[0] == key[0] and other[1] > key[1] for other in ledger.asked):
                raise self.violated(f"{broker.name} takes {key} for an old one")
            return
        if not message.repeated and key in ledger.answers:
            raise self.violated(f"{broker.name} commits {key} again")
        if ledger.answers.setdefault(key, told) != told:
            raise self.violated(f"{broker.name} says {told} of {key}, and before otherwise")
        if message.count not in map(len, ledger.candidates(key)):
            raise self.violated(f"{broker.name} has {message.count} events in {key}")
        logged = ledger.logged.get(key, [])
        if logged and logged[0][:2] != told[:2]:
            raise self.violated(f"{broker.name} says {told} of {key}, which is elsewhere")
