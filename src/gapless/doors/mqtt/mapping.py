"""What an MQTT message is as an event, and what a topic filter is as a condition.

Theory of operation
    A message becomes an event: its payload is the body, level n of its topic is the attribute
    `level{n}`, and its properties are attributes too. A user property is a text attribute under its
    own name; a name that ends in `:number` or `:boolean` gives an attribute of that type without
    the ending. What attributes cannot hold (names twice, names of our own, odd numbers) is kept as
    JSON in `mqtt_user`, so that subscribers get all user properties unchanged.
    A topic filter becomes a condition on the levels, so the broker's index does the matching.
    An event that no MQTT client published has no levels: its topic is the gapless topic's name.
    docs/how-to/mqtt.md has the mapping as a table.

Invariants
    I1  `message_of(event of attributes_of(message))` has the message's topic, payload, properties
    I2  `condition_of(filter)` holds for the attributes of a message if and only if `matches`
"""

from __future__ import annotations

import base64
import json
import math
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from gapless.core.timestamps import show_timestamp
from gapless.doors.mqtt.packets import NONE, Properties

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gapless.core.events import Value

DEFAULT_TOPIC = "mqtt"
"""The gapless topic of all MQTT topics that no other gapless topic claims."""

LEVELS_MAX = 201
"""Levels of a topic or filter; more are refused."""

LEVELS = tuple(f"level{place}" for place in range(1, LEVELS_MAX + 1))
ATTRIBUTES_MAX = 245
"""Attributes of an event; user properties beyond it are kept in `mqtt_user` only."""

NAME_BYTES_MAX = 255
QOS_MAX = 2
NUMBER, BOOLEAN = ":number", ":boolean"
_PLAIN = ("content_type", "response_topic")
_INTEGERS = range(-(1 << 63), 1 << 63)


class MqttMessage(msgspec.Struct, frozen=True):
    """A message on its way to subscribers. `expires_s`: of the wall clock."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = NONE
    expires_s: float | None = None
    client: str = ""

    def has_expired(self, now_s: float) -> bool:
        return self.expires_s is not None and now_s >= self.expires_s


def gapless_topic(topic: str, claims: Collection[str]) -> str:
    """The gapless topic of an MQTT topic or filter: of its first level's name, if there is one."""
    first = topic.partition("/")[0]
    return first if first in claims else DEFAULT_TOPIC


def matches(levels: list[str], topic: str) -> bool:
    """Whether a filter, given by its levels, takes the topic: the definition of MQTT, word by
    word."""
    names = topic.split("/")
    if topic.startswith("$") and levels[0] in ("+", "#"):
        return False
    for place, level in enumerate(levels):
        if level == "#":
            return True
        if place >= len(names) or (level != "+" and level != names[place]):
            return False
    return len(names) == len(levels)


@lru_cache(1024)
def condition_of(filter_text: str, where: str = "", topic: str = DEFAULT_TOPIC) -> str:
    """The condition on events of a gapless topic for this filter, and the client's own condition.

    The last level tells apart `a` and `a/b`. Where the topic is the first level's, an event without
    levels is one of native publishers, on the topic itself.
    """
    levels = filter_text.split("/")
    native = topic != DEFAULT_TOPIC
    made = []
    if levels[0] in ("+", "#"):
        made.append("level1 NOT LIKE '$%'")
    for place, level in enumerate(levels, 1):
        name = f"level{place}"
        if level == "#":
            break
        if level != "+" and not (native and place == 1):
            made.append(f"{name} = '{level.replace(chr(39), chr(39) * 2)}'")
        elif level == "+" and place > 1:
            made.append(f"{name} IS NOT NULL")
    else:
        made.append(f"level{len(levels) + 1} IS NULL")
    if where:
        made.append(f"({where})")
    return " AND ".join(made)


def attributes_of(message: MqttMessage, *, json_payload: bool = False) -> dict[str, Value]:
    """The attributes of the event that stands for this message."""
    made: dict[str, Value] = dict(zip(LEVELS, message.topic.split("/"), strict=False))
    made["mqtt_qos"] = message.qos
    if message.retain:
        made["mqtt_retain"] = True
    if message.client:
        made["mqtt_client"] = message.client
    if message.expires_s is not None:
        made["mqtt_expires"] = message.expires_s
    properties = message.properties
    if properties:
        for name in _PLAIN:
            if name in properties:
                made[name] = properties[name]
        if "correlation_data" in properties:
            made["correlation_data"] = base64.b64encode(properties["correlation_data"]).decode()
        if properties.get("payload_format"):
            made["mqtt_format"] = 1
    given = properties.get("user", [])
    if given:
        _add_user(made, given)
    if json_payload and message.payload[:1] == b"{":
        _add_json(made, message.payload)
    if (given or json_payload) and _pairs(made) != given:
        made["mqtt_user"] = json.dumps(given, ensure_ascii=False)
    return made


def _add_user(made: dict[str, Value], pairs: list[tuple[str, str]]) -> None:
    for key, text in pairs:
        name, value = _typed(key, text)
        if value is not None and _is_free(name) and name not in made:
            if len(made) >= ATTRIBUTES_MAX:
                break
            made[name] = value


def _typed(key: str, text: str) -> tuple[str, Value | None]:
    """An attribute of a user property; None if its text is no value of that type."""
    if key.endswith(NUMBER):
        return key[: -len(NUMBER)], _number(text)
    if key.endswith(BOOLEAN):
        return key[: -len(BOOLEAN)], {"true": True, "false": False}.get(text.lower())
    return key, text


def _number(text: str) -> int | float | None:
    try:
        whole = int(text)
    except ValueError:
        try:
            value = float(text)
        except ValueError:
            return None
        return value if math.isfinite(value) else None
    return whole if whole in _INTEGERS else None


@lru_cache(4096)
def _is_free(name: str) -> bool:
    """Whether a client may name an attribute so: the levels and our own names are taken."""
    is_ours = name.startswith("mqtt_") or (name.startswith("level") and name[5:].isdigit())
    is_ours = is_ours or name in (*_PLAIN, "correlation_data")
    return bool(name) and not is_ours and len(name.encode()) <= NAME_BYTES_MAX


def _add_json(made: dict[str, Value], payload: bytes) -> None:
    """Members of a JSON object that are texts, numbers or booleans are attributes too."""
    try:
        read: Any = json.loads(payload)
    except (ValueError, RecursionError):
        return
    for name, value in read.items():
        fits = isinstance(value, str | bool) or (
            (isinstance(value, int) and value in _INTEGERS) or isinstance(value, float)
        )
        if fits and _is_free(name) and name not in made and len(made) < ATTRIBUTES_MAX:
            if isinstance(value, str) and not _is_text(value):
                continue
            made[name] = value


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _pairs(attributes: Mapping[str, Value]) -> list[tuple[str, str]]:
    """Attributes as user properties."""
    made = []
    for name, value in attributes.items():
        if not _is_free(name):
            continue
        if isinstance(value, str):
            made.append((name, value))
        elif isinstance(value, bool):
            made.append((name + BOOLEAN, "true" if value else "false"))
        elif isinstance(value, datetime):
            made.append((name, show_timestamp(value)))
        elif isinstance(value, bytes):
            made.append((name, base64.b64encode(value).decode()))
        else:
            made.append((name + NUMBER, repr(value)))
    return made


def message_of(attributes: Mapping[str, Value], body: bytes, gapless: str) -> MqttMessage:
    """The message that stands for an event of this gapless topic."""
    levels: list[str] = []
    for name in LEVELS:
        level = attributes.get(name)
        if level is None:
            break
        levels.append(str(level))
    properties: Properties = {}
    if attributes.get("mqtt_format") == 1:
        properties["payload_format"] = 1
    for name in _PLAIN:
        if isinstance(text := attributes.get(name), str):
            properties[name] = text
    if isinstance(text := attributes.get("correlation_data"), str):
        try:
            properties["correlation_data"] = base64.b64decode(text, validate=True)
        except ValueError:
            properties["correlation_data"] = text.encode()[:65535]
    if isinstance(text := attributes.get("mqtt_user"), str):
        pairs = _kept_pairs(text)
    else:
        pairs = _pairs(attributes)
    if pairs:
        properties["user"] = pairs
    expires, qos = attributes.get("mqtt_expires"), attributes.get("mqtt_qos")
    return MqttMessage(
        "/".join(levels) if levels else gapless,
        body,
        qos if isinstance(qos, int) and 0 <= qos <= QOS_MAX else QOS_MAX,
        attributes.get("mqtt_retain") is True,
        properties or NONE,
        float(expires) if isinstance(expires, int | float) else None,
        str(attributes.get("mqtt_client", "")),
    )


def _kept_pairs(text: str) -> list[tuple[str, str]]:
    """Of `mqtt_user`; none if a native publisher has written something else there."""
    try:
        return [(str(key), str(value)) for key, value in json.loads(text)]
    except (ValueError, TypeError, RecursionError):
        return []
