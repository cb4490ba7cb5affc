"""Producers as small actors: they stage on several connections, commit, repeat, abort, and crash.

Theory of operation
    A job has transactions to commit, one after the other. For each it draws parts, and hands each
    to a lane: one connection that asks one thing again and again, over lost connections, timeouts
    and refusals, until it is answered. Of a part the first batch goes alone and the rest at once,
    as the protocol wants it. On the way things go wrong: a part is left half staged and made anew
    under another name, the job forgets all it did and begins again with the same number or the
    next, a commit is repeated with other parts, an abort comes before or after it.
    The ledger knows what was asked for; the checker holds the brokers to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.client_messages import Done, Refused
from gapless.core.events import EventBatch
from gapless.core.identity import ClientName
from gapless.core.transaction_messages import Abort, Commit, Committed, Stage
from gapless.testing.workload import draw_publication

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.core.messages import Message
    from gapless.testing.actors.job_plans import JobPlan
    from gapless.testing.ledger import Key
    from gapless.testing.links import Connection
    from gapless.testing.world import World

MILLISECOND = 1_000


class Lane:
    """One connection, made again whenever it breaks, and what is asked on it."""

    def __init__(self, world: World, plan: JobPlan, number: int) -> None:
        self._world = world
        self._plan = plan
        self._name = f"{plan.name}.{number}"
        self._connection: Connection | None = None
        self._connections = 0
        self._requests = 0
        self._open: dict[int, tuple[Callable[[int], Message], Callable[[Message], None]]] = {}
        self._sends: dict[int, int] = {}
        self.connect()

    def connect(self) -> None:
        self._connections += 1
        name = ClientName(f"{self._name}.{self._connections}")
        self._connection = self._world.connect(name, self, self._plan.broker)
        if self._connection is None:
            self._world.after(20 * MILLISECOND, self.connect)
            return
        for request in list(self._open):
            self._send(request)

    def ask(self, make: Callable[[int], Message], answered: Callable[[Message], None]) -> None:
        """Ask until there is an answer that is final: anything but "later"."""
        self._requests += 1
        self._open[self._requests] = make, answered
        self._send(self._requests)

    def forget(self) -> None:
        """Whoever asked is gone; what is on its way may still arrive."""
        self._open.clear()

    def _send(self, request: int) -> None:
        if self._connection is None or request not in self._open:
            return
        message = self._open[request][0](request)
        name, record = self._connection.name, self._world.watch.record
        record.repeats.add((name, request))  # what has expired may be refused for good
        if isinstance(message, Commit):
            record.ledger.requests[name, request] = (message.producer, message.transaction)
        self._connection.send(message)
        self._sends[request] = attempt = self._sends.get(request, 0) + 1
        self._world.after(self._plan.patience, self._repeat, request, attempt)

    def _repeat(self, request: int, attempt: int) -> None:
        if self._sends[request] == attempt and request in self._open:
            self._world.reached["a producer lost patience"] += 1
            self._send(request)

    def tell(self, message: Message) -> None:
        if isinstance(message, Refused) and message.retry:
            self._world.reached["a producer was refused for a while"] += 1
            self._world.after(10 * MILLISECOND, self._send, message.request)
        elif isinstance(message, Refused | Done | Committed):
            _, answered = self._open.pop(message.request, (None, None))
            if answered is not None:
                answered(message)

    def hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self.cut_off()

    def cut_off(self) -> None:
        if self._connection is None or self._connection.is_open:
            return
        self._connection = None
        self._world.after(self._world.dice.randrange(1, 30 * MILLISECOND), self.connect)


class Job:
    """Commits its transactions, whatever happens."""

    def __init__(self, world: World, plan: JobPlan) -> None:
        self._world = world
        self.plan = plan
        self.is_quick = False
        self.lanes = [Lane(world, plan, number) for number in range(plan.lanes)]
        self._transaction = 0
        self._attempt = 0
        self._made = 0
        self._staging: dict[str, list[tuple[int, list[bytes]]]] = {}
        self._order: list[str] = []
        self._counts: dict[str, int] = {}
        self._later()

    @property
    def _key(self) -> Key:
        return self.plan.name, self._transaction

    def waiting(self) -> list[str]:
        plan, ledger = self.plan, self._world.watch.record.ledger
        if self._transaction <= plan.transaction_count:
            return [f"{plan.name} waits: transaction {self._transaction} is not committed"]
        if left := ledger.unfinished(plan.name):
            return [f"{plan.name} waits: {left} are not whole"]
        process = self._world.processes[plan.broker]
        if not process.is_up:
            return [f"{plan.name} waits: {plan.broker} is down"]
        volume = process.disk.volume
        kept = [
            stream
            for stream in volume.streams()
            if stream.startswith("stage/") and volume.scan(stream, 0, 1 << 63)[0]
        ]
        return [f"{plan.name} waits: {stream} keeps what was staged" for stream in kept]

    def hang_up(self) -> None:
        self._world.dice.choice(self.lanes).hang_up()

    def _is_in_trouble(self, what: str, share: float = 1.0) -> bool:
        if self.is_quick or self._world.dice.random() >= self.plan.trouble * share:
            return False
        self._world.reached[what] += 1
        return True

    def _later(self) -> None:
        """The next transaction, after a pause."""
        self._transaction += 1
        if self._transaction <= self.plan.transaction_count:
            pause = int(self._world.dice.random() * 2 * self.plan.pause)
            self._world.after(1 + pause, self._begin, self._attempt)

    # --- staging ---------------------------------------------------------------------------------

    def _begin(self, attempt: int) -> None:
        """Draw the parts, and stage them, each on a lane."""
        if attempt != self._attempt:
            return
        self._attempt += 1
        dice, plan = self._world.dice, self.plan
        self._staging, self._order, self._counts = {}, [], {}
        for number in range(dice.randint(0, plan.parts_max)):
            part = f"{number}.{self._attempt}"
            if self._is_in_trouble("a part was left half staged", 0.5):
                self._add_part(f"{part}.lost", is_whole=False)
            self._add_part(part, is_whole=True)
            self._order.append(part)
        dice.shuffle(self._order)
        for part in list(self._staging):
            self._stage(part, 1)
        if not self._staging:
            self._commit()

    def _add_part(self, part: str, *, is_whole: bool) -> None:
        dice, plan, record = self._world.dice, self.plan, self._world.watch.record
        batches, count = [], 0
        for _ in range(dice.randint(1, max(1, plan.events_max // plan.batch_max))):
            events = []
            for _ in range(dice.randint(1, plan.batch_max)):
                self._made += 1
                body = f"{plan.name}:{self._made}"
                publication = draw_publication(dice, plan.topic, body, None)
                record.publish(publication)
                events.append(publication.encoded)
            record.ledger.stage(self._key, part, events)
            batches.append((count, events))
            count += len(events)
        self._counts[part] = count
        self._staging[part] = batches if is_whole else batches[:1]

    def _stage(self, part: str, count: int) -> None:
        """Ask for the first batches of a part that are not on their way yet."""
        attempt, plan, transaction = self._attempt, self.plan, self._transaction
        lane = self._world.dice.choice(self.lanes)

        def ask(position: int, events: list[bytes]) -> None:
            batch = EventBatch.join(events)
            lane.ask(
                lambda request: Stage(
                    plan.topic, request, plan.name, transaction, part, position, batch
                ),
                lambda answer: self._staged(attempt, part, position, answer),
            )

        for position, events in self._staging[part][:count]:
            ask(position, events)

    def _staged(self, attempt: int, part: str, position: int, answer: Message) -> None:
        if attempt != self._attempt or part not in self._staging:
            return
        if isinstance(answer, Refused):
            self._world.reached["a transaction had expired"] += 1
            self._start_over()
            return
        rest = [each for each in self._staging[part] if each[0] != position]
        self._staging[part] = rest
        if position == 0 and rest:
            self._stage(part, len(rest))
        elif not rest:
            del self._staging[part]
            if not self._staging:
                self._staged_all()

    def _start_over(self) -> None:
        for lane in self.lanes:
            lane.forget()
        self._begin(self._attempt)

    def _staged_all(self) -> None:
        if self._is_in_trouble("a producer forgot what it had staged", 0.4):
            for lane in self.lanes:
                lane.forget()
            if self._world.dice.random() < 0.5:
                self._later()
            else:
                self._begin(self._attempt)
        elif self._is_in_trouble("a transaction was aborted", 0.3):
            self._abort(lambda _: self._start_over())
        else:
            self._commit()

    # --- committing ------------------------------------------------------------------------------

    def _commit(self) -> None:
        attempt, plan, transaction = self._attempt, self.plan, self._transaction
        parts = tuple(self._order)
        dice = self._world.dice
        counts = tuple(self._counts[part] for part in parts) if dice.random() < 0.5 else ()
        self._world.watch.record.ledger.asked.setdefault(self._key, []).append(parts)
        dice.choice(self.lanes).ask(
            lambda request: Commit(plan.topic, request, plan.name, transaction, parts, counts),
            lambda answer: self._committed(attempt, answer),
        )

    def _committed(self, attempt: int, answer: Message) -> None:
        if attempt != self._attempt:
            return
        if isinstance(answer, Refused):
            self._world.reached["a transaction had expired"] += 1
            self._start_over()
            return
        assert isinstance(answer, Committed)
        if not self.is_quick and self._world.dice.random() < self.plan.crash:
            self._world.reached["a broker crashed right after a commit"] += 1
            self._world.processes[self.plan.broker].crash(self._world.restart_delay())
        if answer.repeated:
            self._world.reached["a repeated commit was recognised"] += 1
        if self._is_in_trouble("a commit was repeated with other parts", 0.5):
            self._begin(self._attempt)  # it did not notice, and does it all again
        elif self._is_in_trouble("an abort came after the commit", 0.5):
            self._abort(lambda _: self._later())
        else:
            self._later()

    def _abort(self, then: Callable[[Message], None]) -> None:
        attempt, plan, transaction = self._attempt, self.plan, self._transaction
        part = self._world.dice.choice([*self._order, None]) if self._order else None
        self._world.dice.choice(self.lanes).ask(
            lambda request: Abort(plan.topic, request, plan.name, transaction, part),
            lambda answer: then(answer) if attempt == self._attempt else None,
        )
