"""What comes is shown for people and for programs."""

from __future__ import annotations

import json
from base64 import b64decode

from gapless.cli.deliveries import show, show_json
from gapless.client.delivery import Gap
from gapless.core.events import Event
from gapless.core.identity import PubendName, TopicName
from gapless.core.ticks import Span, Tick

TOPIC, PUBEND = TopicName("t"), PubendName("t/0")
EVENT = Event({"a": 1, "s": "x"}, b"\xff!", TOPIC, PUBEND, Tick(7))
GAP = Gap(TOPIC, PUBEND, Span(3, 9))


def test_for_people_an_event_and_a_gap_are_a_line_each() -> None:
    assert show(EVENT) == r"t/0 7  a=1 s='x'  b'\xff!'"
    assert show(GAP) == "gap: t/0 [3,9) was missed"


def test_for_programs_they_are_json_objects() -> None:
    place = {"attributes": {"a": 1, "s": "x"}, "topic": "t", "pubend": "t/0", "tick": 7}
    assert json.loads(show_json(EVENT._replace(body="ä!".encode()))) == {**place, "body": "ä!"}
    whole = json.loads(show_json(EVENT))
    assert b64decode(whole.pop("body_base64")) == EVENT.body, "bytes that are no text are kept, too"
    assert whole == place
    assert json.loads(show_json(GAP)) == {
        "gap": {"start": 3, "end": 9}, "topic": "t", "pubend": "t/0",
    }  # fmt: skip
