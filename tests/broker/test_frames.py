"""Frames: what goes to many is encoded once, and everything goes in order."""

from __future__ import annotations

from gapless.broker.frames import Frames
from gapless.core.client_messages import Deliveries, Done
from gapless.core.events import EventBatch
from gapless.core.identity import PubendName, TopicName
from gapless.wire.events import encode_event
from gapless.wire.framing import Unframer
from gapless.wire.kinds import codec

EVENTS = EventBatch((encode_event({"a": 1}, b"body"),))
SHARED = Deliveries(TopicName("t"), 9, PubendName("t/0"), (5,), EVENTS, ((1,),))
QUIET = Deliveries(TopicName("t"), 9, PubendName("t/0"))


def test_messages_come_out_as_they_went_in_and_in_order() -> None:
    messages = [Done(1), SHARED, QUIET, Done(2), SHARED]
    pieces = Frames().of(messages)
    payloads = Unframer().feed(b"".join(pieces))
    assert [codec().decode(payload) for payload in payloads] == messages


def test_a_message_for_many_is_one_piece_made_once() -> None:
    frames = Frames()
    [first], [second] = frames.of([SHARED]), frames.of([SHARED])
    assert first is second
    equal = Deliveries(TopicName("t"), 9, PubendName("t/0"), (5,), EVENTS, ((2,),))
    assert frames.of([equal])[0] is not first
