"""Arguments of applications, checked before anything is sent: `UsageError` says what is allowed.

Without these checks the client would send a value of a wrong type, the broker would end the
connection, and the client would connect and send it again, for ever. A value that cannot be encoded
at all (half a surrogate pair, a number beyond 64 bits) would fail where no caller could be told.
"""

from __future__ import annotations

from math import inf
from operator import index
from typing import TYPE_CHECKING, SupportsIndex

from gapless.core.errors import FilterError, UsageError
from gapless.core.identity import (
    ProducerName,
    PublisherName,
    SubscriptionName,
    TopicName,
)
from gapless.core.lengths import CONDITION_BYTES_MAX, LONG_NAME_MAX, NAME_BYTES_MAX
from gapless.core.ticks import TICK_MAX
from gapless.core.token import Token

if TYPE_CHECKING:
    from collections.abc import Collection


def name(what: str, given: object, bytes_max: int = NAME_BYTES_MAX) -> str:
    """Text that names something."""
    checked = text(what, given)
    if not 0 < len(checked.encode()) <= bytes_max:
        raise UsageError(f"{what}={given!r:.80} is no name", f"Give 1 to {bytes_max} bytes.")
    return checked


def topic(given: object) -> TopicName:
    return TopicName(name("topic", given))


def publisher(given: object) -> PublisherName:
    if not given:
        raise UsageError("a publisher needs a name", "Give name=…, and use it again later.")
    return PublisherName(name("name", given))


def producer(given: object) -> ProducerName:
    if not given:
        raise UsageError("a producer needs a name", "Give producer=…, and use it again later.")
    return ProducerName(name("producer", given))


def subscription(given: object) -> SubscriptionName:
    """A name that can be sent; the broker says whether it is allowed."""
    return SubscriptionName(name("name", given, LONG_NAME_MAX))


def condition(given: object) -> str:
    """A condition that is short enough to be sent; the broker says whether it is correct."""
    checked = text("condition", given)
    if (size := len(checked.encode())) > CONDITION_BYTES_MAX:
        raise FilterError(
            f"the condition has {size} bytes, more than the {CONDITION_BYTES_MAX} allowed",
            "Shorten it, or use several subscriptions.",
        )
    return checked


def text(what: str, given: object) -> str:
    if not isinstance(given, str):
        raise UsageError(f"{what}={given!r:.80} is no text", "Give a str.")
    try:
        given.encode()
    except UnicodeEncodeError:
        problem = f"{what}={given!r:.80} has half a surrogate pair, which has no UTF-8"
        raise UsageError(problem, "Give text that can be encoded.") from None
    return given


def count(what: str, given: object, least: int = 0, most: int = TICK_MAX) -> int:
    """A whole number, also of numpy; a bool is none."""
    if not isinstance(given, SupportsIndex) or isinstance(given, bool):
        raise UsageError(f"{what}={given!r:.80} is no whole number", f"Give {least} to {most}.")
    if not least <= (number := index(given)) <= most:
        raise UsageError(f"{what} is out of range", f"Give {least} to {most}.")
    return number


def seconds(
    what: str, given: object, *, may_be_zero: bool = False, may_be_endless: bool = False
) -> float:
    """How long something may take."""
    allowed = f"Give {'0 or more' if may_be_zero else 'more than 0'} seconds"
    allowed += ", or math.inf." if may_be_endless else "."
    if not isinstance(given, int | float) or isinstance(given, bool):
        raise UsageError(f"{what}={given!r:.80} is no time", allowed)
    try:
        found = float(given)
    except OverflowError:
        found = inf
    is_long_enough = found > 0 or (found == 0 and may_be_zero)  # NaN is neither
    if not is_long_enough or (found == inf and not may_be_endless):
        raise UsageError(f"{what}={given!r:.80} is out of range", allowed)
    return found


def token(what: str, given: object) -> Token:
    if not isinstance(given, Token):
        remedy = "Give a gapless.Token; Token.from_json(text) makes one."
        raise UsageError(f"{what}={given!r:.80} is no token", remedy)
    return given


def choice(what: str, given: object, known: Collection[object]) -> None:
    if given not in known:
        raise UsageError(f"{what}={given!r:.80} is no choice", f"Use one of {known}.")
