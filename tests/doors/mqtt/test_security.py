"""The door behind TLS: a client proves who it is, and may do what its rights say."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

from gapless.broker.doors import show_doors
from gapless.doors import clients
from gapless.doors.mqtt.packets import ConnectPacket, Kind
from tests.broker.castle import Castle
from tests.broker.stage import run, wait_until
from tests.doors.mqtt.stage import Peer

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from gapless.broker.broker import Broker


async def join(
    castle: Castle, broker: Broker, who: str = "", token: str = "", pair: Any = None, **more: Any
) -> Peer:
    context = ssl.create_default_context(cafile=str(castle.ca))
    if pair:
        context.load_cert_chain(pair["certificate"], pair["key"])
    host, port = broker.doors.addresses["mqtt"].rsplit(":", 1)
    peer = Peer(*await asyncio.open_connection(host, int(port), ssl=context), 5)
    password = (token or castle.tokens[who]).encode() if who and not pair else None
    packet = ConnectPacket(5, f"client of {who}", True, 0, None, who or None, password, more)
    peer.send(packet)
    peer.connack = await peer.expect(Kind.CONNACK)
    return peer


def test_rights_are_those_of_the_principal(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        async with castle.broker(mqtt="127.0.0.1:0") as broker:
            assert ", MQTT at mqtts://" in show_doors(broker.doors.addresses, is_secure=True)
            desk, feed = await join(castle, broker, "desk"), await join(castle, broker, "feed")
            assert (await desk.subscribe("t/#", qos=1)).body == b"\x01"
            answer = await desk.subscribe("other")
            assert answer.body == b"\x87"
            assert "not allowed" in answer.properties["reason"]
            sent = await feed.publish("t/x", b"news")
            assert sent is not None
            assert sent.code == 0
            assert (await desk.receive()).payload == b"news"
            for refused in (await desk.publish("t/x"), await feed.publish("elsewhere")):
                assert refused is not None
                assert refused.code == 0x87
            durable = await join(castle, broker, "desk", session_expiry=100)
            assert (await durable.subscribe("t/#", qos=1)).body == b"\x01"
            await durable.leave(session_expiry=0)
            for peer in (desk, feed):
                peer.cut()

    run(main())


def test_strangers_are_not_admitted(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        async with castle.broker(mqtt="127.0.0.1:0") as broker:
            for who, token in (("", ""), ("desk", "desk.wrong"), ("feed", castle.tokens["desk"])):
                peer = await join(castle, broker, who, token)
                assert peer.connack.code == 0x86
                assert "not admitted" in peer.connack.properties["reason"]
                assert await peer.ended() == -1

    run(main())


def test_a_certificate_proves_who_a_client_is(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        pair = castle.write(castle.authority.client("feed"), "feed")
        async with castle.broker(mqtt="127.0.0.1:0") as broker:
            feed = await join(castle, broker, pair=pair)
            assert feed.connack.code == 0
            sent = await feed.publish("t/x")
            assert sent is not None
            assert sent.code == 0
            refused = await feed.subscribe("t/#")
            assert refused.body == b"\x87"
            feed.cut()

    run(main())


def test_a_session_belongs_to_the_principal_that_made_it(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        async with castle.broker(mqtt="127.0.0.1:0") as broker:
            desk = await join(castle, broker, "desk", session_expiry=100)
            context = ssl.create_default_context(cafile=str(castle.ca))
            host, port = broker.doors.addresses["mqtt"].rsplit(":", 1)
            thief = Peer(*await asyncio.open_connection(host, int(port), ssl=context), 5)
            token = castle.tokens["rival"].encode()
            thief.send(ConnectPacket(5, "client of desk", False, 0, None, "rival", token))
            assert (await thief.expect(Kind.CONNACK)).code == 0x87
            for peer in (desk, thief):
                peer.cut()

    run(main())


def test_a_group_goes_on_when_its_first_member_and_its_token_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "IDLE_S", 0.0)

    async def main() -> None:
        castle = Castle(tmp_path)
        async with castle.broker(mqtt="127.0.0.1:0") as broker:
            desk, admin = await join(castle, broker, "desk"), await join(castle, broker, "admin")
            for peer in (desk, admin):
                assert (await peer.subscribe("$share/g/t/#", qos=1)).body == b"\x01"
            await desk.leave()
            feed = await join(castle, broker, "feed")
            await feed.publish("t/x", b"news")
            assert (await admin.receive()).payload == b"news"
            for peer in (admin, feed):
                await peer.leave()
            await wait_until(lambda: broker_clients(broker) == 1)  # the door's own

    run(main())


def broker_clients(broker: Broker) -> int:
    links: Any = broker.statistics()["links"]
    return int(links["clients"])
