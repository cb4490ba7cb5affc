"""CloudEvents in their three modes, with the official SDK as the client."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.errors import EventError
from gapless.core.events import Event
from gapless.core.identity import PubendName, TopicName
from gapless.core.ticks import Tick
from gapless.doors.http.cloud_events import parse_binary, parse_structured, show_structured
from tests.broker.stage import connected, make_broker, run
from tests.doors.http.caller import Caller, next_event

if TYPE_CHECKING:
    from pathlib import Path

EVENT = {"specversion": "1.0", "id": "7", "source": "/shop", "type": "order.created"}


def delivered(attributes: Any, body: bytes) -> Event:
    return Event(attributes, body, TopicName("t"), PubendName("t/0"), Tick(5))


@given(
    st.dictionaries(
        st.from_regex(r"[a-z0-9]{1,20}", fullmatch=True).filter(lambda name: name[:4] != "data"),
        st.booleans() | st.integers(-(2**31) + 1, 2**31 - 1) | st.text(),
        max_size=4,
    ),
    st.none() | st.integers() | st.text() | st.dictionaries(st.text(), st.integers()),
)
def test_a_cloud_event_comes_back_as_it_was(extensions: dict[str, Any], data: Any) -> None:
    given_event = {**extensions, **EVENT, "datacontenttype": "application/json"}
    if data is not None:
        given_event["data"] = data
    try:
        attributes, body = parse_structured(given_event)
    except EventError:
        assert not json.dumps(given_event, ensure_ascii=False).isascii()  # half a surrogate
        return
    assert show_structured(delivered(attributes, body)) == given_event


@pytest.mark.parametrize(
    "change",
    [
        {"specversion": "0.3"},
        {"id": ""},
        {"source": 5},
        {"Type": "x"},
        {"x": [1]},
        {"data_base64": "!"},
        {"data": 1, "data_base64": "aGk="},
    ],
)
def test_what_is_no_cloud_event_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(EventError):
        parse_structured({**EVENT, **change})


def test_binary_mode_decodes_headers_and_keeps_the_body() -> None:
    headers = {f"ce-{name}": value for name, value in EVENT.items()}
    headers |= {"content-type": "text/plain; charset=utf-8", "ce-subject": "Euro%20%E2%82%AC"}
    attributes, body = parse_binary("text/plain", headers, b"\xff")
    assert attributes["subject"] == "Euro €"
    assert attributes["datacontenttype"] == "text/plain; charset=utf-8"
    assert body == b"\xff"


@pytest.mark.parametrize("missing", ["specversion", "id", "source", "type"])
def test_a_request_in_binary_mode_that_lacks_a_header_is_refused_and_not_taken_for_json(
    tmp_path: Path, missing: str
) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker:
            headers = {f"ce-{name}": text for name, text in EVENT.items() if name != missing}
            kind = {"Content-Type": "application/json"}
            caller = Caller.of(broker)
            answer = await caller.ask("POST", "/topics/t/events", '{"n": 1}', kind | headers)
            assert answer.status == 400
            assert missing in answer.json["detail"]

    run(main())


def test_an_event_of_ours_becomes_a_cloud_event() -> None:
    shown = show_structured(delivered({"price": 92.5, "n": 1, "a b": 2, "big": 1 << 40}, b"\xff"))
    assert shown == {
        "specversion": "1.0", "id": "t/0@5", "source": "/topics/t", "type": "gapless.event",
        "price": "92.5", "n": 1, "big": str(1 << 40), "data_base64": "/w==",
    }  # fmt: skip


def test_the_official_sdk_publishes_in_all_three_modes_and_reads_what_it_published(
    tmp_path: Path,
) -> None:
    from cloudevents.core.bindings.http import (
        HTTPMessage,
        from_http,
        to_binary,
        to_structured,
    )
    from cloudevents.core.formats.json import JSONFormat
    from cloudevents.core.v1.event import CloudEvent

    def make(n: int) -> CloudEvent:
        context = {**EVENT, "id": str(n), "datacontenttype": "application/json", "amount": n}
        return CloudEvent(context, {"n": n, "text": "€"})

    async def main() -> None:
        form = JSONFormat()
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker, connected(broker) as client:
            caller = Caller.of(broker)
            async with client.subscribe("t", "type = 'order.created'", name="keeper") as keeper:
                sent = [make(n) for n in range(4)]
                messages = [to_structured(sent[0], form), to_binary(sent[1], form)]
                for message in messages:
                    answer = await caller.ask(
                        "POST", "/topics/t/events", message.body, dict(message.headers)
                    )
                    assert answer.status == 200, answer
                pair = b"[" + b",".join(to_structured(each, form).body for each in sent[2:]) + b"]"
                kind = {"Content-Type": "application/cloudevents-batch+json"}
                answer = await caller.ask("POST", "/topics/t/events", pair, kind)
                assert len(answer.json["receipts"]) == 2
                events = [await next_event(keeper) for _ in range(4)]
            assert [event.attributes["id"] for event in events] == ["0", "1", "2", "3"]
            accept = {"Accept": "application/cloudevents-batch+json"}
            found = (await caller.ask("GET", "/topics/t/events", headers=accept)).json
            for one, read in zip(sent, found, strict=True):
                structured = {"content-type": "application/cloudevents+json"}
                message = HTTPMessage(structured, json.dumps(read).encode())
                event = from_http(message, form, CloudEvent)
                assert event.get_data() == one.get_data()
                assert event.get_id() == one.get_id()
                assert event.get_type() == one.get_type()
                assert str(event.get_extension("amount")) == str(one.get_extension("amount"))

    run(main())
