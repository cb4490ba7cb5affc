"""Figure 7: three relays back each other up; one after the other crashes and comes back.

Theory of operation
    pb, a cell of three relays, two brokers of subscribers. A hundred subjects on six topics, whose
    streams share the relays evenly. Three groups of subscribers want the first fifty subjects, two
    of them at sb1 and one at sb2. The first relay crashes, then the second; while only the third
    lives, a fourth group comes to sb2 for the other fifty; then the two come back, with nothing.
    A crash breaks the relay's links, as a process's sockets do, and its neighbours see that.
    Noted for each second: deliveries of each group by arrival, events that each relay took in, and
    events that were filtered, or let pass because too little was known, at pb and the relays.
    The time line is the paper's, ten times as fast; the rate is stated.

Source: Middleware 2004, sec. 5.2, fig. 7.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gapless.core.identity import BrokerName, CellName, ClientName
from gapless.node.network import BrokerEntry, Cell, Network, Topic
from gapless_lab.experiments.meter import SECOND
from gapless_lab.experiments.propagation.setting import PROPAGATION, Crowd, Listener, Setting
from gapless_lab.experiments.propagation.ways import name_topic

if TYPE_CHECKING:
    from gapless.core.events import Attributes
    from gapless.core.identity import Instant, TopicName

SOURCE = BrokerName("pb")
RELAYS = tuple(BrokerName(f"ib{number}") for number in (1, 2, 3))
HOSTS = (BrokerName("sb1"), BrokerName("sb2"))

CENTRE = CellName("relays")
CELLS = (
    Cell(CellName(SOURCE), (BrokerEntry(SOURCE),), (CENTRE,)),
    Cell(CENTRE, tuple(map(BrokerEntry, RELAYS))),
    *(Cell(CellName(name), (BrokerEntry(name),), (CENTRE,), subscribers=True) for name in HOSTS),
)
WAYS = ((0, 1), (0, 2), (1, 1), (1, 1), (2, 2), (2, 2))
"""For each topic: the relay it goes by, and the one without the first."""

TOPICS = tuple(
    name_topic(
        f"market{number + 1}",
        CELLS,
        SOURCE,
        CENTRE,
        {(): RELAYS[way], (RELAYS[0],): RELAYS[other]},
    )
    for number, (way, other) in enumerate(WAYS)
)

SUBJECT_COUNT = 100
GROUPS = {"group 1": HOSTS[0], "group 2": HOSTS[0], "group 3": HOSTS[1], "group 4": HOSTS[1]}
LATE = "group 4"

CRASHES_S = {RELAYS[0]: (7.5, 29.1), RELAYS[1]: (10.5, 33.1)}
"""When each crashes, and when it is back."""

LATE_S = 16.5
END_S = 40.0
REST_S = 5


@dataclass(kw_only=True)
class TimeLine:
    """What a run showed. Times count from the first publication, lists go by second."""

    events_per_s: int
    published: int
    digest: str
    expected: int
    """Deliveries that were owed."""
    lost: int
    duplicated: int
    out_of_order: int
    late_start_ms: float
    """The longest wait of the fourth group for its start."""
    late_start_s: float
    """When all of them had theirs."""
    worst_latency_ms: dict[str, float]
    """By group."""
    delivered: dict[str, list[int]]
    """By group."""
    carried: dict[str, list[int]]
    """By relay: events taken in."""
    filtered: list[int] = field(default_factory=list)
    flooded: list[int] = field(default_factory=list)


def failure_network() -> Network:
    return Network(cells=CELLS, topics=tuple(Topic(topic, (SOURCE,)) for topic in TOPICS))


def topic_of(subject: int) -> TopicName:
    return TOPICS[subject % len(TOPICS)]


def make_event(number: int) -> tuple[TopicName, Attributes]:
    subject = number * 37 % SUBJECT_COUNT  # neither topics nor halves take turns
    return topic_of(subject), {"subject": subject, "number": number}


class Group:
    """One group of subscribers, on one connection: `repeats` subscriptions to each subject."""

    def __init__(self, setting: Setting, name: str, repeats: int) -> None:
        self._setting = setting
        self.listener = Listener(setting, GROUPS[name], name)
        half = SUBJECT_COUNT // 2
        self.subjects = range(half, SUBJECT_COUNT) if name == LATE else range(half)
        self.repeats = repeats
        self.subject: dict[int, int] = {}

    def subscribe(self) -> None:
        for subject in self.subjects:
            for _ in range(self.repeats):
                number = self.listener.subscribe(topic_of(subject), f"subject = {subject}")
                self.subject[number] = subject


class Sampler:
    """Every second: how much was filtered and let pass, and what each relay took in."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._seen: dict[int, Counter[str]] = {}  # by node that lived: its counts so far
        self.filtered: list[int] = []
        self.flooded: list[int] = []
        self.carried: dict[str, list[int]] = {name: [] for name in RELAYS}
        self._look()

    def sample(self) -> None:
        change = self._look()
        self.filtered.append(change["filtered"])
        self.flooded.append(change["flooded"])
        for name in RELAYS:
            tally = self._setting.tallies.of(name)
            self.carried[name].append(tally.events_in)
            tally.reset()

    def _look(self) -> Counter[str]:
        """What has been added since the last look, by nodes that live."""
        change: Counter[str] = Counter()
        for name in (SOURCE, *RELAYS):
            node = self._setting.nodes[name]
            counts: Counter[str] = Counter()
            for interest in node.durable.interests.by_topic.values():
                counts["filtered"] += interest.filtered
                counts["flooded"] += interest.flooded
            change += counts - self._seen.get(id(node), Counter())
            self._seen[id(node)] = counts
        return change


def play_failure(*, events_per_s: int, repeats: int, seed: int) -> TimeLine:
    """`repeats`: subscriptions of each group to each subject; of the fourth, two fifths as many."""
    setting = Setting(failure_network(), PROPAGATION, seed=seed)
    late_repeats = max(1, repeats * 2 // 5)
    groups = {
        name: Group(setting, name, late_repeats if name == LATE else repeats) for name in GROUPS
    }
    for name, group in groups.items():
        if name != LATE:
            group.subscribe()
    setting.play(1)
    assert all(each.listener.is_started for each in groups.values()), "somebody has no start"
    origin = setting.world.now
    for relay, (crash_s, back_s) in CRASHES_S.items():
        down_for = int((back_s - crash_s) * SECOND)
        setting.world.after(int(crash_s * SECOND), crash, setting, relay, down_for)
    setting.world.after(int(LATE_S * SECOND), groups[LATE].subscribe)
    setting.tallies.reset()
    sampler = Sampler(setting)
    crowd = Crowd(setting, SOURCE, make_event)
    crowd.publish(events_per_s)
    for _ in range(int(END_S)):
        setting.play(1)
        sampler.sample()
    crowd.publish(0)
    setting.play(REST_S)
    return close_books(setting, origin, crowd, groups, sampler, events_per_s)


def crash(setting: Setting, relay: BrokerName, down_for: int) -> None:
    setting.world.processes[relay].crash(down_for)
    for peer in (SOURCE, *RELAYS, *HOSTS):
        if peer != relay:  # a broken link is told as a client's is
            setting.world.after(1_000, setting.world.processes[peer].link_down, ClientName(relay))


def close_books(
    setting: Setting,
    origin: Instant,
    crowd: Crowd,
    groups: dict[str, Group],
    sampler: Sampler,
    events_per_s: int,
) -> TimeLine:
    books = {name: Book(crowd, group, origin) for name, group in groups.items()}
    late = groups[LATE].listener
    waits = [late.started.get(n, setting.world.now) - asked for n, asked in late.asked.items()]
    return TimeLine(
        events_per_s=events_per_s,
        published=len(crowd.published),
        digest=setting.trace.digest,
        expected=sum(each.expected for each in books.values()),
        lost=sum(each.lost for each in books.values()),
        duplicated=sum(each.duplicated for each in books.values()),
        out_of_order=sum(each.out_of_order for each in books.values()),
        late_start_ms=max(waits) / 1000,
        late_start_s=(max(late.asked.values()) + max(waits) - origin) / SECOND,
        worst_latency_ms={name: each.worst_ms for name, each in books.items()},
        delivered={name: each.by_second for name, each in books.items()},
        carried=sampler.carried,
        filtered=sampler.filtered,
        flooded=sampler.flooded,
    )


class Book:
    """One group's deliveries against what was owed: all matching events from a start on."""

    def __init__(self, crowd: Crowd, group: Group, origin: Instant) -> None:
        listener = group.listener
        self.by_second = [0] * int(END_S)
        self.worst_ms = 0.0
        self.out_of_order = 0
        got: Counter[tuple[int, int]] = Counter()
        newest: dict[int, int] = {}
        for encoded, takers, _, arrived in listener.arrivals:
            number, published = crowd.published[encoded]
            self.worst_ms = max(self.worst_ms, (arrived - published) / 1000)
            second = (arrived - origin) // SECOND
            if second < len(self.by_second):
                self.by_second[second] += len(takers)
            for taker in takers:
                got[taker, number] += 1
                self.out_of_order += number < newest.get(taker, 0)
                newest[taker] = number
        owed = self._owed(crowd, group)
        self.expected = len(owed)
        self.lost = len(owed - got.keys())
        self.duplicated = got.total() - len(got)

    def _owed(self, crowd: Crowd, group: Group) -> set[tuple[int, int]]:
        """By subscription and event: everything published since it was told that it counts, and
        everything from its first delivery on."""
        first: dict[int, int] = {}
        for encoded, takers, _, _ in group.listener.arrivals:
            for taker in takers:
                first.setdefault(taker, crowd.published[encoded][0])
        by_subject: dict[int, list[tuple[int, Instant]]] = {}
        for number, made in crowd.published.values():
            by_subject.setdefault(number * 37 % SUBJECT_COUNT, []).append((number, made))
        started = group.listener.started
        return {
            (taker, number)
            for taker, subject in group.subject.items()
            for number, made in by_subject.get(subject, ())
            if (taker in started and made >= started[taker])
            or number >= first.get(taker, number + 1)
        }
