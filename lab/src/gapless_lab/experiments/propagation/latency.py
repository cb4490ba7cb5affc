"""Figure 5: how long an event takes, and how long until a subscription counts, over 1 to 7 hops.

Theory of operation
    A chain: pb, some cells of one broker each, sb. Sixteen subjects; steady subscribers hold
    eight of them. Others come and go all the time: to the same eight subjects, where a start is
    found at sb (local), and one to each of the other eight, where the subscription must go to pb
    and come back in the vector of a message (global). Delivery latency is from publication to
    delivery, delivery start from the request to the answer that the subscription counts. The paper
    has the first event instead, which is noted too.
    What takes time is links and disk; handling takes none here.

Source: Middleware 2004, sec. 5.2, fig. 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from gapless.core.identity import BrokerName, CellName, TopicName
from gapless.node.network import BrokerEntry, Cell, Network, Topic
from gapless_lab.experiments.meter import SECOND
from gapless_lab.experiments.propagation.setting import PROPAGATION, Crowd, Listener, Setting

if TYPE_CHECKING:
    from gapless.core.events import Attributes
    from gapless.core.identity import Instant

TOPIC = TopicName("quotes")
SOURCE, HOST = BrokerName("pb"), BrokerName("sb")

SUBJECT_COUNT = 16
HELD_COUNT = 8
"""Subjects that somebody subscribes to all the time."""

STEADY_COUNT = 60
HOLD = 2 * SECOND // 5
"""How long one who comes and goes stays, and stays away, in microseconds: this to thrice this."""

WARM_S = 0.3


@dataclass(frozen=True, kw_only=True)
class Latency:
    """What was measured over a chain with so many cells between its ends."""

    hops: int
    published: int
    digest: str
    delivery_ms: list[float]
    local_start_ms: list[float]
    global_start_ms: list[float]
    local_first_ms: list[float]
    global_first_ms: list[float]

    def medians_ms(self) -> dict[str, float]:
        names = ("delivery", "local_start", "global_start", "local_first", "global_first")
        return {name: median(getattr(self, f"{name}_ms")) for name in names}


def chain(hops: int) -> Network:
    names = [SOURCE, *(BrokerName(f"ib{number + 1}") for number in range(hops)), HOST]
    return Network(
        cells=tuple(
            Cell(
                CellName(name),
                (BrokerEntry(name),),
                (CellName(names[place - 1]),) if place else (),
                subscribers=name == HOST,
            )
            for place, name in enumerate(names)
        ),
        topics=(Topic(TOPIC, (SOURCE,)),),
    )


def condition(subject: int) -> str:
    return f"subject = 'T{subject}'"


class Comer:
    """Subscribes to one subject, stays, goes, and comes again."""

    def __init__(self, setting: Setting, subject: int, name: str) -> None:
        self._world = setting.world
        self._condition = condition(subject)
        self.listener = Listener(setting, HOST, name)
        self.listener.on_start = self._stay
        setting.world.after(setting.world.dice.randrange(2 * HOLD), self._come)

    def _pause(self) -> int:
        return HOLD + self._world.dice.randrange(2 * HOLD)

    def _come(self) -> None:
        self.listener.subscribe(TOPIC, self._condition)

    def _stay(self, number: int) -> None:
        self._world.after(self._pause(), self._go, number)

    def _go(self, number: int) -> None:
        self.listener.unsubscribe(number)
        self._world.after(self._pause(), self._come)

    def waits_ms(self, ends: dict[int, Instant], begin: Instant) -> list[float]:
        """From each request since then to this end of it."""
        asked = self.listener.asked
        return [(end - asked[n]) / 1000 for n, end in sorted(ends.items()) if asked[n] >= begin]


def play_latency(hops: int, *, events_per_s: int, seconds: float, seed: int) -> Latency:
    """`events_per_s` are those of all subjects together."""
    setting = Setting(chain(hops), PROPAGATION, seed=seed)
    steady = Listener(setting, HOST, "steady")
    for number in range(STEADY_COUNT):
        steady.subscribe(TOPIC, condition(number % HELD_COUNT))
    setting.play(1)
    assert steady.is_started, "somebody has no start"
    comers = [Comer(setting, s, f"comer to subject {s}") for s in range(SUBJECT_COUNT)]
    crowd = Crowd(setting, SOURCE, make_event)
    crowd.publish(events_per_s)
    setting.play(WARM_S)
    begin = setting.world.now
    setting.play(seconds)
    crowd.publish(0)
    setting.play(WARM_S)
    arrivals = [
        (arrived - crowd.published[encoded][1], crowd.published[encoded][1])
        for encoded, _, _, arrived in steady.arrivals
    ]
    held, free = comers[:HELD_COUNT], comers[HELD_COUNT:]
    return Latency(
        hops=hops,
        published=len(crowd.published),
        digest=setting.trace.digest,
        delivery_ms=[took / 1000 for took, made in arrivals if made >= begin],
        local_start_ms=[ms for c in held for ms in c.waits_ms(c.listener.started, begin)],
        global_start_ms=[ms for c in free for ms in c.waits_ms(c.listener.started, begin)],
        local_first_ms=[ms for c in held for ms in c.waits_ms(c.listener.first, begin)],
        global_first_ms=[ms for c in free for ms in c.waits_ms(c.listener.first, begin)],
    )


def make_event(number: int) -> tuple[TopicName, Attributes]:
    return TOPIC, {"subject": f"T{number % SUBJECT_COUNT}", "number": number}
