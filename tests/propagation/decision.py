"""The decision for one message and one child, as the paper words it, with its reason.

A broker decides for whole batches (`node.durable.interest_table`); the tests compare with this.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Reason(Enum):
    """Why a message passes to a child, or does not."""

    MATCHED = "a subscription that is known matches"
    FILTERED = "all subscriptions that count are known, and none matches"
    INSUFFICIENT = "subscriptions count that are not known"
    UNKNOWN_DIGEST = "it is not known which subscriptions count"


class Decision(NamedTuple):
    """Whether a message passes, and why."""

    passes: bool
    because: Reason


def decide(sufficient: bool | None, matched: bool) -> Decision:
    """The decision for one message and one child; `sufficient` is None if that is unknown."""
    if matched:
        return Decision(True, Reason.MATCHED)
    if sufficient is None:
        return Decision(True, Reason.UNKNOWN_DIGEST)
    return Decision(False, Reason.FILTERED) if sufficient else Decision(True, Reason.INSUFFICIENT)
