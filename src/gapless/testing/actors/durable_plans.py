"""Plans of clients with named subscriptions: what each has, how it behaves, where it starts."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING
from zlib import crc32

from gapless.core.identity import SubscriptionName
from gapless.node.directory.registry import registrar_of
from gapless.testing.actors.clients import MILLISECOND
from gapless.testing.clock import START
from gapless.testing.named import Birth

if TYPE_CHECKING:
    import random

    from gapless.core.client_messages import Order, TokenKeeper
    from gapless.core.identity import BrokerName, TopicName
    from gapless.node.network import Network
    from gapless.testing.named import Named
    from gapless.testing.record import Subscription
    from gapless.testing.world import World

TOKENS_KEPT_MAX = 8
"""How many of its old tokens a client may come back with."""


@dataclass(frozen=True, kw_only=True)
class Wish:
    """One named subscription that a client has."""

    name: SubscriptionName
    topic: TopicName
    condition: str
    tokens: TokenKeeper
    order: Order = "publisher"


@dataclass(frozen=True, kw_only=True)
class DurablePlan:
    """How one client behaves; times in microseconds."""

    name: str
    brokers: tuple[BrokerName, ...]
    """Where it connects; the first is where it begins."""
    wishes: tuple[Wish, ...]
    has_anonymous: bool
    pause: int
    """How long it takes over a handful of events."""
    acknowledge_after: int
    change_after: int
    away_max: int


class Phase(Enum):
    """Where a client stands with one of its subscriptions."""

    AWAY = "away"
    ASKED = "asked"
    ATTACHED = "attached"
    LEAVING = "leaving"
    FORGETTING = "forgetting"
    GONE = "gone"


@dataclass(slots=True, eq=False)
class Slot:
    """One named subscription, as its client keeps it."""

    wish: Wish
    phase: Phase = Phase.AWAY
    named: Named | None = None
    session: Subscription | None = None
    home: BrokerName | None = None
    """The broker that last told it where it starts; None before the first."""
    moves: int = 0
    has_gone: bool = False
    """Was it told that its subscription goes on elsewhere?"""
    tokens: deque[dict[str, int]] = field(default_factory=lambda: deque(maxlen=TOKENS_KEPT_MAX))


def draw_birth(world: World, topic: TopicName) -> Birth:
    """Where a new subscription starts; a token is one that another might have held."""
    dice, record = world.dice, world.watch.record
    choice = dice.random()
    if choice < 0.5:
        return Birth()
    if choice < 0.7:
        world.reached["a start with the oldest event"] += 1
        return Birth(at="earliest")
    if choice < 0.85:
        world.reached["a start at an instant"] += 1
        return Birth(at="instant", instant=dice.randint(START, world.now))
    world.reached["a start at a token"] += 1
    ticks = {
        str(pubend): dice.choice([START << 10, *record.logs[pubend].ticks])
        for pubend in record.pubends_of(topic)
    }
    return Birth(at="token", token=ticks)


def returning_token(world: World, slot: Slot, *, has_moved: bool) -> dict[str, int] | None:
    """What a client that comes back shows."""
    assert slot.named
    dice, reached = world.dice, world.reached
    choice = dice.random()
    if has_moved:  # what it says to its new broker counts as acknowledged there
        reached["a client went to another broker"] += 1
        token = slot.named.token
        if choice > 0.7 and slot.tokens:
            reached["a client went to another broker with an old token"] += 1
            token = dice.choice(slot.tokens)
        slot.named.acknowledge(token)
        return token
    has_lost_disk = slot.home in world.watch.record.lost_disks and not is_known(world, slot)
    if choice < (0.7 if slot.wish.tokens == "broker" else 0.1) and not has_lost_disk:
        reached["a client returned without a token"] += 1
        return None
    token = slot.named.token
    if choice > 0.9 and slot.tokens:
        reached["a client returned with an old token"] += 1
        token = dice.choice(slot.tokens)
    if slot.has_gone:  # it may be made anew from here on, as for who has moved
        slot.named.acknowledge(token)
    return token


def is_known(world: World, slot: Slot) -> bool:
    """Does the registrar of a name know that it is at a broker which has lost its disk?"""
    registrar = registrar_of(world.network, slot.wish.name)
    lost_disks = world.watch.record.lost_disks
    return slot.wish.tokens == "broker" and registrar not in (None, slot.home, *lost_disks)


def order_of(wish: Wish) -> Order:
    """Every fourth wish is for total order; no dice are cast for it, so that seeds keep their
    course."""
    return "total" if crc32(f"{wish.name} {wish.condition}".encode()) % 4 == 1 else "publisher"


def draw_durables(
    dice: random.Random, network: Network, conditions: dict[BrokerName, tuple[str, ...]]
) -> tuple[DurablePlan, ...]:
    """Clients with named subscriptions, in most runs; every name is there once."""
    plans: list[DurablePlan] = []
    share = dice.choice((0.0, 0.5, 1.0))
    for broker, texts in conditions.items():
        if dice.random() >= share:
            continue
        for _ in range(dice.choices((1, 2), (3, 1))[0]):
            name = f"D{len(plans) + 1}"
            others = [each for each in conditions if each != broker]
            wishes = tuple(
                Wish(
                    name=SubscriptionName(f"{name}-{number}"),
                    topic=dice.choice(network.topics).name,
                    condition=dice.choice(texts),
                    tokens=dice.choice(("client", "client", "broker")),
                )
                for number in range(dice.choices((1, 2), (2, 1))[0])
            )
            wishes = tuple([replace(each, order=order_of(each)) for each in wishes])
            # One connection cannot be at two brokers that keep tokens.
            moves = dice.choice((0, 0, 1, 2)) * (sum(w.tokens == "broker" for w in wishes) < 2)
            plans.append(
                DurablePlan(
                    name=name,
                    brokers=(broker, *others[:moves]),
                    wishes=wishes,
                    has_anonymous=dice.random() < 0.2,
                    pause=dice.choice((0, 1, 20, 100)) * MILLISECOND,
                    acknowledge_after=dice.choice((20, 100, 1_000)) * MILLISECOND,
                    change_after=dice.choice((30, 150, 500)) * MILLISECOND,
                    away_max=dice.choice((10, 100, 600)) * MILLISECOND,
                )
            )
    return tuple(plans)
