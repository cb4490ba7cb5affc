"""Publishing under a name and a number: whatever is repeated, each event is published once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from gapless.doors.http import publishing
from tests.broker.stage import connected, make_broker, run, wait_until
from tests.doors.http.caller import Caller

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from gapless.broker.broker import Broker


def named(number: int, name: str = "feed") -> dict[str, str]:
    return {"Gapless_Publisher": name, "Gapless_Sequence": str(number)}


async def published(caller: Caller) -> list[int]:
    return [each["attributes"]["n"] for each in (await caller.get("/topics/t/events")).lines]


def events(low: int, high: int) -> list[dict[str, int]]:
    return [{"n": n} for n in range(low, high)]


def test_a_repeated_request_publishes_nothing_twice(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker, connected(broker) as client:
            caller = Caller.of(broker)
            async with client.subscribe("t", name="keeper"):
                pass
            first = await caller.publish("t", *events(0, 3), **named(0))
            assert first.json == {"publisher": "feed", "first": 0, "next": 3, "repeated": 0}
            again = await caller.publish("t", *events(0, 3), **named(0))
            assert again.json == {"publisher": "feed", "first": 0, "next": 3, "repeated": 3}
            partly = await caller.publish("t", *events(1, 5), **named(1))
            assert partly.json == {"publisher": "feed", "first": 1, "next": 5, "repeated": 2}
            ahead = await caller.publish("t", *events(7, 8), **named(7))
            assert ahead.status == 409
            assert ahead.headers["gapless-next"] == "5"
            position = await caller.ask("POST", "/topics/t/publishers/feed")
            assert position.json == {"publisher": "feed", "next": 5}
            assert await published(caller) == list(range(5))
            found = (await caller.get("/topics/t/events")).lines
            assert [each["sequence"] for each in found] == list(range(5))

    run(main())


def test_numbers_hold_over_a_restart_of_the_broker(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker, connected(broker) as client:
            async with client.subscribe("t", name="keeper"):
                pass
            await Caller.of(broker).publish("t", *events(0, 3), **named(0))
            address = broker.doors.addresses["http"]
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker:
            assert broker.doors.addresses["http"] == address
            caller = Caller.of(broker)
            again = await caller.publish("t", *events(2, 6), **named(2))
            assert again.json["repeated"] == 1
            assert await published(caller) == list(range(6))

    run(main())


def test_a_name_that_another_publisher_took_over_is_taken_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker, connected(broker) as client:
            caller = Caller.of(broker)
            async with client.subscribe("t", name="keeper"):
                pass
            await caller.publish("t", *events(0, 2), **named(0))
            async with client.publisher("t", name="feed") as publisher:
                await publisher.send({"n": 2})
            answer = await caller.publish("t", *events(2, 4), **named(2))
            assert answer.json == {"publisher": "feed", "first": 2, "next": 4, "repeated": 1}
            assert await published(caller) == list(range(4))

    run(main())


def test_requests_of_one_name_at_once_are_published_once_and_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker, connected(broker) as client:
            caller = Caller.of(broker)
            async with client.subscribe("t", name="keeper"):
                pass
            for low in range(0, 30, 10):
                same = (caller.publish("t", *events(low, low + 10), **named(low)) for _ in range(5))
                answers = await asyncio.gather(*same)
                assert sorted(each.json["repeated"] for each in answers) == [0, 10, 10, 10, 10]
            assert await published(caller) == list(range(30))

    run(main())


def test_a_bad_event_among_numbered_ones_says_how_far_it_went(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker, connected(broker) as client:
            caller = Caller.of(broker)
            async with client.subscribe("t", name="keeper"):
                pass
            answer = await caller.publish("t", {"n": 0}, {"n": [1]}, {"n": 2}, **named(0))
            assert answer.status == 400
            assert "below number 1 are published" in answer.json["detail"]
            right = await caller.publish("t", *events(0, 3), **named(0))
            assert right.json["repeated"] == 1
            assert await published(caller) == list(range(3))

    run(main())


def test_a_name_without_a_number_is_refused_and_so_is_a_number_without_a_name(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker:
            caller = Caller.of(broker)
            for header in ("Gapless_Publisher", "Gapless_Sequence"):
                answer = await caller.publish("t", {"n": 1}, **{header: "5"})
                assert answer.status == 400, answer
            for number in ("-1", "x", "1.5", "9" * 30):
                both = {"Gapless_Publisher": "feed", "Gapless_Sequence": number}
                assert (await caller.publish("t", {"n": 1}, **both)).status == 400

    run(main())


def test_the_names_in_use_have_a_bound_and_idle_ones_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "PUBLISHERS_MAX", 2)

    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker:
            caller = Caller.of(broker)
            for n in range(5):
                answer = await caller.publish("t", {"n": n}, **named(0, f"feed-{n}"))
                assert answer.json["next"] == 1
                assert list(open_names(broker)) == [f"feed-{each}" for each in range(n + 1)][-2:]
            for each in open_publishers(broker).values():
                each.users += 1  # a request is being answered
            refused = await caller.publish("t", {"n": 5}, **named(0, "feed-5"))
            assert refused.status == 503
            assert refused.headers["retry-after"]

    run(main())


def open_publishers(broker: Broker) -> dict[publishing.NameKey, publishing.NamedPublisher]:
    door: Any = broker.doors.opened["http"]
    opened: dict[publishing.NameKey, publishing.NamedPublisher] = door._app._publishers._open
    return opened


def open_names(broker: Broker) -> list[str]:
    return [key.name for key in open_publishers(broker)]


def test_a_name_that_is_not_used_is_let_go_and_its_number_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "IDLE_S", 0.02)

    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker:
            caller = Caller.of(broker)
            await caller.publish("t", *events(0, 2), **named(0))
            await wait_until(lambda: not open_names(broker))
            again = await caller.publish("t", *events(1, 3), **named(1))
            assert (again.json["next"], again.json["repeated"]) == (3, 1)

    run(main())
