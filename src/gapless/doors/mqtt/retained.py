"""Retained messages: the last of each topic, as the log says.

Theory of operation
    A retained message is an event like any other, with `mqtt_retain`. Each door has a named
    subscription to those events, so all doors of a network come to the same table, and a door that
    was away catches up. A message that this door publishes is in its table as soon as the broker
    has it; its event comes later and changes nothing. The table is written to the journal before
    the events are acknowledged.

Bound: `BYTES_MAX` for all messages; a retained message beyond it is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gapless.core.errors import UsageError
from gapless.doors.mqtt.journal import KEY_BYTES_MAX
from gapless.doors.mqtt.mapping import MqttMessage, matches

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gapless.core.events import Value
    from gapless.doors.mqtt.journal import Fact
    from gapless.doors.mqtt.session import TopicSubscription

BYTES_MAX = 48 << 20
TABLE = "retained"


class Entry(msgspec.Struct, frozen=True):
    """The retained message of a topic; the higher tick counts."""

    message: MqttMessage
    tick: int
    attributes: dict[str, Any]  # each a `Value`: msgspec has no union of texts and timestamps


class Retained:
    """The table of one door."""

    def __init__(self, facts: Mapping[str, bytes]) -> None:
        self._entries: dict[str, Entry] = {
            topic: msgspec.convert(_read(value), Entry) for topic, value in facts.items()
        }
        self.size = sum(map(len, facts.values()))
        self._ticks: dict[str, int] = {}  # of topics that were emptied

    def __len__(self) -> int:
        return len(self._entries)

    def check_room(self, message: MqttMessage) -> None:
        if message.payload and self.size + len(message.payload) > BYTES_MAX:
            raise UsageError("there is no room for retained messages", "Remove some of them.")
        if len(message.topic.encode()) > KEY_BYTES_MAX:
            raise UsageError(
                "the topic of a retained message is too long",
                f"Use at most {KEY_BYTES_MAX} bytes.",
            )

    def put(self, message: MqttMessage, attributes: Mapping[str, Value], tick: int) -> Fact | None:
        """Take a message, and say what to write; None if a later one is here already."""
        topic = message.topic
        if len(topic.encode()) > KEY_BYTES_MAX:
            return None
        before = self._entries.get(topic)
        if (before.tick if before is not None else self._ticks.get(topic, 0)) > tick:
            return None
        if before is not None:
            self.size -= len(before.message.payload)
        if not message.payload:
            self._entries.pop(topic, None)
            self._ticks[topic] = tick
            while len(self._ticks) > 10_000:
                del self._ticks[next(iter(self._ticks))]
            return TABLE, topic, None
        entry = Entry(message, tick, dict(attributes))
        self._entries[topic] = entry
        self.size += len(message.payload)
        return TABLE, topic, _write(entry)

    def matching(self, subscription: TopicSubscription) -> Iterator[MqttMessage]:
        levels = subscription.levels
        if not set("+#") & set(subscription.plain):
            found = self._entries.get(subscription.plain)
            entries = [found] if found is not None else []
        else:
            taken = sorted(topic for topic in self._entries if matches(levels, topic))
            entries = [self._entries[topic] for topic in taken]
        for entry in entries:
            condition = subscription.condition
            if condition is None or condition.matches(entry.attributes):
                yield entry.message


def _write(entry: Entry) -> bytes:
    return encoder.encode(entry)


def _read(value: bytes) -> object:
    return decoder.decode(value)


encoder = msgspec.msgpack.Encoder()  # noqa: TID251 - the door's own file
decoder = msgspec.msgpack.Decoder()  # noqa: TID251
