"""The checkers are tested too: every planted fault is found by a few seeds, as what it is."""

from __future__ import annotations

import pytest

from gapless.node.network import parse_network
from gapless.testing.planted.faults import PLANTED
from gapless.testing.planted.losses import PLANTED_LOSSES
from gapless.testing.planted.transactions import PLANTED_TRANSACTIONS
from gapless.testing.run import simulate

STRICT = ("AssertionError: data at silent tick", "AssertionError: silence at")
"""What the strict lattice says that shadows every stream."""

UNSENT = "nobody here breaks the protocol"
"""A pubend that went back in time gets acknowledgements from its own future."""

WHOLE = "a transaction as a whole, once"

FINDS: dict[str, tuple[str | tuple[str, ...], tuple[int, ...]]] = {
    "delivers-past-gap": ("no gap", (10, 7)),
    "forgets-to-nack": ("everything arrives", (9, 7)),
    "delivers-twice": (("exactly once", "in order"), (2, 3)),
    "acknowledges-too-early": ("no gap", (10, 7)),
    "silences-events": ("no gap", (2, 1)),
    "asks-for-each-child": ("one nack for one loss", (5, 1)),
    "reuses-promised-tick": (STRICT, (2, 1)),
    "forgets-promise": (("no gap", *STRICT, UNSENT), (58, 30)),
    "acknowledges-before-durable": ("durable before acknowledged", (3, 1)),
    "publishes-repeats": ("once published", (2, 8)),
    "takes-every-term": ("durable before acknowledged", (32, 49)),
    "forgets-terms": (("no unjust gap", "durable before acknowledged"), (66, 83)),
    "forgets-publishers": ("everything arrives", (116, 76)),
    "goes-on-without-room": ("durable before acknowledged", (13, 41)),
    "ignores-laggards": ((*STRICT, "no gap"), (7, 16)),
    "sends-before-laggards": (("no gap", "in order", "one total order"), (5, 20)),
    "sends-pubend-by-pubend": (("in order", "one total order"), (21, 50)),
    "trusts-stale-filter": ("no gap", (134, 101)),
    "starts-too-early": ("no gap", (39, 10)),
    "ignores-constraint": ("no gap", (94, 14, 6)),
    "reuses-clock": (("tables are right", "everything arrives"), (17, 6)),
    "forgets-stamp": ("no gap", (37, 28)),
    "never-repeats": (("everything arrives", "tables are right"), (48, 0)),
    "releases-delivered": ("released only when acknowledged", (3, 11)),
    "assures-before-durable": ("released only when acknowledged", (3, 11)),
    "forgets-acknowledgements": (("it starts where", "released only when"), (30, 3)),
    "misses-record": (("no gap", "the filtered log is right"), (0, 4)),
    "forgets-tail": ("no gap", (21, 9)),
    "tells-gap-twice": ("a gap only where it must be", (7, 8)),
    "silences-loss": ("no gap", (16, 5)),
    "switches-too-early": ("no gap", (3, 11)),
    "fills-scattered": ((*STRICT, "no gap"), (28, 5)),
    "forgets-since": ("no gap", (3, 14)),
    "believes-filtered-silence": ("no gap", (28, 33)),
    "does-not-refilter": ("only matching", (0, 15)),
    "forgets-survivors": ("no gap", (21, 30)),
    "alters-in-memory": (("the filtered log is right", "everything arrives"), (21, 38, 4)),
    "alters-at-other-ticks": (("the filtered log is right", "no gap"), (63, 38)),
    "never-hands-over": (("quiet in the end", "everything arrives", "tables are right"), (45, 28)),
    "answers-before-durable": ("a topic is durable before its founder", (3, 1)),
    "believes-old-entries": (("all catalogues agree", "AssertionError"), (106, 195)),
    "notes-in-memory": (("it starts where", "no gap"), (8, 3)),
    "grants-what-is-taken": (("it starts where", "no gap"), (152, 132)),
    "takes-copy-as-whole": ("no gap", (28, 50)),
    "forgets-birth": ("no gap", (45,)),
    "trusts-copied-log": ("no gap", (1,)),
    "commits-twice": (WHOLE, (17, 30)),
    "forgets-producers": (WHOLE, (99, 54)),
    "forgets-the-rest": (WHOLE, (34, 27)),
    "publishes-losers": (WHOLE, (12, 25)),
    "commits-aborted": (WHOLE, (85, 92)),
}
"""By fault: what is found, and the seeds that are tried first because they are quick."""

RATES = {
    "forgets-promise": {"crash": 6.0},  # it takes a crash to show
    "forgets-survivors": {"crash": 6.0},
    "alters-in-memory": {"crash": 6.0},
    "notes-in-memory": {"crash": 8.0},
    "forgets-terms": {"crash": 8.0},
    **{name: {"lost_disk": 6.0} for name in PLANTED_LOSSES},
    **{name: {} for name in PLANTED_TRANSACTIONS},  # their producers bring trouble enough
}

NETWORKS = {
    **dict.fromkeys(
        PLANTED_TRANSACTIONS,
        """
        cell = [{ name = "h", brokers = [{ name = "h" }], subscribers = true }]
        topic = [{ name = "t", pubends = ["h"] }]
        """,
    ),
}

MORE = range(60)
"""Tried next: courses change with every change to the node, so no single seed must do it."""


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name: str) -> None:
    promise, seeds = FINDS[name]
    network = parse_network(NETWORKS[name]) if name in NETWORKS else None
    found = (
        simulate(seed, parts=PLANTED[name], fault_rates=RATES.get(name), network=network).violation
        for seed in (*seeds, *MORE)
    )
    assert any(violation.startswith(promise) for violation in found)


def test_the_same_seeds_find_nothing_without_the_fault() -> None:
    for seed in (29, 18, 32):
        assert simulate(seed).violation == ""
