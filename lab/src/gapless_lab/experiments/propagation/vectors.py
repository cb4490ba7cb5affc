"""Figure 6: what a message costs when its vector has 2 to 200 elements.

Theory of operation
    pb, one relay, and below it n brokers with subscribers, so that vectors have n elements. Every
    event is wanted at every one of them, twice: by those who stay, and by those who come and go.
    So nothing is filtered and propagation can only cost. At each broker a subscription ends and
    comes again every two seconds: its virtual time goes on by one a second, and each of these
    steps makes a new vector at pb and is announced on every link.
    Counted are the bytes and messages of knowledge from pb to the relay and, timed, the processor
    time of each role with decoding and encoding, for each published event. The rate is the paper's;
    what is short is the virtual time.

Source: Middleware 2004, sec. 5.2, fig. 6 (there n is 1 to 7).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless.core.identity import BrokerName, CellName, TopicName
from gapless.node.network import BrokerEntry, Cell, Network, Topic
from gapless_lab.experiments.meter import SECOND
from gapless_lab.experiments.propagation.setting import Crowd, Listener, Setting

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.core.events import Attributes
    from gapless_lab.experiments.propagation.setting import Scheme

TOPIC = TopicName("quotes")
SOURCE, RELAY = BrokerName("pb"), BrokerName("ib")

KIND_COUNT = 5
"""Subjects that those who stay want, and colours that those who come and go want."""

CHANGE_PERIOD = 2 * SECOND
"""At each broker: a subscription ends, and comes again."""

WARM_S = 0.1


@dataclass(kw_only=True)
class VectorCost:
    """What an event cost with so many brokers of subscribers."""

    scheme: Scheme
    leaves: int
    published: int
    delivered: int
    changes: int
    """Subscriptions that ended and came again while counting."""
    messages: float
    """Of knowledge from pb to the relay, for each event; this and the rest."""
    bytes: float
    cpu_us: dict[str, float]
    """By role: pb, the relay for each broker below it, and a broker of subscribers."""


def star(leaves: int) -> Network:
    relay = CellName(RELAY)
    return Network(
        cells=(
            Cell(CellName(SOURCE), (BrokerEntry(SOURCE),), (relay,)),
            Cell(relay, (BrokerEntry(RELAY),)),
            *(
                Cell(CellName(name), (BrokerEntry(name),), (relay,), subscribers=True)
                for name in leaf_names(leaves)
            ),
        ),
        topics=(Topic(TOPIC, (SOURCE,)),),
    )


def leaf_names(leaves: int) -> list[BrokerName]:
    return [BrokerName(f"sb{number + 1}") for number in range(leaves)]


class Changer:
    """One broker's subscribers who come and go, one at a time, each back at once."""

    def __init__(self, setting: Setting, broker: BrokerName, phase: float) -> None:
        self._world = setting.world
        self.listener = Listener(setting, broker, f"changer at {broker}")
        self.present = [self._subscribe(kind) for kind in range(KIND_COUNT)]
        self.changes = 0
        self._world.after(int(phase * CHANGE_PERIOD), self._change)

    def _subscribe(self, kind: int) -> int:
        return self.listener.subscribe(TOPIC, f"colour = 'C{kind}'")

    def _change(self) -> None:
        kind = self.changes % KIND_COUNT
        self.listener.unsubscribe(self.present[kind])
        self.present[kind] = self._subscribe(kind)
        self.changes += 1
        self._world.after(CHANGE_PERIOD, self._change)


def play_vectors(
    scheme: Scheme,
    leaves: int,
    *,
    events_per_s: int,
    seconds: float,
    seed: int,
    clock: Callable[[], float],
) -> VectorCost:
    setting = Setting(star(leaves), scheme, seed=seed, clock=clock)
    names = leaf_names(leaves)
    steady = [Listener(setting, name, f"steady at {name}") for name in names]
    for listener in steady:
        for kind in range(KIND_COUNT):
            listener.subscribe(TOPIC, f"subject = 'T{kind}'")
    changers = [Changer(setting, name, (i + 0.5) / leaves) for i, name in enumerate(names)]
    setting.play(1)
    assert all(each.is_started for each in steady), "somebody has no start"
    crowd = Crowd(setting, SOURCE, make_event)
    crowd.publish(events_per_s)
    setting.play(WARM_S)
    tallies = setting.tallies
    tallies.weighs = SOURCE
    before = len(crowd.published), arrived(steady), sum(each.changes for each in changers)
    setting.count(seconds)
    after = len(crowd.published), arrived(steady), sum(each.changes for each in changers)
    published = after[0] - before[0]
    cpu_s = {name: machine.cpu_s for name, machine in setting.clocked.items()}
    crowd.publish(0)
    return VectorCost(
        scheme=scheme,
        leaves=leaves,
        published=published,
        delivered=after[1] - before[1],
        changes=after[2] - before[2],
        messages=tallies.weighed / published,
        bytes=tallies.weighed_bytes / published,
        cpu_us={
            "pb": cpu_s[SOURCE] / published * 1e6,
            "ib, for each sb": cpu_s[RELAY] / published / leaves * 1e6,
            "sb": sum(cpu_s[name] for name in names) / published / leaves * 1e6,
        },
    )


def arrived(listeners: list[Listener]) -> int:
    return sum(len(each.arrivals) for each in listeners)


def make_event(number: int) -> tuple[TopicName, Attributes]:
    turn, kind = divmod(number, KIND_COUNT)
    return TOPIC, {"subject": f"T{kind}", "colour": f"C{turn % KIND_COUNT}", "number": number}
