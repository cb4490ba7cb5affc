"""Who may use the door: hosts, origins, tokens and rights; and what strangers learn."""

from __future__ import annotations

import json
import ssl
from typing import TYPE_CHECKING, Any

import pytest
from websockets.asyncio.client import connect as connect_socket
from websockets.exceptions import InvalidStatus

from tests.broker.castle import Castle
from tests.broker.stage import make_broker, run
from tests.doors.http.caller import Caller

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:80", 200),
        ("127.0.0.1", 200),
        ("[::1]:9", 200),
        ("desk.example", 200),
        ("desk.example.:80", 200),
        ("evil.example", 421),
        ("", 421),
    ],
)
def test_without_security_the_door_answers_to_its_own_names(
    tmp_path: Path, host: str, status: int
) -> None:
    async def main() -> None:
        options: Any = {"http": "127.0.0.1:0", "http_hosts": ("Desk.Example",)}
        async with make_broker(tmp_path, **options) as broker:
            caller = Caller.of(broker)
            answer = await caller.ask("GET", "/topics", headers={"Host": host})
            assert answer.status == status

    run(main())


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Origin": "https://shop.example"}, 200),
        ({"Origin": "https://shop.example", "Sec-Fetch-Site": "cross-site"}, 200),
    ],
)
def test_pages_of_other_origins_are_refused_unless_they_are_configured(
    tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    async def main() -> None:
        options: Any = {"http": "127.0.0.1:0", "http_origins": ("https://shop.example",)}
        async with make_broker(tmp_path, **options) as broker:
            answer = await Caller.of(broker).ask("GET", "/topics", headers=headers)
            assert answer.status == status
            is_allowed = headers.get("Origin") == "https://shop.example"
            assert ("access-control-allow-origin" in answer.headers) == is_allowed

    run(main())


def test_a_page_of_a_configured_origin_may_send_what_the_door_asks_for_and_read_its_headers(
    tmp_path: Path,
) -> None:
    asked = "authorization, content-type, gapless-publisher, gapless-sequence, last-event-id"

    async def main() -> None:
        options: Any = {"http": "127.0.0.1:0", "http_origins": ("https://shop.example",)}
        async with make_broker(tmp_path, **options) as broker:
            caller = Caller.of(broker)
            origin = {"Origin": "https://shop.example"}
            for method in ("GET", "POST", "PUT", "DELETE"):
                preflight = {
                    **origin,
                    "Access-Control-Request-Method": method,
                    "Access-Control-Request-Headers": asked,
                }
                answer = await caller.ask("OPTIONS", "/topics/t/events", headers=preflight)
                assert answer.status == 200, answer
                allowed = answer.headers["access-control-allow-headers"].lower()
                assert set(asked.split(", ")) <= {each.strip() for each in allowed.split(",")}
                assert method in answer.headers["access-control-allow-methods"]
                assert "access-control-allow-credentials" not in answer.headers
            found = await caller.ask("GET", "/topics/t/events", headers=origin)
            assert found.headers["access-control-allow-origin"] == "https://shop.example"
            assert "Gapless-Next" in found.headers["access-control-expose-headers"]
            other = {**preflight, "Origin": "https://evil.example"}
            refused = await caller.ask("OPTIONS", "/topics/t/events", headers=other)
            assert refused.status in (400, 403)
            assert "access-control-allow-origin" not in refused.headers

    run(main())


def test_a_page_of_its_own_may_use_the_door_and_no_other_gets_leave(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker:
            caller = Caller.of(broker)
            own = {"Origin": f"http://{caller.address}"}
            assert (await caller.ask("GET", "/topics", headers=own)).status == 200
            preflight = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
            answer = await caller.ask("OPTIONS", "/topics/t/events", headers=preflight)
            assert answer.status == 403
            assert "access-control-allow-origin" not in answer.headers
            url = f"ws://{caller.address}/topics/t/subscribe"
            with pytest.raises(InvalidStatus) as caught:
                await connect_socket(url, origin="https://evil.example")  # type: ignore[arg-type]
            assert caught.value.response.status_code == 403

    run(main())


def secure(castle: Castle, address: str | None, who: str = "") -> Caller:
    assert address is not None
    context = ssl.create_default_context(cafile=str(castle.ca))
    return Caller(address, castle.tokens.get(who, who), context)


def test_with_security_a_stranger_learns_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        async with castle.broker(http="127.0.0.1:0") as broker:
            address = broker.doors.addresses["http"]
            for who in ("", "nobody.secret", "admin.wrong"):
                caller = secure(castle, address, who)
                for path in ("/", "/openapi.json", "/topics", "/topics/t/events", "/nothing"):
                    answer = await caller.get(path)
                    if path == "/nothing" and who:
                        assert answer.status in (401, 404)
                        continue
                    assert answer.status == 401, (who, path)
                    assert answer.headers["www-authenticate"] == "Bearer"
                    assert "topic" not in answer.json["detail"]
                assert (await caller.get("/topics/t/subscribe")).status == 401

    run(main())


def test_rights_are_those_of_the_token(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        async with castle.broker(http="127.0.0.1:0") as broker:
            address = broker.doors.addresses["http"]
            feed, desk = secure(castle, address, "feed"), secure(castle, address, "desk")
            assert (await feed.publish("t", {"n": 1})).status == 200
            refused = await desk.publish("t", {"n": 1})
            assert refused.status == 403
            assert "not allowed to publish" in refused.json["detail"]
            numbered = {"Gapless_Publisher": "x", "Gapless_Sequence": "0"}
            assert (await desk.publish("t", {"n": 1}, **numbered)).status == 403
            assert (await feed.get("/topics/t/events")).status == 403
            assert (await feed.get("/topics/t/subscribe")).status == 403
            assert (await desk.ask("PUT", "/topics/new")).status == 403
            assert (await desk.ask("DELETE", "/topics/t")).status == 403
            [topic] = (await desk.get("/topics")).json["topics"]
            assert topic["name"] == "t"
            async with desk.stream("/topics/t/subscribe", name="mine") as reader:
                await reader.begin()
                await feed.publish("t", {"n": 2})
                assert (await reader.next()).json["attributes"] == {"n": 2}

    run(main())


def test_subscriptions_of_others_are_neither_listed_nor_touched(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        async with castle.broker(http="127.0.0.1:0") as broker:
            address = broker.doors.addresses["http"]
            desk, rival = secure(castle, address, "desk"), secure(castle, address, "rival")
            wanted = json.dumps({"topic": "t"})
            assert (await desk.ask("PUT", "/subscriptions/mine", wanted)).status == 200
            assert (await rival.get("/subscriptions")).json == {"subscriptions": []}
            for each in (rival, secure(castle, address, "feed")):
                assert (await each.ask("DELETE", "/subscriptions/mine")).status == 404
                done = await each.ask("POST", "/subscriptions/mine/acknowledge", '{"t/0": 1}')
                assert done.status == 404
            keeper = secure(castle, address, "keeper")
            for each in (desk, keeper):
                [shown] = (await each.get("/subscriptions")).json["subscriptions"]
                assert shown["name"] == "mine"

    run(main())


def test_a_revoked_token_counts_no_more_though_its_client_was_connected(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        async with castle.broker(http="127.0.0.1:0") as broker:
            address = broker.doors.addresses["http"]
            desk = secure(castle, address, "desk")
            assert (await desk.get("/topics")).status == 200
            async with desk.stream("/topics/t/subscribe") as reader:
                await reader.begin()
                del castle.principals.entries["desk"]
                castle.principals.write(tmp_path / "principals.json")
                broker.reload()
                end = await reader.next()
                assert end.kind == "end"
            while (await desk.get("/topics")).status != 401:
                pass  # the client has not heard of it yet
            assert (await desk.get("/topics")).status == 401

    run(main())


def test_the_door_is_not_opened_to_others_without_security(tmp_path: Path) -> None:
    from gapless.core.errors import UsageError

    async def main() -> None:
        with pytest.raises(UsageError, match="--http"):
            async with make_broker(tmp_path, http="0.0.0.0:0"):
                pass

    run(main())
