"""Claims: what no broker of the tree can say, found before anything of a batch is believed.

Theory of operation
    A connection proves which broker speaks, not that what it says is so. A broker that says what
    cannot be has another tree than we have, or a fault: `ProtocolError`, so that its link is
    dropped, and nothing has changed. Ways are compared with the part of the tree that is known
    here; brokers further away may be new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.errors import ProtocolError, quoted
from gapless.tree.messages import (
    Carried,
    Joined,
    Losses,
    PublicationRun,
    RunConfirmed,
    RunHeld,
    SubscriptionConfirmed,
    SubscriptionOffer,
    SyncStart,
    TreeWelcome,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gapless.core.identity import BrokerName
    from gapless.tree.messages import CarriedMessage, Edge, Hop, Life, PartitionId, TreeMessage
    from gapless.tree.neighbourhood import Neighbourhood


def check_message(message: TreeMessage, neighbourhood: Neighbourhood, life: Life) -> None:
    """`ProtocolError` if it, or a part of it, cannot be; `life` is that of the receiver."""
    match message:
        case Carried(messages=messages):
            for each in messages:
                _check_carried(each, neighbourhood, life)
        case TreeWelcome(edges=edges):
            _check_edges(edges)
        case _:
            pass


def _check_carried(message: CarriedMessage, neighbourhood: Neighbourhood, life: Life) -> None:
    match message:  # what comes most, first
        case PublicationRun():
            _check_run(message, neighbourhood, life)
        case RunConfirmed(numbers=numbers) | RunHeld(numbers=numbers):
            _check_numbers(numbers)
        case Losses(losses=losses):
            for loss in losses:
                _refuse_if(not loss.through, f"{loss} is of nothing")
        case SubscriptionConfirmed(tags=tags):
            _check_tags(tags)
        case SubscriptionOffer(id=subscription, hops=hops, tags=tags):
            _check_tags(tags)
            if subscription.source != life[0]:  # ours come back: we say whether they have ended
                _check_way(subscription.source, hops, neighbourhood)
        case SyncStart(edges=edges) | Joined(edges=edges):
            _check_edges(edges)
        case _:
            pass  # about what is not known here any more, it says nothing


def _check_run(run: PublicationRun, neighbourhood: Neighbourhood, life: Life) -> None:
    _check_way(run.source, run.hops, neighbourhood)
    is_ours = run.source == life[0] and run.epoch >= life[1]
    _refuse_if(is_ours, f"a run of {run.source!r} came back to where it began")
    _check_numbers(run.numbers)
    for clearing in run.clearings:
        _check_tags((*clearing.removed, *clearing.added))
    events = 0 if run.clearings or run.life else len(run.numbers)
    is_odd = len(run.events) != events or (not events and len(run.numbers) > 1)
    _refuse_if(is_odd, f"{len(run.numbers)} publications have {len(run.events)} events")


def _check_numbers(numbers: tuple[int, ...]) -> None:
    is_wrong = not numbers or numbers[0] < 1 or list(numbers) != sorted(set(numbers))
    _refuse_if(is_wrong, "the numbers of publications do not ascend from 1 on")


def _check_way(source: BrokerName, hops: tuple[Hop, ...], neighbourhood: Neighbourhood) -> None:
    """The way to a source, nearest first, leads there along the tree."""
    _refuse_if(not hops or hops[-1].broker != source, f"the way to {source!r} does not end there")
    way = tuple(hop.broker for hop in hops)
    _refuse_if(neighbourhood.broker in way, f"the way to {source!r} comes back to here")
    for length, broker in enumerate(way, 1):
        if broker in neighbourhood and neighbourhood.path(broker) != way[:length]:
            raise ProtocolError(f"the way to {quoted(source)} is not the tree's: {way}")


def _check_tags(tags: Iterable[PartitionId]) -> None:
    _refuse_if(not all(tag.nodes for tag in tags), "a partition has no broker")


def _check_edges(edges: Iterable[Edge]) -> None:
    for edge in edges:
        _refuse_if(not all(edge), f"the edge {edge} has an end without a name")


def _refuse_if(is_wrong: bool, problem: str) -> None:
    if is_wrong:
        raise ProtocolError(problem)
