"""Planted faults of brokers that lose their disks; see `planted`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gapless.core.effects import Persist
from gapless.durable.subscriptions import DurableSubscriptions
from gapless.knowledge.pubend import Pubend
from gapless.node.parts import Parts
from gapless.node.promises import Promises

if TYPE_CHECKING:
    from gapless.core.broker_messages import Knowledge, Nack, PromiseTold
    from gapless.core.effects import Effect, Put
    from gapless.core.identity import Instant, PubendName
    from gapless.core.ticks import Span


class TakesCopyAsWhole(Pubend):
    """Believes that the disk it finds is the one that it had last."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given[:6])

    def recall(self, spoken: int, now: Instant) -> list[Effect]:
        return []


class ForgetsBirth(Pubend):
    """Takes everything before its disk was made for silence."""

    def _tell_lost(self, nack: Nack) -> tuple[list[Knowledge], list[Span]]:
        return [], list(nack.spans)


class TrustsCopiedLog(DurableSubscriptions):
    """Believes the filtered log of a copied disk after it was copied."""

    def begin_anew(self, pubend: PubendName, tick: int) -> list[Put]:
        return []


class KeepsNoPromise(Promises):
    """Keeps promises of other hosts in no place that outlives it."""

    def keep(self, told: PromiseTold) -> list[Effect]:
        [kept] = super().keep(told)
        assert isinstance(kept, Persist)
        return [Persist((), kept.then)]


PLANTED_LOSSES: dict[str, Parts] = {
    "takes-copy-as-whole": Parts(pubend=TakesCopyAsWhole),
    "forgets-birth": Parts(pubend=ForgetsBirth),
    "trusts-copied-log": Parts(durable_subscriptions=TrustsCopiedLog),
}

KEEPS_NO_PROMISE = Parts(promises=KeepsNoPromise)
"""Not found by seeds, as disks are sealed there; `tests/node/test_lost_log.py` plants it."""
