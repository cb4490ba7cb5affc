"""What comes is shown for people and for programs."""

from __future__ import annotations

import json
import math
from base64 import b64decode
from contextlib import AsyncExitStack
from datetime import datetime, timedelta, timezone
from io import StringIO
from typing import TYPE_CHECKING

import pytest

from gapless.cli.deliveries import Output, print_all, show, show_json
from gapless.cli.event_file import json_events
from gapless.client.delivery import Gap
from gapless.core.errors import EventError
from gapless.core.events import Event
from gapless.core.identity import PubendName, TopicName
from gapless.core.ticks import Span, Tick
from tests.broker.stage import LINE, connected, make_broker, run

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.core.events import Attributes

TOPIC, PUBEND = TopicName("t"), PubendName("t/0")
EVENT = Event({"a": 1, "s": "x"}, b"\xff!", TOPIC, PUBEND, Tick(7))
GAP = Gap(TOPIC, PUBEND, Span(3, 9))


def test_for_people_an_event_and_a_gap_are_a_line_each() -> None:
    assert show(EVENT) == "t/0 7  a=1 s='x'  X'FF21'"
    assert show(GAP) == "gap: t/0 [3,9) was missed"


def test_people_read_characters_truths_times_and_as_much_of_a_body_as_the_line_has() -> None:
    tick = Tick(1_794_799_488_175_000 << 10)
    body = "Grüße aus Łódź\nund mehr, viel mehr, als auf eine Zeile geht".encode()
    event = Event({"s": "Ł'x", "ok": True}, body, TOPIC, PUBEND, tick)
    when = f"{event.published:%Y}"
    line = show(event)
    assert line.startswith(f"t/0 {tick}  {when}-")
    assert line.endswith(f"  s='Ł''x' ok=true  {body.decode().replace(chr(10), chr(92) + 'n')}")
    cut = show(event, 100)
    assert (len(cut), cut[-1]) == (100, "…")
    assert show(event, 10).endswith("  Grüße aus Łódź\\nund…"), "a little of it is always shown"
    assert "Łódź" in show_json(event)


def test_timestamps_and_bytes_are_shown_as_conditions_write_them_and_under_a_mark_in_json() -> None:
    moment = datetime(2026, 11, 17, 10, tzinfo=timezone(timedelta(hours=1)))
    event = EVENT._replace(attributes={"at": moment, "raw": b"\x00\xff"}, body=b"")
    assert show(event) == "t/0 7  at=TIMESTAMP '2026-11-17T09:00:00Z' raw=X'00FF'"
    shown = json.loads(show_json(event))["attributes"]
    assert shown == {"at": {"timestamp": "2026-11-17T09:00:00Z"}, "raw": {"bytes": "AP8="}}
    [(back, _)] = json_events(StringIO(json.dumps(shown)), "")
    assert back == event.attributes
    [(_, body)] = json_events(StringIO(json.dumps(shown)), "at")
    assert json.loads(body) == shown["at"]
    with pytest.raises(EventError, match="line 2: 'noon' is no timestamp"):
        list(json_events(StringIO('{}\n{"at": {"timestamp": "noon"}}'), ""))


def test_for_programs_they_are_json_objects() -> None:
    place = {"attributes": {"a": 1, "s": "x"}, "topic": "t", "pubend": "t/0", "tick": 7}
    assert json.loads(show_json(EVENT._replace(body="ä!".encode()))) == {**place, "body": "ä!"}
    whole = json.loads(show_json(EVENT))
    assert b64decode(whole.pop("body_base64")) == EVENT.body, "bytes that are no text are kept, too"
    assert whole == place
    assert json.loads(show_json(GAP)) == {
        "gap": {"start": 3, "end": 9}, "topic": "t", "pubend": "t/0",
    }  # fmt: skip


def test_numbers_that_json_has_not_come_out_as_json_and_back_as_they_were() -> None:
    numbers: Attributes = {"n": math.nan, "i": math.inf, "m": -math.inf, "x": 1.5, "t": "NaN"}

    def refuse(name: str) -> float:
        raise AssertionError(f"{name} is no JSON")

    line = show_json(EVENT._replace(attributes=numbers, body=b""))
    shown = json.loads(line, parse_constant=refuse)["attributes"]
    assert shown["n"] == {"float": "NaN"}
    [(back, _)] = json_events(StringIO(json.dumps(shown)), "")
    assert str(back) == str(numbers)


@pytest.mark.parametrize("value", [{"float": "nan"}, {"float": 1}, {"float": "NaN", "a": 1}, {}])
def test_another_object_is_no_number(value: object) -> None:
    with pytest.raises(EventError, match="line 1"):
        list(json_events(StringIO(json.dumps({"a": value})), ""))


def test_who_subscribes_is_told_the_broker_where_the_subscription_lives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            found = {}
            for name in ("p", "r1", "r2", "s", "o"):
                found[name] = await stack.enter_async_context(make_broker(tmp_path, LINE, name))
            client = await stack.enter_async_context(connected(found["s"]))
            async with client.subscribe("t", name="desk", tokens="broker") as subscription:
                assert subscription.address == found["s"].address
                await client.publish("t", {"a": 1})
            url, output = f"gapless://{found['o'].address}", Output(None, None, 1, as_json=False)
            await print_all(url, "t", "", "desk", "latest", output, total=False)
            told = capsys.readouterr()
            assert f"subscribed to t at {found['s'].address}" in told.err
            assert "a=1" in told.out

    run(main())
