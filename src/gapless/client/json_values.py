"""Attributes and deliveries as JSON, with the three numbers that JSON lacks.

NaN and the infinities become objects, `{"float": "NaN"}`: any JSON parser reads them. Reading back
is unambiguous, for an attribute is never an object otherwise.
"""

from __future__ import annotations

import math
from base64 import b64encode
from typing import TYPE_CHECKING, Any

from gapless.client.delivery import Gap, Silence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.client.delivery import Delivery
    from gapless.core.events import Value

KEY = "float"
NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def to_json(attributes: Mapping[str, Value]) -> dict[str, Any]:
    """Attributes that `json.dumps` accepts."""
    return {name: _shown(value) for name, value in attributes.items()}


def from_json(read: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as `to_json` was given them; values that it never writes stay as they are."""
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
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return {KEY: "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}


def _meant(value: Any) -> Any:
    if not isinstance(value, dict) or value.keys() != {KEY} or not isinstance(value[KEY], str):
        return value
    return NUMBERS.get(value[KEY], value)
