"""What a pubend remembers of a named publisher, against a dict from number to tick."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless.knowledge.receipts import RUN, STEP, PublisherRecord

publications = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 2)), max_size=20)


def play(script: list[tuple[int, int]], runs_max: int) -> tuple[PublisherRecord, dict[int, int]]:
    """Publish `count` events each, `skip` free ticks after the ones before."""
    ours, dumb, tick = PublisherRecord(), dict[int, int](), 5 * STEP + 3
    for count, skip in script:
        tick += skip * STEP
        first = len(dumb)
        ours.publish(first, count, tick, runs_max)
        dumb.update({first + i: tick + i * STEP for i in range(count)})
        tick += count * STEP
    return ours, dumb


@given(publications)
def test_every_number_gets_the_tick_that_it_first_got(script: list[tuple[int, int]]) -> None:
    ours, dumb = play(script, runs_max=100)
    assert ours.next == len(dumb)
    assert ours.ticks(0, len(dumb)) == tuple(dumb.values())


@given(publications, st.integers(1, 4))
def test_a_bounded_memory_forgets_the_oldest_runs_and_says_so(
    script: list[tuple[int, int]], runs_max: int
) -> None:
    ours, dumb = play(script, runs_max)
    assert len(ours.runs) <= runs_max
    answers = ours.ticks(0, len(dumb))
    forgotten = answers.count(-1)
    assert answers == (-1,) * forgotten + tuple(dumb.values())[forgotten:]
    runs = 1 + sum(skip > 0 for _, skip in script[1:])
    assert bool(forgotten) == (runs > runs_max and bool(script))


@given(publications, st.integers(1, 4))
def test_it_reads_back_as_it_was_written(script: list[tuple[int, int]], runs_max: int) -> None:
    ours, _ = play(script, runs_max)
    ours.term = 1_700_000_000_000_000
    assert PublisherRecord.decode(ours.encode()) == ours
    assert ours.copy() == ours


def test_a_fact_of_before_there_were_terms_is_that_of_a_name_nobody_took_over() -> None:
    ours, _ = play([(3, 0)], runs_max=4)
    old = RUN.pack(3, 0, 0) + ours.packed
    assert PublisherRecord.decode(old) == ours
    assert ours.term == 0


def test_publications_at_consecutive_ticks_are_one_run() -> None:
    ours, _ = play([(3, 0), (2, 0), (1, 0)], runs_max=4)
    assert ours.runs == [(0, 6, 5 * STEP + 3)]


def test_numbers_that_were_never_published_have_no_tick() -> None:
    ours, _ = play([(2, 0)], runs_max=4)
    assert ours.ticks(2, 1) == (-1,)
    assert PublisherRecord().ticks(0, 1) == (-1,)
