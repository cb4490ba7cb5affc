"""Bodies of requests as events: JSON, NDJSON, and CloudEvents in their three modes.

An event is `{"attributes": {…}, "body": "text"}`, or `body_base64` for bytes; an object with none
of these names is the attributes themselves. What a read or a stream gives is accepted too: the
fields that only a broker knows (`BROKER_FIELDS`) are left aside.
"""

from __future__ import annotations

import json
from base64 import b64decode
from binascii import Error as Base64Error
from typing import TYPE_CHECKING, Any

from gapless.client.json_values import from_json
from gapless.core.errors import EventError
from gapless.doors.http.cloud_events import parse_binary, parse_structured
from gapless.doors.http.problems import HttpError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.core.events import Value

Publication = tuple["Mapping[str, Value]", bytes]
"""Attributes and body of an event to publish."""

JSON, NDJSON = "application/json", "application/x-ndjson"
CLOUD_EVENT, CLOUD_EVENTS = "application/cloudevents+json", "application/cloudevents-batch+json"

OWN_FIELDS = {"attributes", "body", "body_base64"}
BROKER_FIELDS = {"topic", "pubend", "tick", "published", "publisher", "sequence"}
EVENTS_MAX = 10_000
"""Events in one request: what the client publishes at once."""

FORM = 'Write {"attributes": {"price": 92.5}, "body": "text"}, or only the attributes.'


def parse_body(media_type: str, headers: Mapping[str, str], body: bytes) -> list[Publication]:
    """The events of a request, at least one; `EventError` or `HttpError` if they are none."""
    if "ce-specversion" in headers or "ce-id" in headers:
        return [parse_binary(media_type, headers, body)]
    match media_type:
        case "application/json":
            found = parse_json(body, "the body")
            events = [parse_event(each) for each in (found if isinstance(found, list) else [found])]
        case "application/x-ndjson" | "application/jsonl" | "application/ndjson":
            events = [
                parse_event(parse_json(line, f"line {number}"))
                for number, line in enumerate(body.split(b"\n"), 1)
                if line.strip()
            ]
        case "application/cloudevents+json":
            events = [parse_structured(parse_json(body, "the body"))]
        case "application/cloudevents-batch+json":
            found = parse_json(body, "the body")
            if not isinstance(found, list):
                raise EventError("a batch of CloudEvents is a JSON array", "Write [{…}, {…}].")
            events = [parse_structured(each) for each in found]
        case _:
            raise HttpError(
                415,
                f"events do not come as {media_type or 'a body without Content-Type'}"[:200],
                f"Use {JSON}, {NDJSON}, {CLOUD_EVENT} or {CLOUD_EVENTS}.",
            )
    if not 0 < len(events) <= EVENTS_MAX:
        raise EventError(f"the body has {len(events)} events", f"Give 1 to {EVENTS_MAX}.")
    return events


def parse_json(text: bytes, where: str) -> Any:
    try:
        return json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise EventError(f"{where} is not JSON: {error}"[:300], "Correct it there.") from None


def refuse_constant(name: str) -> None:
    raise ValueError(f'{name} is no JSON; write {{"float": "{name}"}}')


def parse_event(found: object) -> Publication:
    """An event of its JSON object."""
    if not isinstance(found, dict):
        raise EventError(f"an event is a JSON object, and not {json.dumps(found):.80}", FORM)
    if not OWN_FIELDS & found.keys():
        return from_json(found), b""
    if unknown := found.keys() - OWN_FIELDS - BROKER_FIELDS:
        raise EventError(f"an event has no field {min(unknown)!r:.80}", FORM)
    attributes = found.get("attributes", {})
    if not isinstance(attributes, dict):
        raise EventError("attributes is no JSON object", FORM)
    return from_json(attributes), parse_bytes(found)


def parse_bytes(found: Mapping[str, Any]) -> bytes:
    text, coded = found.get("body", ""), found.get("body_base64", "")
    if not isinstance(text, str) or not isinstance(coded, str) or (text and coded):
        raise EventError("the body is no text", "Give body or body_base64, one of them, as text.")
    return decode_base64("body_base64", coded) if coded else encode_text("body", text)


def decode_base64(what: str, text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError) as error:
        raise EventError(f"{what} is not base64: {error}") from None


def encode_text(what: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise EventError(f"{what} has half a surrogate pair, which has no UTF-8") from None
