"""One run of the tree: a seed becomes options, faults come and go, then all is healed.

Theory of operation
    Safety phase: brokers publish, subscribe and withdraw while faults come; flows stay contiguous
    all the time. Then everything is healed, and within a bounded time every partition, tag, queue
    and held confirmation is gone, every broker knows exactly the subscriptions that exist, and
    nothing is owed. Last, each broker publishes once more, and all who match get it. If nobody
    crashed, the trail has told every repeat.
    A siege comes between, where the options want one: as many brokers as are tolerated crash, or
    are cut off, and stay so while more is published than any queue holds. All others take it, get
    it and subscribe as ever; what was given up for those cut off they are told, once they are back.
    In *rounds* as many brokers and links fail as are tolerated, and others in their place in the
    next: in each round what is published comes to all that are up, and subscriptions begin.
    Last, in half of the runs with scoped tags, a broker dies and is retired: it leaves no trace,
    and as many others may be away as before.
    Every phase is bounded in time, and `Stage.run` bounds its steps.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from gapless.core.identity import BrokerName
from gapless.testing.record import Violation
from gapless.testing.stage import Stage
from gapless.testing.trace import Trace
from gapless.testing.tree.ledger import NOTHING_LOST, Ledger
from gapless.testing.tree.options import (
    CONDITIONS,
    MILLISECOND,
    TreeOptions,
    draw_narrow,
    draw_options,
    draw_restless,
    draw_rounds,
    draw_siege,
)
from gapless.testing.tree.world import TreeWorld
from gapless.tree.broker import TreeParts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gapless.core.events import Attributes
    from gapless.testing.tree.ledger import PublicationId
    from gapless.testing.watch import Watch
    from gapless.tree.messages import Edge, SubscriptionId

AT_REST = "it comes to rest"
ENDS = "that a source has ended is told"
LIVES = "it goes on while brokers are out of reach"
TOLD = "the trail tells repeats"
INTERESTS = ((("x", ""), ("y", "")), (("x", ""),), (("y", "k < 2"),))
"""Topics and conditions that a broker subscribes to before a siege."""
ROUNDS_MAX = 40
"""How many rounds of 100 ms healing may take."""


@dataclass(slots=True)
class TreeOutcome:
    """What came of a run."""

    seed: int
    digest: str
    lines: int
    publications: int
    deliveries: int
    late_repeats: int
    options: list[str]
    violation: str = ""
    last_lines: list[str] = field(default_factory=list)


class TreeRun:
    """One seed, played."""

    def __init__(
        self,
        seed: int,
        options: TreeOptions | None = None,
        parts: TreeParts | None = None,
        out: Callable[[str], object] | None = None,
    ) -> None:
        self._dice = random.Random(seed)
        self.options = options or draw_options(self._dice)
        self._trace = Trace(out)
        watch = cast("Watch", None)  # it watches clients' connections; there are none here
        self.stage = Stage(self._dice, self._trace, watch)
        self.ledger = Ledger()
        self.world = TreeWorld(self.stage, self.options, self.ledger, parts or TreeParts(), out)
        self._seed = seed
        self._faults: list[Callable[[], None]] = []
        self._is_over = False
        self._subscribed: list[SubscriptionId] = []
        self._brokers = list(self.options.brokers)
        self._edges = list(self.options.edges)

    def play(self) -> TreeOutcome:
        violation = ""
        try:
            self._safety()
            self._heal()
            if self.options.siege:
                self._besiege()
            if self.options.rounds:
                self._roll()
            self._retire_one()
            self._afterwards()
        except Violation as found:
            violation = str(found)
        except AssertionError as found:
            violation = f"AssertionError: {found}"
        return TreeOutcome(
            self._seed,
            self._trace.digest,
            self._trace.count,
            self.ledger.publications,
            self.ledger.deliveries,
            self._late_repeats(),
            self.options.lines(),
            violation,
            list(self._trace.last),
        )

    # --- phases ----------------------------------------------------------------------------------

    def start(self) -> None:
        for process in self.world.processes.values():
            process.start()

    def _safety(self) -> None:
        options, stage = self.options, self.stage
        self.start()
        for _ in range(options.subscriptions_at_first):
            self._subscribe()
        stage.run(300 * MILLISECOND)
        self._again(options.publish_every, self._publish)
        self._again(options.subscribe_every, self._change_interest)
        if options.joins:
            self._again(options.join_every, self._join)
        if options.faults and options.faults_at_once_max:
            self._again(options.fault_every, self._break_something)
        stage.run(options.duration)

    def _heal(self) -> None:
        self._is_over = True
        self.stage.say("healed")
        for undo in self._faults:
            undo()
        self.world.links.heal()
        for process in self.world.members:
            if not process.is_up:
                process.start()
        left: list[str] = []
        for _ in range(ROUNDS_MAX):
            self.stage.run(100 * MILLISECOND)
            left = self.world.restlessness()
            if not left:
                return
        raise Violation(AT_REST, "; ".join(left))

    def _besiege(self) -> None:
        dice = random.Random(f"siege {self._seed}")
        away = dice.sample(self._brokers, self.options.settings.failures_tolerated)
        here = [name for name in self._brokers if name not in away]
        self._is_over = False
        for name in (*away, *here):
            for topic, condition in dice.choice(INTERESTS):
                self.world.processes[name].subscribe(condition, topic)
        self.stage.run(400 * MILLISECOND)
        self._faults = [undo for name in away if (undo := self._put_away(name, dice)) is not None]
        self.stage.run(400 * MILLISECOND)
        publishers = dice.sample(here, dice.randint(1, 2))
        awaited: list[PublicationId] = []
        for number in range(self.options.siege):
            topic = "x" if dice.random() < 0.8 else "y"
            process = self.world.processes[dice.choice(publishers)]
            event: Attributes = {"k": dice.randrange(4)}
            published = process.publish(event, topic, is_awaited=number % 2 == 0)
            if published is None:
                raise Violation(LIVES, f"{process.name} takes no publication for {topic}")
            awaited += [published] if number % 2 == 0 else []
            self.stage.run(dice.choice((1, 5)) * MILLISECOND)
            if number % 50 == 0:
                self._goes_on(here, dice)
        self._goes_on(here, dice)
        for each in awaited:
            if each not in self.ledger.settled:
                raise Violation(LIVES, f"nobody says that {each} has reached all within reach")
        self._heal()

    def _roll(self) -> None:
        """Round by round other brokers and links fail, and the former ones return."""
        dice = random.Random(f"rounds {self._seed}")
        for broker in self._brokers:
            self.world.processes[broker].subscribe(dice.choice(CONDITIONS), "x")
        self.stage.run(400 * MILLISECOND)
        for _ in range(self.options.rounds):
            for undo in self._faults:
                undo()
            self.world.links.heal()
            failures = dice.randint(1, self.options.settings.failures_tolerated)
            away = dice.sample(self._brokers, dice.randint(0, failures))
            here = [name for name in self._brokers if name not in away]
            self._faults = [u for name in away if (u := self._put_away(name, dice)) is not None]
            cuts = dice.sample(self._edges, min(failures - len(away), len(self._edges)))
            for one, other in cuts:
                self.stage.say(f"{one} and {other} are cut off")
                self.world.links.cut(one, other)
                self.world.links.cut(other, one)
            self.stage.run(800 * MILLISECOND)
            for name in here:
                if not self.world.processes[name].publish_many([{"k": k} for k in range(4)], "x"):
                    raise Violation(LIVES, f"{name} takes no publication")
            self._goes_on(here, dice, cuts)
        self._heal()

    def _path(self, start: BrokerName, end: BrokerName) -> list[BrokerName]:
        """The way between two brokers of the tree, both included."""
        ways = {start: [start]}
        for broker in ways_grow(ways, self._edges):
            if broker == end:
                break
        return ways[end]

    def _retire_one(self) -> None:
        """One broker dies and is retired: nothing of it is left, and others may fail as before."""
        dice = random.Random(f"retire {self._seed}")
        settings = self.options.settings
        is_scoped = (
            settings.tags == "scoped" and settings.failures_tolerated
        )  # 0: in parts for good
        if not is_scoped or dice.random() < 0.5 or len(self._brokers) < 4:
            return
        gone, at = dice.sample(self._brokers, 2)
        self.world.processes[gone].crash()
        self._subscribe_at(dice.choice([name for name in self._brokers if name != gone]))
        self.stage.run(400 * MILLISECOND)
        self.world.processes[at].retire(gone)
        self._brokers.remove(gone)
        self._heal()
        others = dice.sample(
            self._brokers, min(settings.failures_tolerated, len(self._brokers) - 2)
        )
        self._faults = [undo for name in others if (undo := self._put_away(name, dice)) is not None]
        self.stage.run(400 * MILLISECOND)
        here = [name for name in self._brokers if name not in others]
        for name in here:
            if self.world.processes[name].publish({"k": 1}, "x") is None:
                raise Violation(LIVES, f"{name} takes no publication after {gone} was retired")
        self._goes_on(here, dice)
        self._heal()

    def _subscribe_at(self, broker: BrokerName) -> None:
        for topic in ("", "x"):
            self.world.processes[broker].subscribe("", topic)

    def _put_away(self, name: BrokerName, dice: random.Random) -> Callable[[], None] | None:
        """It crashes, or nobody hears of it any more."""
        if dice.random() < 0.4:
            process = self.world.processes[name]
            process.crash()
            return lambda: None if process.is_up else process.start()
        self.stage.say(f"{name} is cut off")
        for other in self._brokers:
            if other != name:
                self.world.links.cut(name, other)
                self.world.links.cut(other, name)
        return None

    def _goes_on(
        self, here: list[BrokerName], dice: random.Random, cuts: Sequence[Edge] = ()
    ) -> None:
        """All that was published here has come to subscribers here, but for what would come to the
        subscriber's broker over a link that is cut; a new subscription is soon in force."""
        name = self.world.processes[dice.choice(here)].subscribe("", "x")
        self.stage.run(200 * MILLISECOND)
        for publication, subscription in self.ledger.owed():
            if subscription.source not in here or publication.source not in here:
                continue
            last = self._path(publication.source, subscription.source)[-2:] if cuts else []
            if not any({*last} == {*cut} for cut in cuts):
                raise Violation(LIVES, f"{publication} has not come to {subscription}")
        assert name is not None
        if name not in self.world.processes[name.source].in_force:
            raise Violation(LIVES, f"{name} is not in force")

    def _afterwards(self) -> None:
        self._check_tables()
        if owed := self.ledger.owed():
            raise Violation(NOTHING_LOST, f"{owed[0][0]} is owed to {owed[0][1]}, at rest")
        for process in self.world.members:
            for k in range(4):
                if process.publish({"k": k}) is None:
                    raise Violation(AT_REST, f"{process.name} takes no publication")
        self.stage.run(1_000 * MILLISECOND)
        if owed := self.ledger.owed():
            raise Violation(NOTHING_LOST, f"{owed[0][0]} is owed to {owed[0][1]}, after healing")
        if left := self.world.restlessness():
            raise Violation(AT_REST, "; ".join(left))
        if (untold := self.ledger.untold()) and self.options.settings.repeats == "source":
            subscription, source = untold[0]
            raise Violation(ENDS, f"{subscription} lost something of {source}")
        if self._late_repeats() and "crash" not in self.options.faults:
            raise Violation(TOLD, f"{self._late_repeats()} by the source's number only")

    def _check_tables(self) -> None:
        alive = {s for p in self.world.members for s in p.in_force}
        for process in self.world.members:
            assert process.machine is not None
            if (known := set(process.machine.tags())) != alive:
                off = min(known ^ alive)
                raise Violation("tables are right", f"{process.name} is wrong about {off}")

    def _late_repeats(self) -> int:
        machines = [p.machine for p in self.world.processes.values() if p.machine is not None]
        return sum(machine.statistics()["late_repeats"] for machine in machines)

    # --- load ------------------------------------------------------------------------------------

    def _again(self, every: int, action: Callable[[], None]) -> None:
        """Do it at random instants, on average so often."""
        if not self._is_over:
            self.stage.after(int(self._dice.expovariate(1 / every)) + 1, self._step, every, action)

    def _step(self, every: int, action: Callable[[], None]) -> None:
        if not self._is_over:
            action()
            self._again(every, action)

    def _publish(self) -> None:
        broker = self._dice.choice(self._brokers)
        count = self._dice.choice((1, 1, 2, 7))
        events: list[Attributes] = [{"k": self._dice.randrange(4)} for _ in range(count)]
        self.world.processes[broker].publish_many(events)

    def _subscribe(self) -> None:
        broker = self._dice.choice(self._brokers)
        name = self.world.processes[broker].subscribe(self._dice.choice(CONDITIONS))
        if name is not None:
            self._subscribed.append(name)

    def _change_interest(self) -> None:
        if self._dice.random() < 0.5 or not self._subscribed:
            self._subscribe()
        else:
            name = self._subscribed.pop(self._dice.randrange(len(self._subscribed)))
            process = self.world.processes[name.source]
            if process.incarnation == name.epoch:
                process.withdraw(name)

    def _join(self) -> None:
        joined = len(self._brokers) - len(self.options.brokers)
        if joined < self.options.joins:
            name, at = BrokerName(f"n{joined}"), self._dice.choice(self._brokers)
            self.world.join(name, at)
            self._brokers.append(name)
            self._edges.append((at, name))

    # --- faults ----------------------------------------------------------------------------------

    def _break_something(self) -> None:
        if len(self._faults) < self.options.faults_at_once_max:
            kind = self._dice.choice(self.options.faults)
            undo = getattr(self, f"_{kind}")()
            if undo is not None:
                self._faults.append(undo)
                lasts = int(self._dice.expovariate(1 / self.options.fault_lasts)) + 1
                self.stage.after(lasts, self._undo, undo)

    def _undo(self, undo: Callable[[], None]) -> None:
        if undo in self._faults and not self._is_over:
            self._faults.remove(undo)
            undo()

    def _crash(self) -> Callable[[], None] | None:
        process = self.world.processes[self._dice.choice(self._brokers)]
        if not process.is_up:
            return None
        process.crash()
        return lambda: None if process.is_up else process.start()

    def _pair(self) -> tuple[BrokerName, BrokerName]:
        one, other = self._dice.choice(self._edges)
        if self._dice.random() < 0.3:
            one, other = self._dice.sample(self._brokers, 2)
        return (one, other) if self._dice.random() < 0.5 else (other, one)

    def _cut(self) -> Callable[[], None]:
        one, other = self._pair()
        links = self.world.links
        self.stage.say(f"{one} and {other} are cut off")
        links.cut(one, other)
        links.cut(other, one)

        def undo() -> None:
            self.stage.say(f"{one} and {other} are mended")
            links.mend(one, other)
            links.mend(other, one)

        return undo

    def _one_way_cut(self) -> Callable[[], None]:
        one, other = self._pair()
        self.stage.say(f"{one} to {other} is cut off")
        self.world.links.cut(one, other)
        return lambda: self.world.links.mend(one, other)

    def _stall(self) -> Callable[[], None]:
        one, other = self._pair()
        self.stage.say(f"{one} to {other} stalls")
        self.world.links.stall(one, other, swallows=self._dice.random() < 0.5)
        return lambda: self.world.links.release(one, other)

    def _loss(self) -> Callable[[], None]:
        one, other = self._pair()
        self.world.links.lose_next(one, other, self._dice.randint(1, 5))
        return lambda: None


def ways_grow(
    ways: dict[BrokerName, list[BrokerName]], edges: Sequence[Edge]
) -> Iterator[BrokerName]:
    """Walk a tree from the first broker outward; each broker as its way becomes known."""
    turned = [*edges, *((b, a) for a, b in edges)]
    layer = list(ways)
    while layer:
        found = [(a, b) for a, b in turned if a in layer and b not in ways]
        for near, far in found:
            ways[far] = [*ways[near], far]
        layer = [far for _, far in found]
        yield from layer


DRAWS = (draw_options, draw_restless, draw_siege, draw_narrow, draw_rounds)
"""What a swarm plays by turns."""


def simulate_any_tree(seed: int, out: Callable[[str], object] | None = None) -> TreeOutcome:
    """Play a seed of the swarm: faults of all kinds, or a siege, or queues that are always full."""
    draw = DRAWS[seed % len(DRAWS)]
    return simulate_tree(seed, options=draw(random.Random(f"tree {seed}")), out=out)


def simulate_tree(
    seed: int,
    *,
    options: TreeOptions | None = None,
    parts: TreeParts | None = None,
    out: Callable[[str], object] | None = None,
    **changes: object,
) -> TreeOutcome:
    """Play one seed to its end, or to the first violation; what is given is not drawn."""
    run = TreeRun(seed, options, parts, out)
    if changes:
        given = replace(run.options, **changes)  # type: ignore[arg-type]
        run = TreeRun(seed, given, parts, out)
    return run.play()
