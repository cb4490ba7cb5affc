"""Figure 4: processor time under flooding and under propagation, with ever more publishers.

Theory of operation
    The paper's network: four machines for publishers and one for subscribers. Each is a broker in
    a cell of its own and a member of the cell between them, here two nodes on one machine: pb1 and
    n1, and so on. Topics are named so that what is published on a machine goes by its own member.
    Subscriptions are to one publisher each and all there before counting begins; then publishers
    publish at their full rate for a short virtual time. Each size has a network of its own: in one
    that has played for a while, the same load takes longer.
    Utilisation is processor time over virtual time, by the cost model on what was counted and,
    beside it, as the played nodes were timed. Brokers with publishers may host subscribers too,
    though none come: so flooding reaches them, as in the paper.

Source: Middleware 2004, sec. 5.2, fig. 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless.core.identity import BrokerName, CellName
from gapless.node.network import BrokerEntry, Cell, Network, Topic
from gapless_lab.experiments.propagation.setting import Crowd, Listener, Setting
from gapless_lab.experiments.propagation.tally import Tally
from gapless_lab.experiments.propagation.ways import name_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gapless.core.events import Attributes
    from gapless.core.identity import TopicName
    from gapless_lab.experiments.propagation.costs import Costs
    from gapless_lab.experiments.propagation.setting import Scheme

PUBLISHERS = tuple(BrokerName(f"pb{number}") for number in (1, 2, 3, 4))
SUBSCRIBERS = BrokerName("sb")
MACHINES = (*PUBLISHERS, SUBSCRIBERS)
BETWEEN = tuple(BrokerName(f"n{number}") for number in (1, 2, 3, 4, 5))

CENTRE = CellName("between")
CELLS = (
    Cell(CENTRE, tuple(map(BrokerEntry, BETWEEN))),
    *(Cell(CellName(name), (BrokerEntry(name),), (CENTRE,), subscribers=True) for name in MACHINES),
)
TOPICS = tuple(
    name_topic("sensors", CELLS, machine, CENTRE, {(): member})
    for machine, member in zip(PUBLISHERS, BETWEEN, strict=False)
)
"""That of machine 1, 2, ...; each goes by its own machine's member."""

EVENTS_PER_PUBLISHER_S = 2
CONNECTION_COUNT = 4
WARM_S = 0.1
"""How long the rate is played before counting."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One number of publishers under one scheme."""

    scheme: Scheme
    publishers: int
    published: int
    """While counting, and so on."""
    delivered: int
    to_subscribers: int
    """Events that reached the broker of the subscribers."""
    seconds: float
    tallies: dict[str, Tally]
    """By machine."""
    measured_cpu_s: dict[str, float]
    """By machine: what the played nodes took."""

    def utilisation(self, machines: Sequence[str], costs: Costs) -> float:
        """Share of one processor by the model, on average over these machines."""
        total = sum(costs.cpu_s(self.tallies[each]) for each in machines)
        return total / len(machines) / self.seconds

    def measured(self, machines: Sequence[str]) -> float:
        return sum(self.measured_cpu_s[each] for each in machines) / len(machines) / self.seconds

    def per_event(self, of: Callable[[Tally], int]) -> float:
        """A count of all machines, for each published event."""
        return sum(map(of, self.tallies.values())) / self.published


def load_network() -> Network:
    hosts = zip(TOPICS, PUBLISHERS, strict=True)
    return Network(cells=CELLS, topics=tuple(Topic(topic, (host,)) for topic, host in hosts))


def machine_of() -> dict[BrokerName, str]:
    pairs = zip(MACHINES, BETWEEN, strict=True)
    return {name: machine for machine, other in pairs for name in (machine, other)}


def condition(publisher: int) -> str:
    return f"publisher = 'p{publisher}'"


def play_load(
    scheme: Scheme,
    publishers: int,
    *,
    subscriptions: int,
    seconds: float,
    seed: int,
    clock: Callable[[], float],
) -> Point:
    setting = Setting(load_network(), scheme, seed=seed, clock=clock, machine_of=machine_of())
    listeners = [
        Listener(setting, SUBSCRIBERS, f"listener {number}") for number in range(CONNECTION_COUNT)
    ]
    for publisher in range(subscriptions):
        topic = TOPICS[publisher % len(TOPICS)]
        listener = listeners[publisher // len(TOPICS) % CONNECTION_COUNT]
        listener.subscribe(topic, condition(publisher))
    setting.play(2)
    assert all(each.is_started for each in listeners), "somebody has no start"
    crowds = [make_crowd(setting, place, publishers) for place in range(len(TOPICS))]
    for crowd in crowds:
        crowd.publish(publishers / len(TOPICS) * EVENTS_PER_PUBLISHER_S)
    setting.play(WARM_S)
    before = sum(len(each.published) for each in crowds), arrived(listeners)
    setting.count(seconds)
    after = sum(len(each.published) for each in crowds), arrived(listeners)
    places = machine_of()
    tallies = dict.fromkeys(map(str, MACHINES), Tally())
    cpu_s = dict.fromkeys(map(str, MACHINES), 0.0)
    for name, machine in places.items():
        tallies[machine] = tallies[machine] + setting.tallies.of(name)
        cpu_s[machine] += setting.clocked[name].cpu_s
    return Point(
        scheme=scheme,
        publishers=publishers,
        published=after[0] - before[0],
        delivered=after[1] - before[1],
        to_subscribers=tallies[SUBSCRIBERS].events_in,
        seconds=seconds,
        tallies=tallies,
        measured_cpu_s=cpu_s,
    )


def make_crowd(setting: Setting, place: int, publishers: int) -> Crowd:
    """Publishers `place`, `place` + 4, ...: those of one machine, well mixed."""
    here, topic = list(range(place, publishers, len(TOPICS))), TOPICS[place]
    setting.world.dice.shuffle(here)

    def make(number: int) -> tuple[TopicName, Attributes]:
        return topic, {"publisher": f"p{here[number % len(here)]}", "number": number}

    return Crowd(setting, PUBLISHERS[place], make, name=f"{publishers} publishers, {topic}")


def arrived(listeners: list[Listener]) -> int:
    return sum(len(each.arrivals) for each in listeners)
