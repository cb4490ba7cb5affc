"""Subscriptions that want the same and catch up together: what one of them read serves all."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from gapless.core.broker_messages import Knowledge
from gapless.core.events import EventBatch
from gapless.core.identity import Instant
from gapless.core.ticks import Span
from gapless.durable.catch_up import CatchUp, CatchUpSource, LostSpan, Taker
from gapless.durable.catch_up_group import BatchCache, CatchUpGroup
from gapless.durable.consolidated import SubscriptionBatch
from tests.durable.test_catch_up import TAKER, make_log
from tests.knowledge.notation import PUBEND, event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.durable.filtered_log import FilteredLog

END = 1_000
WANTED = range(3, END, 7)


class Traveller:
    """A catch-up; it counts what it takes from a log at hand, or asks for if the log is remote."""

    def __init__(
        self,
        log: FilteredLog,
        group: CatchUpGroup | None,
        start: int = 0,
        since: int = 0,
        *,
        is_remote: bool = False,
    ) -> None:
        self.fetched = 0
        self.open: list[int] = []  # asked for, and not answered
        self.got: list[int] = []
        self.pieces: list[SubscriptionBatch | LostSpan] = []
        source = CatchUpSource(log, None if is_remote else self.fetch, group)
        self.machine = CatchUp(Taker(TAKER, since), start, source, log.timing)

    def fetch(self, ticks: Sequence[int]) -> list[bytes | None]:
        self.fetched += len(ticks)
        return [event(tick) for tick in ticks]

    def go(self, credit: int = 100) -> int:
        """One window; how many events it had."""
        pieces, nacks = self.machine.advance(END, credit, Instant(0))
        asked = [t for nack in nacks for span in nack.spans for t in range(span.start, span.end)]
        self.fetched += len(asked)
        self.open += asked
        self.machine.check()
        count = len(self.got)
        for piece in pieces:
            if isinstance(piece, SubscriptionBatch):
                assert piece.events == [event(tick) for tick in piece.ticks]
                self.got += piece.ticks
        self.pieces += pieces
        return len(self.got) - count

    def answer(self, count: int = END) -> None:
        """Tell it of so many of the ticks that it has asked for."""
        some, self.open = self.open[:count], self.open[count:]
        for tick in some:
            found = Knowledge(PUBEND, Span(tick, tick + 1), (tick,), EventBatch.join([event(tick)]))
            self.machine.receive_knowledge(found, Instant(0))

    def finish(self) -> None:
        for _ in range(END):
            if self.machine.is_done(END):
                return
            self.go()
            self.answer()
        raise AssertionError("it does not come to an end")


def make(*wanted: int, window: int = 16, **limits: int) -> FilteredLog:
    return make_log(*wanted, end=END, catch_up_window=window, **limits)


def test_what_one_took_from_the_log_another_is_given_as_it_is() -> None:
    log, group = make(*WANTED), CatchUpGroup(BatchCache(1 << 20))
    first, second = Traveller(log, group), Traveller(log, group)
    first.finish()
    looked = log.reads
    second.finish()
    assert first.got == second.got == list(WANTED)
    assert (first.fetched, second.fetched, log.reads) == (len(WANTED), 0, looked)
    theirs = {
        id(piece) for piece in first.pieces if isinstance(piece, SubscriptionBatch) and piece.ticks
    }
    ours = {
        id(piece) for piece in second.pieces if isinstance(piece, SubscriptionBatch) and piece.ticks
    }
    assert theirs == ours, "the very same"


def test_those_who_start_apart_come_to_the_same_windows() -> None:
    log, group = make(*WANTED), CatchUpGroup(BatchCache(1 << 20))
    first, second = Traveller(log, group), Traveller(log, group, start=40)
    first.finish()
    second.finish()
    assert second.got == [tick for tick in WANTED if tick >= 40]
    assert second.fetched == 0, "the rest of a batch, and from there on the very same"


def test_where_the_log_did_not_know_one_yet_it_takes_nothing_of_others() -> None:
    log, group = make(*WANTED), CatchUpGroup(BatchCache(1 << 20))
    Traveller(log, group).finish()
    late = Traveller(log, group, since=500)
    assert late.go() == 0
    assert late.machine.position == 0, "of what was before, nobody here knows what it wants"


def test_no_more_is_given_than_the_client_has_room_for() -> None:
    log, group = make(*WANTED), CatchUpGroup(BatchCache(1 << 20))
    first, second = Traveller(log, group), Traveller(log, group)
    assert 8 <= first.go() <= 16
    assert second.go(credit=3) == 2, "half of it, of what the first has read"
    assert second.fetched == 0


def test_what_was_lost_is_not_passed_on() -> None:
    log, group = make(*WANTED, start=200), CatchUpGroup(BatchCache(1 << 20))
    first, second = Traveller(log, group), Traveller(log, group)
    for each in (first, second):
        each.finish()
        gaps = [piece.span for piece in each.pieces if isinstance(piece, LostSpan)]
        assert [(gap.start, gap.end) for gap in gaps] == [(0, 200)]
        assert each.got == [tick for tick in WANTED if tick >= 200]


def test_beyond_its_bytes_the_oldest_batches_are_forgotten() -> None:
    cache = BatchCache(25)
    group, other = CatchUpGroup(cache), CatchUpGroup(cache)
    batches = [SubscriptionBatch([n], [bytes(9)], n + 1) for n in range(3)]
    group.keep(0, batches[0])
    other.keep(0, batches[1])
    cache.check()
    assert (group.batch(0, 1), other.batch(0, 1)) == (batches[0], batches[1])
    group.keep(2, batches[2])
    cache.check()
    assert group.batch(0, 1) is None
    assert other.batch(0, 1) is batches[1]
    group.keep(2, batches[2])
    cache.check()
    assert other.batch(0, 1) is batches[1], "the same again takes no more room"
    cache.clear()
    cache.check()
    assert group.batch(2, 1) is None


@pytest.mark.parametrize("count", [4, 32, 48])
def test_however_many_return_together_each_event_is_asked_for_about_once(count: int) -> None:
    """As at a relay, the answer to a question under way serves all that ask the same."""
    log, group, dice = make(*WANTED), CatchUpGroup(BatchCache(1 << 20)), Random(count)
    some = [Traveller(log, group, start=dice.randint(0, 30), is_remote=True) for _ in range(count)]
    starts = [each.machine.position for each in some]
    questions = 0
    while not all(each.machine.is_done(END) for each in some):
        turn = dice.sample(some, 4)  # so many may ask at once
        for each in turn:
            each.go()
        under_way: set[int] = set()
        while asked := {tick for each in turn for tick in each.open}:
            questions, under_way = questions + len(asked - under_way), asked
            for each in turn:
                each.answer(dice.randint(1, 16))
                each.go()
    for start, each in zip(starts, some, strict=True):
        assert each.got == [tick for tick in WANTED if tick >= start]
    assert questions <= 1.3 * len(WANTED)


@pytest.mark.parametrize("is_remote", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_together_each_gets_what_it_would_get_alone(seed: int, is_remote: bool) -> None:
    dice = Random(seed)
    wanted = sorted(dice.sample(range(END), dice.randint(1, 200)))
    walk = dice.choice((30, 5_000))
    log = make(*wanted, window=dice.choice((1, 2, 5, 40)), filtered_read_max=walk)
    group = CatchUpGroup(BatchCache(dice.choice((1, 200, 100_000))))
    some = [
        Traveller(log, group, start=start, since=dice.randint(0, start), is_remote=is_remote)
        for start in (dice.randint(0, END) for _ in range(5))
    ]
    starts = [each.machine.position for each in some]
    for _ in range(60):
        each = dice.choice(some)
        each.go(credit=dice.choice((0, 1, 3, 100)))
        each.answer(dice.choice((0, 1, 100)))
    for start, each in zip(starts, some, strict=True):
        each.finish()
        assert each.got == [tick for tick in wanted if tick >= start]


def test_one_far_behind_finds_its_way_though_others_are_ahead() -> None:
    log = make(*WANTED, filtered_read_max=10, filtered_walk_max=10)
    group = CatchUpGroup(BatchCache(1 << 20))
    far, near = Traveller(log, group), Traveller(log, group, start=900)
    for _ in range(len(WANTED) // 10 + 2):
        far.go()
        near.go()
    assert far.got, "its marks were not taken away"
    far.finish()
    near.finish()
    assert (far.got, near.got) == (list(WANTED), [tick for tick in WANTED if tick >= 900])
