"""Attributes and deliveries as JSON, with the values that JSON lacks.

These become objects of one field, which any JSON parser reads: `{"float": "NaN"}` for NaN and the
infinities, `{"timestamp": "2026-11-17T09:00:00Z"}`, and `{"bytes": "AP8="}` in Base64. Reading back
is unambiguous, for an attribute is never an object otherwise.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gapless.client.delivery import Gap, Silence
from gapless.core.errors import EventError
from gapless.core.timestamps import EXAMPLE, parse_timestamp, show_timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.client.delivery import Delivery
    from gapless.core.events import Value

FLOAT, TIMESTAMP, BYTES = "float", "timestamp", "bytes"
NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def to_json(attributes: Mapping[str, Value]) -> dict[str, Any]:
    """Attributes that `json.dumps` accepts."""
    return {name: _shown(value) for name, value in attributes.items()}


def from_json(read: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as `to_json` was given them; values that it never writes stay as they are. A bad
    timestamp, or bytes that are no Base64, raise `EventError`."""
    return {name: _meant(value) for name, value in read.items()}


def delivery_fields(item: Delivery) -> dict[str, Any]:
    """A delivery that `json.dumps` accepts. A body that is no text is in `body_base64`."""
    if isinstance(item, Silence):
        return {"silence": item.through, "topic": item.topic, "pubend": item.pubend}
    if isinstance(item, Gap):
        span = {"start": item.span.start, "end": item.span.end}
        return {"gap": span, "topic": item.topic, "pubend": item.pubend}
    fields = {**item._asdict(), "attributes": to_json(item.attributes)}
    fields["published"] = item.published.isoformat() if item.published is not None else None
    try:
        fields["body"] = item.body.decode()
    except UnicodeDecodeError:  # JSON has no bytes, and none of them may get lost
        del fields["body"]
        fields["body_base64"] = b64encode(item.body).decode()
    return {key: value for key, value in fields.items() if value is not None}


def _shown(value: Value) -> object:
    if isinstance(value, datetime):
        return {TIMESTAMP: show_timestamp(value)}
    if isinstance(value, bytes):
        return {BYTES: b64encode(value).decode()}
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return {FLOAT: "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}


def _meant(value: Any) -> Any:
    if not isinstance(value, dict) or len(value) != 1:
        return value
    [(mark, text)] = value.items()
    if not isinstance(text, str):
        return value
    if mark == TIMESTAMP:
        try:
            return parse_timestamp(text)
        except ValueError as error:
            problem = f"{text!r:.80} is no timestamp: {error}"
            remedy = f'Write it as in {{"timestamp": "{EXAMPLE}"}}.'
            raise EventError(problem, remedy) from None
    if mark == BYTES:
        try:
            return b64decode(text, validate=True)
        except ValueError:
            problem = f"{text!r:.80} is not bytes in Base64"
            raise EventError(problem, 'Write them as in {"bytes": "AP8="}.') from None
    return NUMBERS.get(text, value) if mark == FLOAT else value
