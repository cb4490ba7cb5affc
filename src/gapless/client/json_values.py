"""Attributes as JSON, with the three numbers that JSON lacks.

NaN and the infinities become objects, `{"float": "NaN"}`: any JSON parser reads them. Reading back
is unambiguous, for an attribute is never an object otherwise.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.core.events import Value

KEY = "float"
NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def to_json(attributes: Mapping[str, Value]) -> dict[str, Any]:
    """Attributes that `json.dumps` accepts."""
    return {name: _shown(value) for name, value in attributes.items()}


def from_json(read: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as `to_json` was given them; values that it never writes stay as they are."""
    return {name: _meant(value) for name, value in read.items()}


def _shown(value: Value) -> object:
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return {KEY: "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}


def _meant(value: Any) -> Any:
    if not isinstance(value, dict) or value.keys() != {KEY} or not isinstance(value[KEY], str):
        return value
    return NUMBERS.get(value[KEY], value)
