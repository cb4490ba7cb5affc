"""Two ends speak the highest version that both understand, or one is told to upgrade."""

from __future__ import annotations

from itertools import product

import pytest

from gapless.core.errors import WireError
from gapless.core.identity import BrokerName
from gapless.core.messages import Hello
from gapless.wire.link import agree

RANGES = [(low, high) for low, high in product(range(1, 5), repeat=2) if low <= high]


@pytest.mark.parametrize(("mine", "theirs"), list(product(RANGES, RANGES)))
def test_the_highest_common_version_is_spoken(
    mine: tuple[int, int], theirs: tuple[int, int]
) -> None:
    common = set(range(mine[0], mine[1] + 1)) & set(range(theirs[0], theirs[1] + 1))
    here, there = Hello(mine[1], mine[0]), Hello(theirs[1], theirs[0])
    if common:
        assert agree(here, there) == agree(there, here) == max(common)
    else:
        side = "the other end" if theirs[1] < mine[0] else "this end"
        with pytest.raises(WireError, match=rf"Upgrade {side}\."):
            agree(here, there)


def test_the_end_to_upgrade_is_named() -> None:
    old = Hello(1, 1, BrokerName("broker-7"), "gapless 0.1")
    with pytest.raises(WireError, match=r"we speak 2 to 3, the other end 1.*broker-7, gapless 0.1"):
        agree(Hello(3, 2), old)
