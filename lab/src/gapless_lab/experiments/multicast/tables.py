"""Routing tables of a whole ring, as joining leads to them, made at once of sorted identifiers.

Theory of operation
    In the order of identifiers those with a common prefix stand side by side. So the nodes that fit
    a cell of a routing table are a range of that order, found by bisection. Of some of them, drawn
    at random, the nearest is taken. How many that should be is measured (`joining`).

Invariants
    I1  a cell is empty exactly where nobody fits

Cost: 64 bytes a node for each row; time goes with nodes, cells and candidates: 100,000 nodes take
a minute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

DIGIT_BITS = 4
DIGITS = 1 << DIGIT_BITS
BITS = 64

CANDIDATES_MAX = 64
"""Of those that fit a cell, how many are compared for nearness; of fewer, all are."""

NOBODY = -1
"""In an empty cell, and in that of the node itself."""


def draw_tables(
    identifiers: NDArray[np.uint64],
    routers: NDArray[np.int64],
    delay: NDArray[np.int32],
    random: np.random.Generator,
) -> list[NDArray[np.int32]]:
    """Row by row: for each node and digit a node. Identifiers ascend, or their first 64 bits do."""
    rows: list[NDArray[np.int32]] = []
    while len(rows) < BITS // DIGIT_BITS:
        ranges = _ranges(identifiers, len(rows))
        if rows and not ranges[1].any():
            break
        rows.append(_nearest(*ranges, routers, delay, random))
    return rows


def _ranges(
    identifiers: NDArray[np.uint64], index: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of each node and digit: where those that fit begin, and how many they are."""
    count, digit_bits = len(identifiers), np.uint64(DIGIT_BITS)
    longer = identifiers >> np.uint64(BITS - (index + 1) * DIGIT_BITS)
    shorter = longer >> digit_bits if index else np.zeros_like(longer)
    groups, firsts = np.unique(longer, return_index=True)
    firsts = np.append(firsts, count)
    prefixes, line = np.unique(shorter, return_inverse=True)
    wanted = (prefixes[:, None] << digit_bits) + np.arange(DIGITS, dtype=np.uint64)
    places = np.minimum(np.searchsorted(groups, wanted), len(groups) - 1)
    sizes = np.where(groups[places] == wanted, firsts[places + 1] - firsts[places], 0)[line]
    sizes[np.arange(count), (longer % np.uint64(DIGITS)).astype(np.int64)] = 0  # its own
    return firsts[places][line], sizes


def _nearest(
    low: NDArray[np.int64],
    size: NDArray[np.int64],
    routers: NDArray[np.int64],
    delay: NDArray[np.int32],
    random: np.random.Generator,
) -> NDArray[np.int32]:
    """Of each range of nodes the nearest of some; of few, of all."""
    row = np.full(low.shape, NOBODY, dtype=np.int32)
    nodes, digits = np.nonzero(size)
    low, size = low[nodes, digits], size[nodes, digits]
    here = routers[nodes]
    best = np.full(len(nodes), NOBODY, dtype=np.int32)
    best_delay = np.full(len(nodes), np.iinfo(np.int32).max, dtype=np.int32)
    for number in range(min(CANDIDATES_MAX, int(size.max(initial=0)))):
        drawn = (random.random(len(size)) * size).astype(np.int64)
        found = low + np.where(size > CANDIDATES_MAX, drawn, number % size)
        far = delay[here, routers[found]]
        is_nearer = far < best_delay
        best[is_nearer], best_delay[is_nearer] = found[is_nearer], far[is_nearer]
    row[nodes, digits] = best
    return row
