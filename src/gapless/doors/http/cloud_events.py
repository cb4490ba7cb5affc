"""CloudEvents 1.0 as events of gapless, and events of gapless as CloudEvents.

Theory of operation
    Context attributes and extensions are attributes of the same names, so that a condition reads
    `type = 'order.created' AND source LIKE '/shop/%'`; the data is the body. `specversion` is an
    attribute too: it marks the event as a CloudEvent. JSON data becomes its JSON text, other data
    its bytes. In binary mode all attributes are texts, as HTTP headers are.
    The way back needs `specversion`. An event without it gets an id of its pubend and tick, its
    topic as source, and a type of our own; its attributes are extensions, as far as their names
    and values can be.

Source: CloudEvents 1.0.2, its JSON event format, and its HTTP protocol binding (sec. 3).
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from gapless.core.errors import EventError
from gapless.core.timestamps import show_timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.core.events import Attributes, Event, Value

VERSION = "1.0"
REQUIRED = ("id", "source", "type", "specversion")
NAME = re.compile(r"[a-z0-9]{1,100}")
HEADER = "ce-"
OWN_TYPE = "gapless.event"
REMEDY = "See CloudEvents 1.0; specversion, id, source and type are required."
INTEGER_MAX = (1 << 31) - 1
"""The largest integer of a CloudEvent; a larger number is written as text."""


def parse_structured(found: object) -> tuple[Attributes, bytes]:
    """An event of the JSON object of a CloudEvent."""
    if not isinstance(found, dict):
        raise EventError("a CloudEvent is a JSON object", REMEDY)
    context = {
        name: value
        for name, value in found.items()
        if name not in ("data", "data_base64") and value is not None
    }
    check(context)
    if "data_base64" in found:
        if "data" in found or not isinstance(found["data_base64"], str):
            raise EventError("data_base64 is a text, and stands without data", REMEDY)
        return context, decode(found["data_base64"])
    return context, encode_data(found, str(context.get("datacontenttype", "")))


def encode_data(found: Mapping[str, Any], content_type: str) -> bytes:
    data = found.get("data")
    if data is None:
        return b""
    is_text = isinstance(data, str) and content_type != "" and not is_json(content_type)
    try:
        return (data if is_text else json.dumps(data, separators=(",", ":"))).encode()
    except UnicodeEncodeError:
        raise EventError("data has half a surrogate pair, which has no UTF-8", REMEDY) from None


def parse_binary(
    media_type: str, headers: Mapping[str, str], body: bytes
) -> tuple[Attributes, bytes]:
    """An event of the headers and the body of a request in binary mode."""
    context: dict[str, Any] = {
        name.removeprefix(HEADER): unquote(value.strip().strip('"'))
        for name, value in headers.items()
        if name.startswith(HEADER)
    }
    content_type = headers.get("content-type", media_type)
    if content_type:
        context["datacontenttype"] = content_type
    check(context)
    return context, body


def check(context: Mapping[str, Any]) -> None:
    """`EventError` unless these may be the context attributes of a CloudEvent."""
    for name in REQUIRED:
        if not isinstance(context.get(name), str) or not context[name]:
            raise EventError(f"a CloudEvent has a text {name}, which is not empty", REMEDY)
    if context["specversion"] != VERSION:
        problem = f"specversion {context['specversion']!r:.80} is not supported"
        raise EventError(problem, f"Use {VERSION}.")
    for name, value in context.items():
        if not NAME.fullmatch(name):
            raise EventError(f"{name!r:.80} is no name of a CloudEvent's attribute", REMEDY)
        if not isinstance(value, bool | int | float | str):
            raise EventError(f"{name} of a CloudEvent is a text, a number or a bool", REMEDY)


def show_structured(event: Event) -> dict[str, Any]:
    """The JSON object of a CloudEvent."""
    attributes = dict(event.attributes)
    if attributes.get("specversion") != VERSION or not all(attributes.get(n) for n in REQUIRED):
        attributes = {
            **{name: value for name, value in attributes.items() if NAME.fullmatch(name)},
            "specversion": VERSION,
            "id": f"{event.pubend}@{event.tick}",
            "source": f"/topics/{quote(event.topic, safe='')}",
            "type": OWN_TYPE,
        }
    fields: dict[str, Any] = {name: show_value(value) for name, value in attributes.items()}
    if event.body:
        fields |= show_data(event.body, str(attributes.get("datacontenttype", "")))
    return fields


def show_value(value: Value) -> bool | int | str:
    """CloudEvents have no floating numbers, and integers of 32 bits; in JSON, a timestamp is RFC
    3339 and bytes are Base64, both as text."""
    if isinstance(value, datetime):
        return show_timestamp(value)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, bool | str) or (isinstance(value, int) and abs(value) <= INTEGER_MAX):
        return value
    return str(value)


def show_data(body: bytes, content_type: str) -> dict[str, Any]:
    try:
        if is_json(content_type):
            return {"data": json.loads(body)}
        if content_type.startswith("text/"):
            return {"data": body.decode()}
    except (ValueError, RecursionError):
        pass  # it is not what it says it is: as bytes, nothing of it is lost
    return {"data_base64": b64encode(body).decode()}


def is_json(content_type: str) -> bool:
    media_type = content_type.partition(";")[0].strip().lower()
    return media_type in ("", "application/json", "text/json") or media_type.endswith("+json")


def decode(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError) as error:
        raise EventError(f"data_base64 is not base64: {error}", REMEDY) from None
