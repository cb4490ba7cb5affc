"""A transit-stub network: a few transit domains, stub domains behind their routers, hosts on those.

Theory of operation
    Routers of a transit domain form a ring with a few chords, domains are linked among themselves;
    every transit router has some stub domains, each a small ring of routers with one link up. Links
    within a stub are short, those between transit domains long. Hosts stand at stub routers.
    Between routers the shortest way is taken. A stub has one way out, so ways are put together of
    three: up to the transit router above, between transit routers, and down. Only domains, which
    are small, are searched for shortest ways.

Invariants
    I1  a way is as long as `delay` says

Cost: six bytes for each pair of routers: 5,050 take 150 MB and a second.
Source: in kind, the Georgia Tech model (Zegura, Calvert, Bhattacharjee, 1996); the domains are
simpler.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Links = dict[tuple[int, int], int]
    """Delay by the routers at both ends."""

MILLISECOND = 1_000
LAN_DELAY = 1 * MILLISECOND
FAR = np.int32(1 << 29)


class Shape(NamedTuple):
    """How many there are of each."""

    domains: int = 4
    transit_routers: int = 4
    """In a domain."""
    stubs: int = 3
    """At a transit router."""
    stub_routers: int = 12


SMALL = Shape()
"""592 routers."""

LARGE = Shape(10, 5, 10, 10)
"""5,050 routers, as in the literature."""


class Ways(NamedTuple):
    """Between some routers: how far it is, and where the way goes first."""

    delay: NDArray[np.int32]
    first_hop: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class TransitStub:
    """All routers, by number."""

    delay: NDArray[np.int32]
    first_hop: NDArray[np.int16]
    stub_routers: list[int]
    links: NDArray[np.int64]
    """Ascending, one for each direction: start * routers + end."""

    def way(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The links from one router to another."""
        for _ in self.delay:  # more links than routers has no way
            if start == end:
                return
            hop = int(self.first_hop[start, end])
            yield start, hop
            start = hop
        raise AssertionError("I1: a way that does not end")

    def copies(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """By link, how many of these ways use it."""
        found = np.zeros(len(self.links), dtype=np.int64)
        for _ in self.delay:
            moving = starts != ends
            if not moving.any():
                return found
            starts, ends = starts[moving], ends[moving]
            hops = self.first_hop[starts, ends].astype(np.int64)
            used = np.searchsorted(self.links, starts * len(self.delay) + hops)
            found += np.bincount(used, minlength=len(found))
            starts = hops
        raise AssertionError("I1: a way that does not end")


def draw_transit_stub(dice: random.Random, shape: Shape = SMALL) -> TransitStub:
    transit, links = _draw_transit(dice, shape)
    count = len(transit.delay)
    stubs = []
    for router in range(count):
        for _ in range(shape.stubs):
            inside = _draw_ring(dice, 0, shape.stub_routers, 1, 3)
            gateway = dice.randrange(shape.stub_routers)
            stubs.append((router, gateway, dice.randint(3, 10) * MILLISECOND, inside))
    first = count
    above = np.arange(count + len(stubs) * shape.stub_routers)  # the transit router of each
    up = np.zeros(len(above), dtype=np.int32)  # how far it is
    gateways = above.copy()
    hops = np.empty((len(above), len(above)), dtype=np.int16)
    blocks = []
    for router, gateway, length, inside in stubs:
        own = slice(first, first + shape.stub_routers)
        ways = _shortest(shape.stub_routers, inside)
        above[own], gateways[own] = router, first + gateway
        up[own] = ways.delay[:, gateway] + length
        hops[own, :] = (ways.first_hop[:, gateway] + first)[:, None]
        hops[first + gateway, :] = router
        hops[own, own] = ways.first_hop + first
        blocks.append((own, ways.delay))
        links |= {(one + first, other + first): far for (one, other), far in inside.items()}
        links[router, first + gateway] = length
        first += shape.stub_routers
    for router in range(count):
        hops[router, :] = np.where(above == router, gateways, transit.first_hop[router, above])
    delay = up[:, None] + transit.delay[above][:, above] + up[None, :]
    for own, inner in blocks:
        delay[own, own] = inner
    codes = sorted(
        a * len(above) + b for one, other in links for a, b in ((one, other), (other, one))
    )
    return TransitStub(delay, hops, list(range(count, first)), np.array(codes, dtype=np.int64))


def _draw_transit(dice: random.Random, shape: Shape) -> tuple[Ways, Links]:
    """The domains in the middle, and the links between them."""
    links: Links = {}
    members = []
    for domain in range(shape.domains):
        first = domain * shape.transit_routers
        links |= _draw_ring(dice, first, shape.transit_routers, 10, 20)
        members.append(range(first, first + shape.transit_routers))
        for other in members[:-1]:
            links[dice.choice(other), dice.choice(members[-1])] = dice.randint(30, 60) * MILLISECOND
    return _shortest(shape.domains * shape.transit_routers, links), links


def _draw_ring(dice: random.Random, first: int, count: int, shortest: int, longest: int) -> Links:
    """So many routers in a ring, with a chord for every three."""
    pairs = [(index, (index + 1) % count) for index in range(count)]
    pairs += [(dice.randrange(count), dice.randrange(count)) for _ in range(count // 3)]
    return {
        (first + min(pair), first + max(pair)): dice.randint(shortest, longest) * MILLISECOND
        for pair in pairs
        if pair[0] != pair[1]
    }


def _shortest(count: int, links: Links) -> Ways:
    """All shortest ways (Floyd and Warshall)."""
    delay = np.full((count, count), FAR, dtype=np.int32)
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
    return Ways(delay, first_hop)
