"""Planted faults of transactions; see `planted`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from gapless.core.effects import Effect, Put
from gapless.core.identity import Instant
from gapless.core.transaction_messages import Commit
from gapless.knowledge.pubend import Pubend
from gapless.knowledge.transactions import PubendTransactions
from gapless.node.parts import Parts

if TYPE_CHECKING:
    from gapless.core.effects import Write
    from gapless.core.identity import ClientName
    from gapless.core.transaction_messages import Abort
    from gapless.knowledge.stages import Key


class CommitsTwice(PubendTransactions):
    """Takes the last number for a new one."""

    def is_committed(self, key: Key) -> bool:
        return key[0] in self.last and self.last[key[0]][0] > key[1]


class ForgetsProducers(PubendTransactions):
    """Remembers what was committed in memory only."""

    def write(self, log: str, next_tick: int) -> tuple[Write, ...]:
        writes = super().write(log, next_tick)
        return tuple(w for w in writes if not (isinstance(w, Put) and w.table == self.producers))


class ForgetsTheRest(PubendTransactions):
    """Does not go on after a crash."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        if self.copy is not None and self.copy.slot is not None:
            self.stages.reopen(self.copy.key, Instant(0))
        self.copy, self._retry_due = None, None


class PublishesLosers(PubendTransactions):
    """Takes all that was staged for what was to be committed."""

    def commit(self, client: ClientName, message: Commit, owner: str = "") -> list[Effect]:
        slot = self.stages.open_slots.get((message.producer, message.transaction))
        if slot is not None:
            done = [name for name, part in slot.parts.items() if part.accepted == part.count]
            parts = (*message.parts, *sorted({*done} - {*message.parts}))
            message = replace(message, parts=parts, counts=())
        return super().commit(client, message, owner)


class CommitsAborted(PubendTransactions):
    """Mistakes an abort for a commit."""

    def abort(self, client: ClientName, message: Abort, now: Instant) -> list[Effect]:
        slot = self.stages.open_slots.get((message.producer, message.transaction))
        if slot is not None and message.part is None:
            self.commit(
                client,
                Commit(message.topic, message.request, *slot.key, tuple(slot.parts)),
            )
        return super().abort(client, message, now)


def _with(fault: type[PubendTransactions]) -> Parts:
    class Faulty(Pubend):
        make_transactions = fault

    return Parts(pubend=Faulty)


PLANTED_TRANSACTIONS: dict[str, Parts] = {
    "commits-twice": _with(CommitsTwice),
    "forgets-producers": _with(ForgetsProducers),
    "forgets-the-rest": _with(ForgetsTheRest),
    "publishes-losers": _with(PublishesLosers),
    "commits-aborted": _with(CommitsAborted),
}
