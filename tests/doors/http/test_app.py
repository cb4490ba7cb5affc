"""The routes of the door, at a real broker: topics, publishing, subscriptions, errors."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gapless.doors.http import app
from tests.broker.stage import connected, make_broker, run
from tests.doors.http.caller import Caller, next_event, read_answer

if TYPE_CHECKING:
    from pathlib import Path

JSON = {"Content-Type": "application/json"}


def test_a_topic_is_created_shown_listed_and_deleted(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker:
            caller = Caller.of(broker)
            wanted = json.dumps({"pubends": 2, "retention_seconds": 60})
            made = await caller.ask("PUT", "/topics/new", wanted)
            assert made.status == 200
            assert made.json["hosts"] == ["b", "b"]
            assert made.json["retention_seconds"] == 60
            again = await caller.ask("PUT", "/topics/new", wanted)
            assert again.json == made.json
            other = await caller.ask("PUT", "/topics/new", '{"pubends": 3}')
            assert other.status == 409
            listed = (await caller.get("/topics")).json["topics"]
            assert [each["name"] for each in listed] == ["new", "t", "two"]
            assert (await caller.ask("DELETE", "/topics/new")).status == 204
            assert (await caller.get("/topics/new")).status == 404
            assert (await caller.ask("DELETE", "/topics/new")).status == 404

    run(main())


def test_a_topic_that_keeps_events_for_everybody_can_be_read_though_nobody_subscribes(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker:
            caller = Caller.of(broker)
            made = await caller.ask("PUT", "/topics/kept", '{"keep_seconds": 3600}')
            assert (made.status, made.json["keep_seconds"]) == (200, 3600)
            await caller.publish("kept", *({"n": n} for n in range(3)))
            for _ in range(3):  # whatever was released meanwhile
                found = (await caller.get("/topics/kept/events")).lines
                assert [each["attributes"]["n"] for each in found] == [0, 1, 2]

    run(main())


def test_a_slash_in_a_name_is_no_part_of_the_path(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker:
            caller = Caller.of(broker)
            name = "a/events é"
            path = quote(name, safe="")
            assert (await caller.ask("PUT", f"/topics/{path}")).json["name"] == name
            assert (await caller.publish(path, {"n": 1})).status == 200
            found = (await caller.get(f"/topics/{path}/events")).lines
            assert [each["topic"] for each in found] == [name]
            assert (await caller.get("/topics/a/events%20%C3%A9")).status == 404
            assert (await caller.get("/topics/%FF/events")).status == 400

    run(main())


def test_published_events_come_as_they_were_given(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker, connected(broker) as client:
            caller = Caller.of(broker)
            async with client.subscribe("t", name="keeper") as subscription:
                flat = {"text": "é", "n": -5, "price": 92.5, "yes": True, "nan": {"float": "NaN"}}
                answer = await caller.publish("t", flat)
                assert answer.status == 200
                lines = (
                    '{"attributes":{"a":1},"body":"hi"}\n\n{"attributes":{},"body_base64":"/w=="}\n'
                )
                kind = {"Content-Type": "application/x-ndjson"}
                two = await caller.ask("POST", "/topics/t/events", lines, kind)
                events = [await next_event(subscription) for _ in range(3)]
            receipts = [*answer.json["receipts"], *two.json["receipts"]]
            assert [each["tick"] for each in receipts] == [event.tick for event in events]
            assert {each["pubend"] for each in receipts} == {"t/0"}
            first = dict(events[0].attributes)
            assert str(first.pop("nan")) == "nan"
            assert first == {"text": "é", "n": -5, "price": 92.5, "yes": True}
            assert [event.body for event in events] == [b"", b"hi", b"\xff"]

    run(main())


def test_what_a_read_gives_can_be_published_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker:
            caller = Caller.of(broker)
            for name in ("t", "two"):
                wanted = json.dumps({"topic": name, "from": "earliest"})
                await caller.ask("PUT", f"/subscriptions/keeper-{name}", wanted)
            odd = {"at": {"timestamp": "2026-11-17T09:00:00Z"}, "raw": {"bytes": "AP8="}}
            await caller.publish("t", *({"n": n, **odd} for n in range(5)))
            found = await caller.get("/topics/t/events")
            kind = {"Content-Type": "application/x-ndjson"}
            copied = await caller.ask("POST", "/topics/two/events", found.body, kind)
            assert len(copied.json["receipts"]) == 5
            copies = (await caller.get("/topics/two/events")).lines
            assert [each["attributes"] for each in copies] == [{"n": n, **odd} for n in range(5)]

    run(main())


@pytest.mark.parametrize(
    ("kind", "body", "status", "said"),
    [
        ("text/plain", "x", 415, "text/plain"),
        ("", "x", 415, "without Content-Type"),
        ("application/json", "{", 400, "not JSON"),
        ("application/json", "[]", 400, "0 events"),
        ("application/json", f"[{'{},' * 10_000}{{}}]", 400, "10001 events"),
        ("application/json", "5", 400, "a JSON object"),
        ("application/json", '{"a": NaN}', 400, "NaN"),
        ("application/json", '{"a": [1]}', 400, "'a'"),
        ("application/json", '{"a": 1e999}', 200, ""),
        ("application/json", '{"a": {"timestamp": "2026-11-17T09:00:00Z"}}', 200, ""),
        ("application/json", '{"a": {"timestamp": "2026-11-17"}}', 400, "no timestamp"),
        ("application/json", '{"a": {"bytes": "?"}}', 400, "Base64"),
        ("application/json", '{"a": 99999999999999999999}', 400, "'a'"),
        ("application/json", '{"body": "x", "a": 1}', 400, "'a'"),
        ("application/json", '{"attributes": 5}', 400, "attributes"),
        ("application/json", '{"attributes": {}, "body_base64": "!"}', 400, "base64"),
        ("application/json", '{"body": "\\ud800"}', 400, "surrogate"),
        ("application/json", "[" * 100_000, 400, "not JSON"),
        ("application/x-ndjson", '{"a":1}\n{', 400, "line 2"),
        ("application/cloudevents+json", "{}", 400, "CloudEvent"),
        ("application/cloudevents-batch+json", "{}", 400, "array"),
    ],
)
def test_a_bad_body_is_refused_with_what_is_wrong(
    tmp_path: Path, kind: str, body: str, status: int, said: str
) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker:
            caller = Caller.of(broker)
            headers = {"Content-Type": kind} if kind else {}
            answer = await caller.ask("POST", "/topics/t/events", body, headers)
            assert answer.status == status
            if status != 200:
                assert answer.headers["content-type"] == "application/problem+json"
                assert said in answer.json["detail"]
                assert answer.json["remedy"]
                assert answer.json["status"] == status

    run(main())


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("GET", "/nothing", 404, "GET /nothing"),
        ("DELETE", "/topics", 405, "DELETE /topics"),
        ("GET", "/topics/none/events", 404, "there is no topic"),
        ("GET", "/topics/t/events?where=price%20%3E", 400, "end of condition"),
        ("GET", "/topics/t/events?were=x", 400, "'were'"),
        ("GET", "/topics/t/events?limit=0", 400, "limit"),
        ("GET", "/topics/t/events?limit=x", 400, "limit"),
        ("GET", "/topics/t/events?wait=61", 400, "wait"),
        ("GET", "/topics/t/events?wait=nan", 400, "wait"),
        ("GET", "/topics/t/events?wait=1&to=latest&from=x", 400, "token"),
        ("GET", "/topics/t/events?from=%7B%22x%2F0%22%3A1%7D", 400, "'x/0'"),
        ("GET", "/topics/none/subscribe", 404, "there is no topic"),
        ("GET", "/topics/t/subscribe?from=%7B%22x%2F0%22%3A1%7D", 400, "'x/0'"),
        ("GET", "/topics/t/subscribe?from=yesterday", 400, "yesterday"),
        ("GET", "/topics/t/subscribe?where=a%20b", 400, "the name b"),
        ("DELETE", "/subscriptions/none", 404, "there is no subscription"),
        ("PUT", "/subscriptions/x", 400, "topic"),
        ("POST", "/subscriptions/x/acknowledge", 400, "token"),
        ("POST", "/topics/none/publishers/x", 404, "there is no topic"),
    ],
)
def test_a_request_that_cannot_be_is_a_problem_with_a_remedy(
    tmp_path: Path, method: str, path: str, status: int, said: str
) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker:
            answer = await Caller.of(broker).ask(method, path)
            assert answer.status == status, answer
            assert answer.headers["content-type"] == "application/problem+json"
            assert said in answer.json["detail"]
            assert answer.json["remedy"]

    run(main())


def test_a_body_that_is_too_long_is_refused_before_it_is_read(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker:
            caller = Caller.of(broker)
            reader, writer = await caller.open()
            length = {**JSON, "Content-Length": str(app.BODY_BYTES_MAX + 1)}
            writer.write(caller.head("POST", "/topics/t/events", length))
            assert (await read_answer(reader)).status == 413
            writer.close()
            reader, writer = await caller.open()
            chunked = {**JSON, "Transfer-Encoding": "chunked"}
            writer.write(caller.head("POST", "/topics/t/events", chunked))
            piece = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
            for _ in range(app.BODY_BYTES_MAX // 0x10000 + 1):
                writer.write(piece)
            assert (await read_answer(reader)).status == 413
            writer.close()

    run(main())


def test_bodies_of_all_callers_together_have_a_bound(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker:
            caller = Caller.of(broker)
            writers = []
            for _ in range(app.BODIES_BYTES_MAX // app.BODY_BYTES_MAX):
                reader, writer = await caller.open()
                length = {
                    **JSON,
                    "Content-Length": str(app.BODY_BYTES_MAX),
                    "Expect": "100-continue",
                }
                writer.write(caller.head("POST", "/topics/t/events", length))
                await reader.readuntil(b"\r\n\r\n")  # it is being read
                writers.append(writer)
            answer = await caller.publish("t", {"n": 1})
            assert answer.status == 503
            assert answer.headers["retry-after"]
            for writer in writers:
                writer.close()
            while (await caller.publish("t", {"n": 1})).status != 200:
                pass

    run(main())


def test_a_named_subscription_is_created_listed_acknowledged_and_ended(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker, connected(broker) as client:
            caller = Caller.of(broker)
            wanted = json.dumps({"topic": "t", "where": "n > 0"})
            assert (await caller.ask("PUT", "/subscriptions/desk", wanted)).status == 200
            assert (await caller.ask("PUT", "/subscriptions/desk", wanted)).status == 200
            other = json.dumps({"topic": "t", "where": "n > 1"})
            assert (await caller.ask("PUT", "/subscriptions/desk", other)).status == 409
            [shown] = (await caller.get("/subscriptions")).json["subscriptions"]
            assert (shown["name"], shown["topic"], shown["where"]) == ("desk", "t", "n > 0")
            receipt = await client.publish("t", {"n": 1})
            token = json.dumps({receipt.pubend: receipt.tick + 1})
            done = await caller.ask("POST", "/subscriptions/desk/acknowledge", token)
            assert done.status == 204
            [shown] = (await caller.get("/subscriptions")).json["subscriptions"]
            assert json.loads(shown["acknowledged"]) == json.loads(token)
            assert (await caller.ask("DELETE", "/subscriptions/desk")).status == 204
            assert (await caller.get("/subscriptions")).json == {"subscriptions": []}

    run(main())


def test_whatever_is_sent_the_door_answers_and_the_broker_lives(tmp_path: Path) -> None:
    """Property: any body, of any content type, and any parameters; never a 500."""
    kinds = ["application/json", "application/x-ndjson", "application/cloudevents+json", "a/b"]
    texts = st.text(max_size=40)
    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=8,
    )
    bodies = st.binary(max_size=200) | values.map(lambda value: json.dumps(value).encode())
    tokens = st.text(alphabet='{}":,/t01 latestearliest', max_size=30) | texts
    names = st.sampled_from(["from", "to", "where", "limit", "wait", "name", "x"])

    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker:
            caller, loop = Caller.of(broker), asyncio.get_running_loop()

            @settings(
                max_examples=150,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                derandomize=True,
            )
            @given(
                st.sampled_from(kinds), bodies, st.dictionaries(names, tokens, max_size=3), texts
            )
            def check(kind: str, body: bytes, query: dict[str, str], header: str) -> None:
                query.pop("wait", None)
                text = "".join(c for c in header if c.isprintable()).strip()
                asked = (
                    caller.ask(
                        "POST",
                        "/topics/t/events",
                        body,
                        {"Content-Type": kind, "Gapless-Publisher": text, "ce-x": text},
                    ),
                    caller.ask("POST", "/topics/t/events", body, {"Content-Type": kind}),
                    caller.ask("PUT", "/topics/t", body),
                    caller.ask("PUT", f"/subscriptions/{quote(header, safe='')}", body),
                    caller.ask("POST", "/subscriptions/x/acknowledge", body),
                    caller.ask("GET", "/topics/t/events", b"", {"Accept": text}, **query),
                )
                for each in asked:
                    answer = asyncio.run_coroutine_threadsafe(each, loop).result(60)
                    assert answer.status < 500, answer

            await asyncio.to_thread(check)
            assert (await caller.publish("t", {"n": 1})).status == 200

    run(main())
