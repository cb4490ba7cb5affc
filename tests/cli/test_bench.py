"""`gapless bench`: it counts what a broker does, checks deliveries, and leaves nothing behind."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from gapless.cli.load import PARTS, BenchLoad
from tests.cli.test_serve import gapless, serving

if TYPE_CHECKING:
    from pathlib import Path


@given(st.integers(0, 5 * PARTS), st.integers(1, PARTS))
def test_what_is_due_is_what_the_condition_passes(sent: int, part: int) -> None:
    load = BenchLoad(seconds=1, subscribers=1, part=part, size=8, rate=0)
    assert load.due(sent) == sum(number % PARTS < part for number in range(sent))


def test_a_broker_is_measured_and_the_topic_of_it_is_gone_after_that(tmp_path: Path) -> None:
    with serving(tmp_path) as (url, _):
        common = ("--seconds", "0.5", "--url", url)
        shared = gapless("bench", "--subscribers", "3", "--share", "0.25", "--json", *common)
        found = json.loads(shared.stdout)
        load = BenchLoad(seconds=0.5, subscribers=3, part=PARTS // 4, size=250, rate=0)
        assert found["published"] > 0
        assert found["delivered"] == 3 * load.due(found["published"])
        assert (found["missing"], found["wrong"]) == (0, 0)
        assert 0 < found["latency_p50_ms"] <= found["latency_p99_ms"]
        paced = gapless("bench", "--rate", "100", "--size", "8", *common).stdout
        assert "missing: 0\n" in paced
        assert "from sending to delivery" in paced
        alone = gapless("bench", "--subscribers", "0", *common)
        assert "delivered: 0, 0 a second" in alone.stdout
        assert "there are no topics" in gapless("topic", "list", "--url", url).stderr
    refused = gapless("bench", *common)
    assert refused.returncode == 1
    assert "no broker answers" in refused.stderr
