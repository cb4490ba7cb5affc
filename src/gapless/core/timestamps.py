"""Timestamps: moments in UTC, to the microsecond, as `datetime`, as text and as a number.

The text is RFC 3339 with a time zone; `show_timestamp` always writes UTC. The number counts
microseconds since 1970.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

Timestamp = datetime
"""The class of timestamps. Machines import it from here: `datetime` itself can ask the clock."""

EPOCH = datetime.fromtimestamp(0, UTC)
MICROSECOND = timedelta(microseconds=1)
FIRST = datetime.min.replace(tzinfo=UTC)
LAST = datetime.max.replace(tzinfo=UTC)
"""The first and the last moment that a timestamp can be."""

FORM = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)([Zz]|[+-]\d\d:\d\d)?", re.ASCII
)
EXAMPLE = "2026-11-17T09:00:00Z"
NO_ZONE = "a time without a time zone"
BEYOND = "beyond the years 1 to 9999 of UTC"


def in_utc(value: datetime) -> datetime:
    """The same moment in UTC; `ValueError` says why it is no timestamp."""
    if value.tzinfo is UTC:
        return value
    if value.utcoffset() is None:
        raise ValueError(NO_ZONE)
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError(BEYOND) from None


def is_timestamp(value: object) -> bool:
    """Is it a moment that has a time zone?"""
    return isinstance(value, datetime) and (value.tzinfo is UTC or value.utcoffset() is not None)


def parse_timestamp(text: str) -> datetime:
    """The moment that a text of RFC 3339 names, in UTC; `ValueError` says what is wrong."""
    found = FORM.fullmatch(text)
    if found is None:
        raise ValueError("not a date and a time with at most six digits after the second")
    day, time, zone = found.groups()
    if zone is None:
        raise ValueError(NO_ZONE)
    try:
        return in_utc(datetime.fromisoformat(f"{day}T{time}{zone.upper()}"))
    except ValueError as error:
        raise ValueError(str(error)) from None


def show_timestamp(value: datetime) -> str:
    """The text of a moment, with as many digits as it needs."""
    return in_utc(value).replace(tzinfo=None).isoformat() + "Z"


def to_microseconds(value: datetime) -> int:
    """Microseconds since 1970."""
    return (value - EPOCH) // MICROSECOND
