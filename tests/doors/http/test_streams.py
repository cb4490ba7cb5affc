"""Subscriptions over HTTP: server-sent events and WebSockets that go on where they were."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from websockets.asyncio.client import connect as connect_socket
from websockets.exceptions import ConnectionClosed, InvalidStatus

from gapless.doors.http import feed, streams
from tests.broker.stage import connected, make_broker, run, wait_until
from tests.doors.http.caller import Caller

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.broker.broker import Broker


def numbers(events: list[Any]) -> list[int]:
    return [each.json["attributes"]["n"] for each in events]


def test_a_subscription_streams_what_matches_with_the_token_as_id(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker, connected(broker) as client:
            caller = Caller.of(broker)
            async with caller.stream("/topics/t/subscribe", where="n > 1") as reader:
                receipts = await client.publish_many("t", [({"n": n}, b"x") for n in range(4)])
                first, second = await reader.events(2)
                assert numbers([first, second]) == [2, 3]
                assert first.json["body"] == "x"
                assert json.loads(reader.last) == {"t/0": receipts[3].tick + 1}
                assert reader.retry == streams.RETRY_MS

    run(main())


@pytest.mark.parametrize("name", ["", "desk"])
def test_a_stream_goes_on_behind_the_last_id_that_its_reader_has(tmp_path: Path, name: str) -> None:
    """Each connection takes a few events and leaves; none is missing, none comes twice."""

    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker, connected(broker) as client:
            caller, seen, last = Caller.of(broker), [], ""
            query = {"name": name} if name else {}
            async with client.subscribe("two", name="keeper"):
                pass  # what nobody wants would be released
            async with caller.stream("/topics/two/subscribe", **query) as reader:
                last = await reader.begin()
            for turn in range(6):
                for n in range(5):
                    await client.publish("two", {"n": turn * 5 + n})
                async with caller.stream("/topics/two/subscribe", last, **query) as reader:
                    for _ in range(4 if turn < 5 else 10):
                        seen += numbers([await reader.next()])
                        last = reader.last
            assert sorted(seen) == list(range(30))

    run(main())


def test_the_last_event_id_counts_before_the_from_of_the_url(tmp_path: Path) -> None:
    """A browser connects again with the URL it had, and with the ID it has."""

    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker, connected(broker) as client:
            caller = Caller.of(broker)
            async with client.subscribe("t", name="keeper"):
                pass
            for n in range(3):
                await client.publish("t", {"n": n})
            query = {"from": "earliest"}
            async with caller.stream("/topics/t/subscribe", **query) as reader:
                assert numbers(await reader.events(2)) == [0, 1]
                last = reader.last
            async with caller.stream("/topics/t/subscribe", last, **query) as reader:
                assert numbers([await reader.next()]) == [2]

    run(main())


def test_what_was_released_is_an_event_of_its_own(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker, connected(broker) as client:
            caller = Caller.of(broker)
            async with client.subscribe("t", name="keeper") as keeper:
                first = await client.publish("t", {"n": 0})
                await client.publish("t", {"n": 1})
                [await anext(keeper) for _ in range(2)]
                await keeper.acknowledge()
            while (await client.positions("t"))["t/0"][0] <= first.tick:
                pass  # it is about to be released
            last = json.dumps({"t/0": first.tick})
            async with caller.stream("/topics/t/subscribe", last) as reader:
                gap = await reader.next()
                assert gap.kind == "gap"
                assert gap.json["pubend"] == "t/0"
                assert gap.json["gap"]["start"] == first.tick
                await client.publish("t", {"n": 2})
                assert numbers([await reader.next()]) == [2]

    run(main())


def test_a_stream_of_a_topic_that_keeps_nothing_says_that_something_may_be_missing(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker, connected(broker) as client:
            caller = Caller.of(broker)
            await client.create_topic("fast", service="reliable")
            async with caller.stream("/topics/fast/subscribe") as reader:
                assert await reader.begin() == "{}"
            async with caller.stream("/topics/fast/subscribe", "{}") as reader:
                gap = await reader.next()
                assert (gap.kind, gap.json["gap"]) == ("gap", None)
                await client.publish("fast", {"n": 7})
                assert numbers([await reader.next()]) == [7]
            named = await caller.get("/topics/fast/subscribe", name="desk")
            assert named.status == 400

    run(main())


def test_keep_alive_moves_the_id_past_what_does_not_match(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "KEEP_ALIVE_S", 0.02)

    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker, connected(broker) as client:
            caller = Caller.of(broker)
            async with caller.stream("/topics/t/subscribe", where="n < 0") as reader:
                before = await reader.begin()
                receipt = await client.publish("t", {"n": 1})
                while json.loads(reader.last).get("t/0", 0) <= receipt.tick:
                    await reader.block()
                assert reader.comments
                assert reader.last != before

    run(main())


@pytest.mark.parametrize("name", ["", "desk"])
def test_a_reader_that_does_not_read_is_detached_and_misses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(streams, "STALL_S", 0.05)
    detached = counting_detachments(monkeypatch)
    count, body = 400, b"x" * 50_000

    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker, connected(broker) as client:
            caller = Caller.of(broker)
            async with client.subscribe("t", name="keeper"):
                pass
            query = {"name": name} if name else {}
            async with slow_stream(caller, **query) as reader:
                await reader.begin()
                for n in range(count):
                    await client.publish("t", {"n": n}, body)
                await wait_until(lambda: len(detached) > 0)
                assert numbers(await reader.events(count)) == list(range(count))

    run(main())


def counting_detachments(monkeypatch: pytest.MonkeyPatch) -> list[feed.Feed]:
    """The feeds that are detached from now on."""
    detached: list[feed.Feed] = []
    original = feed.Feed.detach

    async def detach(self: feed.Feed) -> None:
        detached.append(self)
        await original(self)

    monkeypatch.setattr(feed.Feed, "detach", detach)
    return detached


def slow_stream(caller: Caller, **query: object) -> Any:
    """A stream whose connection takes little that is not read."""
    import socket
    from contextlib import asynccontextmanager
    from urllib.parse import urlencode

    from tests.doors.http.caller import EventReader, read_head

    @asynccontextmanager
    async def opened() -> Any:
        host, port = caller.address.split(":")
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, (host, int(port)))
        reader, writer = await asyncio.open_connection(sock=connection, limit=1 << 14)
        try:
            path = f"/topics/t/subscribe?{urlencode(query)}"
            writer.write(caller.head("GET", path, {}))
            status, _ = await read_head(reader)
            assert status == 200
            yield EventReader(reader, "")
        finally:
            writer.close()

    return opened()


def test_a_reader_that_never_reads_again_loses_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "STALL_S", 0.02)
    monkeypatch.setattr(streams, "GIVE_UP_S", 0.02)

    async def main() -> None:
        async with (
            make_broker(tmp_path, http="127.0.0.1:0") as broker,
            connected(broker) as client,
            slow_stream(Caller.of(broker)) as reader,
        ):
            await reader.begin()
            for n in range(200):
                await client.publish("t", {"n": n}, b"x" * 50_000)
            await wait_until(lambda: not open_streams(broker))

    run(main())


def open_streams(broker: Broker) -> int:
    door: Any = broker.doors.opened["http"]
    return int(door._app._streams)


def test_a_stopping_broker_ends_its_streams_with_a_retry(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker:
            caller = Caller.of(broker)
            async with caller.stream("/topics/t/subscribe") as reader:
                await reader.begin()
                reader.retry = 0
                draining = asyncio.ensure_future(broker.drain())
                with pytest.raises(EOFError):
                    await reader.next()
                assert reader.retry == streams.RETRY_MS
                await draining

    run(main())


def test_two_readers_of_one_name_do_not_fight(tmp_path: Path) -> None:
    """The later one has it; the earlier one is told so, and comes back late."""

    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker, connected(broker) as client:
            caller = Caller.of(broker)
            async with caller.stream("/topics/t/subscribe", name="desk") as first:
                await first.begin()
                async with caller.stream("/topics/t/subscribe", name="desk") as second:
                    end = await first.next()
                    assert end.kind == "end"
                    assert end.json["remedy"]
                    assert first.retry == streams.RETRY_ENDED_MS
                    await client.publish("t", {"n": 1})
                    assert numbers([await second.next()]) == [1]

    run(main())


# --- WebSocket ------------------------------------------------------------------------------------


def test_a_socket_streams_acknowledges_and_goes_on_by_its_token(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker, connected(broker) as client:
            url = f"ws://{broker.doors.addresses['http']}/topics/t/subscribe?name=desk"
            async with connect_socket(url) as socket:
                start = json.loads(await socket.recv())["token"]
                receipt = await client.publish("t", {"n": 1})
                message = json.loads(await socket.recv())
                assert message["event"]["attributes"] == {"n": 1}
                assert json.loads(message["token"]) == {"t/0": receipt.tick + 1}
                await socket.send(json.dumps({"acknowledge": message["token"]}))
                assert json.loads(await socket.recv()) == {"acknowledged": message["token"]}
                for bad in ("5", '{"acknowledge": 5}', "{", '{"acknowledge": "x"}'):
                    await socket.send(bad)
                    assert json.loads(await socket.recv())["problem"]["status"] == 400
            [shown] = (await Caller.of(broker).get("/subscriptions")).json["subscriptions"]
            assert shown["acknowledged"] == message["token"] != start
            await client.publish("t", {"n": 2})
            async with connect_socket(url) as socket:
                await socket.recv()
                assert json.loads(await socket.recv())["event"]["attributes"] == {"n": 2}

    run(main())


def test_a_socket_that_does_not_read_is_detached_and_misses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "STALL_S", 0.05)
    detached = counting_detachments(monkeypatch)
    count, body = 400, b"x" * 50_000

    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker, connected(broker) as client:
            async with client.subscribe("t", name="keeper"):
                pass
            url = f"ws://{broker.doors.addresses['http']}/topics/t/subscribe"
            async with connect_socket(url, max_queue=1) as socket:
                await socket.recv()
                for n in range(count):
                    await client.publish("t", {"n": n}, body)
                await wait_until(lambda: len(detached) > 0)
                found, last = list[int](), 0
                while len(found) < count:
                    message = json.loads(await socket.recv())
                    if "event" in message:
                        found.append(message["event"]["attributes"]["n"])
                        token = json.loads(message["token"])["t/0"]
                        assert last < token == message["event"]["tick"] + 1
                        last = token
                assert found == list(range(count))

    run(main())


def test_a_socket_that_never_reads_again_loses_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "STALL_S", 0.02)
    monkeypatch.setattr(streams, "GIVE_UP_S", 0.02)

    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker, connected(broker) as client:
            url = f"ws://{broker.doors.addresses['http']}/topics/t/subscribe"
            async with connect_socket(url, max_queue=1) as socket:
                await socket.recv()
                for n in range(400):
                    await client.publish("t", {"n": n}, b"x" * 50_000)
                await wait_until(lambda: not open_streams(broker))

    run(main())


def test_a_gap_over_a_socket_is_no_event_and_an_end_says_why(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker, connected(broker) as client:
            async with client.subscribe("t", name="keeper") as keeper:
                first = await client.publish("t", {"n": 0})
                await anext(keeper)
                await keeper.acknowledge()
            while (await client.positions("t"))["t/0"][0] <= first.tick:
                pass  # it is about to be released
            start = quote(json.dumps({"t/0": first.tick}))
            address = broker.doors.addresses["http"]
            async with connect_socket(f"ws://{address}/topics/t/subscribe?from={start}") as socket:
                await socket.recv()
                gap = json.loads(await socket.recv())
                assert gap["gap"]["start"] == first.tick
                assert "event" not in gap
                assert json.loads(gap["token"])["t/0"] == gap["gap"]["end"]
            url = f"ws://{address}/topics/t/subscribe?name=desk"
            async with connect_socket(url) as one, connect_socket(url) as two:
                assert json.loads(await two.recv())["token"]
                while "problem" not in (told := json.loads(await one.recv())):
                    pass
                assert told["problem"]["remedy"]
                with pytest.raises(ConnectionClosed) as caught:
                    await one.recv()
                assert caught.value.rcvd is not None
                assert caught.value.rcvd.code == streams.FAILED

    run(main())


def test_a_socket_that_cannot_be_is_refused_with_a_problem(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker:
            url = f"ws://{broker.doors.addresses['http']}/topics/none/subscribe"
            with pytest.raises(InvalidStatus) as caught:
                await connect_socket(url)
            assert caught.value.response.status_code == 404
            assert b"there is no topic" in (caught.value.response.body or b"")

    run(main())


def test_a_stopping_broker_ends_its_sockets_as_restarting(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker:
            url = f"ws://{broker.doors.addresses['http']}/topics/t/subscribe"
            async with connect_socket(url) as socket:
                await socket.recv()
                draining = asyncio.ensure_future(broker.drain())
                with pytest.raises(ConnectionClosed) as caught:
                    await socket.recv()
                assert caught.value.rcvd is not None
                assert caught.value.rcvd.code == 1012  # the service restarts (RFC 6455)
                await draining

    run(main())
