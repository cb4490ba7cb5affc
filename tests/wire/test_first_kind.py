"""The kind of a message is told without decoding it, if it stands first."""

from __future__ import annotations

import pytest
from msgspec import msgpack

from gapless.core.client_messages import Publish
from gapless.core.events import EventBatch
from gapless.core.identity import TopicName
from gapless.wire.codec import first_kind
from gapless.wire.events import encode_event
from gapless.wire.kinds import codec


def test_our_own_messages_say_their_kind_first() -> None:
    message = Publish(TopicName("t"), 1, EventBatch.join([encode_event({})]))
    assert first_kind(memoryview(codec().encode(message))) == "publish"


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        (msgpack.encode({"kind": "stage", "a": 1}), "stage"),
        (msgpack.encode({"a": 1, "kind": "stage"}), None),
        (msgpack.encode({"kind": 5}), None),
        (msgpack.encode({"kind": "x" * 40}), None),
        (msgpack.encode({"kind": ""}), None),
        (msgpack.encode(["kind", "stage"]), None),
        (b"", None),
        (b"\x81", None),
        (b"\x81\xa4kind", None),
        (b"\x81\xa4kind\xa5sta", None),
        (b"\x81\xa4kind\xa2\xff\xff", "\ufffd\ufffd"),
    ],
)
def test_any_bytes_give_a_kind_or_none(payload: bytes, kind: str | None) -> None:
    assert first_kind(payload) == kind
