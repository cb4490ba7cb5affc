"""Verdict: what an audit found of one subscription."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

PROBLEMS = ("lost", "doubled", "reordered", "unwanted")
"""Each of them is a violation: not delivered and not told; more than once; after a later one;
delivered though it does not match, or was never published."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Counts of one subscription. `told`: lost, and said so in one of its `gaps`.

    `unjudged`: deliveries of ticks of which is not known what was published. `unreadable`: lines of
    its journals that are no delivery.
    """

    subscription: str
    expected: int = 0
    delivered: int = 0
    lost: int = 0
    doubled: int = 0
    reordered: int = 0
    unwanted: int = 0
    gaps: int = 0
    told: int = 0
    unjudged: int = 0
    unreadable: int = 0

    @classmethod
    def of(cls, name: str, found: Mapping[str, Any]) -> Verdict:
        known = {field.name for field in fields(cls)} - {"subscription"}
        return cls(subscription=name, **{key: int(found.get(key) or 0) for key in known})

    @property
    def is_clean(self) -> bool:
        return not any(getattr(self, problem) for problem in PROBLEMS)
