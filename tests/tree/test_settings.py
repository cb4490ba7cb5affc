"""Settings that cannot work are refused, with what to say instead."""

from __future__ import annotations

import pytest

from gapless.core.errors import UsageError
from gapless.tree.settings import TreeSettings


def test_scoped_tags_need_the_numbers_of_sources() -> None:
    with pytest.raises(UsageError, match="repeats"):
        TreeSettings(repeats="trail", tags="scoped")


@pytest.mark.parametrize(
    "wrong",
    [{"failures_tolerated": -1}, {"beat_every": 5, "patience": 5}, {"batch_max": 0}],
)
def test_limits_and_timers_that_cannot_be_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        TreeSettings(**wrong)  # type: ignore[arg-type]
