"""Figure 5: a covered subscription starts at its broker, another goes to the source and back."""

from __future__ import annotations

from gapless.core.identity import CellName
from gapless_lab.experiments.propagation.latency import chain, play_latency
from tests.lab.experiments.propagation.tiny import TINY, tiny_results


def test_the_chain_has_its_hops_between_its_ends() -> None:
    network = chain(2)
    assert [cell.name for cell in network.cells] == ["pb", "ib1", "ib2", "sb"]
    assert network.next_hop(CellName("pb"), CellName("sb")) == "ib1"


def test_only_a_start_that_is_not_covered_takes_the_whole_way() -> None:
    near, far = (each.medians_ms() for each in tiny_results().latencies)
    for medians in (near, far):
        assert medians["local_start"] < medians["delivery"] < medians["global_start"]
        assert medians["global_start"] < medians["global_first"]
    # Two hops more: two links more down, and two up.
    assert 0.4 < far["delivery"] - near["delivery"] < 2.0
    assert 0.8 < far["global_start"] - near["global_start"] < 6.0


def test_no_latency_is_shorter_than_its_links_and_writes() -> None:
    near, far = tiny_results().latencies
    for latency in (near, far):
        assert min(latency.local_start_ms) >= 0.4
        assert min(latency.delivery_ms) >= 0.2 * (latency.hops + 4)
        assert min(latency.global_start_ms) >= 0.2 * (2 * latency.hops + 5)
        assert len(latency.global_start_ms) > 5


def test_the_same_seed_takes_the_same_course() -> None:
    one = tiny_results().latencies[0]
    again = play_latency(1, events_per_s=TINY.latency_events_per_s, seconds=TINY.latency_s, seed=3)
    assert again == one
