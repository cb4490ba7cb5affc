"""A transit-stub network: a few transit domains, stub domains behind their routers, hosts on those.

Theory of operation
    Routers of a transit domain form a ring with a few chords, domains are linked among themselves;
    every transit router has some stub domains, each a small ring of routers with one link up. Links
    within a stub are short, those between transit domains long. Hosts stand at stub routers.
    Between routers the shortest way is taken; its next hops are computed for all pairs at once.

Cost: routers² numbers twice, and as many steps of that size as there are routers: 600 take about a
second and 6 MB.
Source: in kind, the Georgia Tech model (Zegura, Calvert, Bhattacharjee, 1996); the domains are
simpler.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from numpy.typing import NDArray

MILLISECOND = 1_000
LAN_DELAY = 1 * MILLISECOND
FAR = np.int64(1 << 40)


@dataclass(frozen=True, slots=True)
class TransitStub:
    """Routers, by number: how far it is between each two, and where the way goes first."""

    delay: NDArray[np.int64]
    first_hop: NDArray[np.int32]
    stub_routers: list[int]

    def way(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The links from one router to another."""
        while start != end:
            hop = int(self.first_hop[start, end])
            yield start, hop
            start = hop


def draw_transit_stub(
    dice: random.Random,
    domains: int = 4,
    transit_routers: int = 4,
    stubs: int = 3,
    stub_routers: int = 12,
) -> TransitStub:
    """With the defaults 592 routers."""
    links: dict[tuple[int, int], int] = {}
    routers = 0

    def link(one: int, other: int, shortest: int, longest: int) -> None:
        if one != other:
            links[min(one, other), max(one, other)] = dice.randint(shortest, longest) * MILLISECOND

    def ring(count: int, shortest: int, longest: int) -> list[int]:
        nonlocal routers
        members = list(range(routers, routers + count))
        routers += count
        for index, member in enumerate(members):
            link(member, members[index - 1], shortest, longest)
        for _ in range(count // 3):
            link(dice.choice(members), dice.choice(members), shortest, longest)
        return members

    backbone = [ring(transit_routers, 10, 20) for _ in range(domains)]
    for index, domain in enumerate(backbone):
        for other in backbone[:index]:
            link(dice.choice(domain), dice.choice(other), 30, 60)
    hosts_at: list[int] = []
    for router in [router for domain in backbone for router in domain]:
        for _ in range(stubs):
            stub = ring(stub_routers, 1, 3)
            link(router, dice.choice(stub), 3, 10)
            hosts_at += stub
    delay, first_hop = _shortest(routers, links)
    return TransitStub(delay, first_hop, hosts_at)


def _shortest(
    count: int, links: dict[tuple[int, int], int]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """All shortest ways (Floyd and Warshall)."""
    delay = np.full((count, count), FAR, dtype=np.int64)
    first_hop = np.tile(np.arange(count, dtype=np.int32), (count, 1))
    np.fill_diagonal(delay, 0)
    for (one, other), length in links.items():
        delay[one, other] = delay[other, one] = length
    for via in range(count):
        through = delay[:, via, None] + delay[None, via, :]
        shorter = through < delay
        delay = np.where(shorter, through, delay)
        first_hop = np.where(shorter, first_hop[:, via, None], first_hop)
    assert int(delay.max()) < FAR, "the network is connected"
    return delay, first_hop
