"""Filter edges: what may pass to which cell."""

from __future__ import annotations

from gapless.core.identity import CellName
from gapless.filters.filter import Filter
from gapless.node.edge import FilterEdge
from gapless.wire.events import decode_attributes
from tests.node.town import event

LEFT, RIGHT = CellName("left"), CellName("right")
EVENTS = [event(colour) for colour in ("red", "blue", "green", "red")]


def edge(*conditions: str) -> FilterEdge:
    return FilterEdge({LEFT: list(map(Filter.parse, conditions))}, decode_attributes)


def test_what_any_condition_of_the_cell_matches_passes_once() -> None:
    conditions = ("colour = 'red'", "colour IN ('red', 'green')")
    assert edge(*conditions).select(LEFT, EVENTS) == [0, 2, 3]


def test_a_cell_with_no_condition_gets_nothing_and_one_unknown_gets_all() -> None:
    assert edge().select(LEFT, EVENTS) == []
    assert edge("colour = 'red'").select(RIGHT, EVENTS) == [0, 1, 2, 3]
