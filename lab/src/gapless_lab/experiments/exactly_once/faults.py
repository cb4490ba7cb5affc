"""The faults of the experiments: a link that stalls, a relay or the host of pubends that crashes.

Each strikes at once, arranges its own end after `fault_s`, and says which streams pass there, as
the meter saw them pass until then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.identity import BrokerName, PubendName
from gapless_lab.experiments.exactly_once.fault_run import Struck
from gapless_lab.experiments.exactly_once.layout import (
    HOST,
    LOWER,
    TOPICS,
    UPPER,
    subscriber_hosts,
)
from gapless_lab.experiments.meter import SECOND

if TYPE_CHECKING:
    from gapless.testing.world import World
    from gapless_lab.experiments.exactly_once.fault_run import Plan
    from gapless_lab.experiments.meter import Meter


def stall_to_host(world: World, meter: Meter, plan: Plan) -> Struck:
    """The link that brings `rates` to the first subscriber host moves nothing, either way."""
    host = subscriber_hosts(plan.host_count)[0]
    sender = carrier(meter, LOWER, (host,))[0]
    stall(world, plan, sender, host)
    return Struck(
        f"link {sender} – {host} stalls",
        [(host, topic) for topic in topics_on(meter, sender, host)],
    )


def stall_between_cells(world: World, meter: Meter, plan: Plan) -> Struck:
    """The link that brings `rates` from the upper to the lower cell moves nothing, either way."""
    sender, receiver = carrier(meter, UPPER, LOWER)
    stall(world, plan, sender, receiver)
    return Struck(
        f"link {sender} – {receiver} stalls",
        [
            (host, topic)
            for topic in topics_on(meter, sender, receiver)
            for host in subscriber_hosts(plan.host_count)
        ],
    )


def stall(world: World, plan: Plan, one: BrokerName, other: BrokerName) -> None:
    """What is sent meanwhile never arrives, and neither end is told."""
    for pair in ((one, other), (other, one)):
        world.links.stall(*pair, swallows=True)
        world.after(int(plan.fault_s * SECOND), world.links.release, *pair)


def crash_relay(world: World, meter: Meter, plan: Plan) -> Struck:
    """The relay that carries `rates` stops, and comes back with nothing."""
    relay = carrier(meter, UPPER, LOWER)[0]
    topics = {topic for below in LOWER for topic in topics_on(meter, relay, below)}
    world.processes[relay].crash(int(plan.fault_s * SECOND))
    return Struck(
        f"relay {relay} is down",
        [(host, topic) for topic in sorted(topics) for host in subscriber_hosts(plan.host_count)],
    )


def crash_host(world: World, _meter: Meter, plan: Plan) -> Struck:
    """The broker that hosts both pubends stops, and comes back with what its disk has."""
    world.processes[HOST].crash(int(plan.fault_s * SECOND))
    return Struck(
        f"pubend host {HOST} is down",
        [(host, topic) for topic in TOPICS for host in subscriber_hosts(plan.host_count)],
    )


def carrier(
    meter: Meter, senders: tuple[BrokerName, ...], receivers: tuple[BrokerName, ...]
) -> tuple[BrokerName, BrokerName]:
    """Of the links between these, the one on which most `rates` went."""
    pubend = PubendName(f"{TOPICS[0]}/0")
    pairs = [(one, other) for one in senders for other in receivers]
    return max(pairs, key=lambda pair: meter.carried[pair, pubend])


def topics_on(meter: Meter, sender: BrokerName, receiver: BrokerName) -> list[str]:
    return [topic for topic in TOPICS if meter.carried[(sender, receiver), f"{topic}/0"]]
