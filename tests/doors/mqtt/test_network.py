"""Doors of one network: groups across brokers, sessions that move, and redirects."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from gapless.doors.mqtt.packets import AnswerPacket, ConnectPacket, Kind
from gapless.testing.processes.brokers import topic
from tests.broker.stage import make_broker, run, wait_until
from tests.doors.mqtt.stage import Peer, Place

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from gapless.broker.broker import Broker

NAMES = ("top", "east", "west")
FOREVER = 0xFFFFFFFF


def free_ports() -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in NAMES]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def network() -> str:
    at = dict(zip(NAMES, free_ports(), strict=True))
    cells = [
        f'[[cell]]\nname = "{name}"\n'
        f'brokers = [{{ name = "{name}", listen = "127.0.0.1:{at[name]}" }}]\n'
        + ('links = ["top"]\n' if name != "top" else "")
        + "subscribers = true\n"
        for name in NAMES
    ]
    return "".join(cells) + topic("mqtt", "top")


@asynccontextmanager
async def three(folder: Path) -> AsyncIterator[dict[str, Place]]:
    text, at = network(), "127.0.0.1:0"
    async with AsyncExitStack() as stack:
        brokers: list[Broker] = [
            make_broker(folder, text, name, mqtt=at, mqtt_ws=at) for name in NAMES
        ]
        await asyncio.gather(*map(stack.enter_async_context, brokers))
        places = {name: Place(broker) for name, broker in zip(NAMES, brokers, strict=True)}
        for place in places.values():
            stack.callback(place.close)
        yield places


def test_a_door_opens_while_other_brokers_are_down(tmp_path: Path) -> None:
    async def main() -> None:
        text, at = network(), "127.0.0.1:0"
        async with AsyncExitStack() as stack:  # the first start makes topics and subscriptions
            brokers = [make_broker(tmp_path, text, name, mqtt=at) for name in NAMES]
            await asyncio.gather(*map(stack.enter_async_context, brokers))
        async with make_broker(tmp_path, text, "west", mqtt=at) as alone:
            place = Place(alone)
            assert (await place.join("a")).connack.code == 0
            place.close()

    run(main())


async def messages(peer: Peer, count: int) -> list[bytes]:
    return [(await peer.receive()).payload for _ in range(count)]


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_members_of_a_group_are_at_any_broker_and_each_message_goes_to_one(tmp_path: Path) -> None:
    async def story() -> None:
        async with three(tmp_path) as at:
            members = [await at[name].join(name) for name in NAMES]
            for each in members:
                await each.subscribe("$share/crew/jobs/#", qos=1)
            sender = await at["west"].join("sender")
            for payload in numbers(30):
                await sender.publish("jobs/a", payload)
            got: list[bytes] = []
            counts = [0] * len(members)

            async def take(place: int) -> None:
                while len(got) < 30:
                    got.append((await members[place].receive()).payload)
                    counts[place] += 1

            tasks = [asyncio.create_task(take(place)) for place in range(len(members))]
            await wait_until(lambda: len(got) == 30)
            for task in tasks:
                task.cancel()
            assert sorted(got) == sorted(numbers(30))
            assert all(counts), counts

    run(story())


def test_what_a_member_has_not_answered_goes_to_a_member_at_another_broker(tmp_path: Path) -> None:
    async def story() -> None:
        async with three(tmp_path) as at:
            first = await at["east"].join("first", receive_maximum=2)
            await first.subscribe("$share/crew/jobs/#", qos=1)
            sender = await at["top"].join("sender")
            for payload in numbers(4):
                await sender.publish("jobs/a", payload)
            for _ in range(2):
                await first.expect(Kind.PUBLISH)  # and no answer
            await first.quiet()  # the window is full
            other = await at["west"].join("other")
            await other.subscribe("$share/crew/jobs/#", qos=1)
            assert sorted(await messages(other, 2)) == [b"2", b"3"]
            first.cut()
            assert sorted(await messages(other, 2)) == [b"0", b"1"]

    run(story())


def test_a_session_moves_with_its_client_to_another_broker(tmp_path: Path) -> None:
    async def story() -> None:
        async with three(tmp_path) as at:
            client = await at["east"].join("c", clean=False, session_expiry=FOREVER)
            await client.subscribe("news/#", qos=1)
            await client.subscribe("more/+", qos=1)
            sender = await at["top"].join("sender")
            await sender.publish("news/a", b"0")
            assert await messages(client, 1) == [b"0"]
            await client.leave()
            await sender.publish("news/a", b"1")
            await sender.publish("more/a", b"2")
            await sender.publish("less/a", b"3")
            await wait_until(lambda: knows(at["west"], "c"))
            client = await at["west"].join("c", clean=False, session_expiry=FOREVER)
            assert client.connack.body[0] == 1  # the session is present
            assert sorted(await messages(client, 2)) == [b"1", b"2"]
            await wait_until(lambda: "c" not in at["east"].door._hosts)
            await sender.publish("news/a", b"4")
            assert await messages(client, 1) == [b"4"]
            await client.quiet()

    run(story())


def test_a_client_that_connects_elsewhere_takes_its_session_from_the_old_connection(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with three(tmp_path) as at:
            old = await at["east"].join("c", clean=False, session_expiry=FOREVER)
            await old.subscribe("news/#", qos=1)
            await wait_until(lambda: knows(at["west"], "c"))
            new = await at["west"].join("c", clean=False, session_expiry=FOREVER)
            assert await old.ended() == 0x8E  # taken over
            sender = await at["top"].join("sender")
            await sender.publish("news/a", b"0")
            assert await messages(new, 1) == [b"0"]
            await wait_until(lambda: at["top"].door._sessions.get("c").door == "west")
            fresh = await at["top"].join("c", clean=True)
            assert await new.ended() == 0x8E
            assert fresh.connack.body[0] == 0
            await wait_until(lambda: not knows(at["west"], "c"))

    run(story())


def test_a_client_that_follows_redirects_is_sent_to_the_broker_of_its_session(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with three(tmp_path) as at:
            client = await at["east"].join("c", clean=False, session_expiry=FOREVER)
            await client.subscribe("news/#", qos=1)
            await client.leave()
            await wait_until(lambda: knows(at["west"], "c"))
            peer = await at["west"].dial()
            more = {"session_expiry": FOREVER, "user": [("redirect", "yes")]}
            peer.send(ConnectPacket(5, "c", False, 0, properties=more))
            answer = await peer.expect(Kind.CONNACK)
            assert answer.code == 0x9C
            assert answer.properties["server"] == at["east"].broker.doors.addresses["mqtt"]
            assert await peer.read() is None
            back = await at["east"].join("c", clean=False, session_expiry=FOREVER)
            assert back.connack.body[0] == 1

    run(story())


def test_a_group_that_nobody_uses_is_ended_by_the_door_of_its_broker(tmp_path: Path) -> None:
    async def story() -> None:
        async with three(tmp_path) as at:
            member = await at["east"].join("m")
            await member.subscribe("$share/crew/jobs/#", qos=1)
            groups = [name for name in NAMES if shared(at[name])]
            assert len(groups) == 1
            door = at[groups[0]].door
            await door._end_groups()
            await door._end_groups()
            assert shared(at[groups[0]])  # it has a member
            await member.leave()
            await wait_until(lambda: not shared(at[groups[0]], attached=True))
            await door._end_groups()
            await door._end_groups()
            assert not shared(at[groups[0]])

    run(story())


def knows(place: Place, client: str) -> bool:
    """Whether the door has heard of the session and its filters."""
    entry = place.door._sessions.get(client)
    return entry is not None and bool(entry.record["subscriptions"])


def shared(place: Place, *, attached: bool = False) -> list[str]:
    """The groups that a broker has; with `attached`, those with members."""
    found = place.door._broker.subscriptions("", None)
    return [
        each["name"]
        for each in found
        if each["name"].startswith("mqtt-share:") and (each["attached"] or not attached)
    ]


def test_a_message_of_qos_2_of_a_group_is_the_members_with_its_pubrec(tmp_path: Path) -> None:
    async def story() -> None:
        async with three(tmp_path) as at:
            first = await at["east"].join("first", clean=False, session_expiry=FOREVER)
            await first.subscribe("$share/crew/jobs/#", qos=2)
            sender = await at["top"].join("sender")
            await sender.publish("jobs/a", b"0", 2)
            got = await first.expect(Kind.PUBLISH)
            first.send(AnswerPacket(Kind.PUBREC, got.packet))
            await first.expect(Kind.PUBREL)
            first.cut()
            other = await at["west"].join("other")
            await other.subscribe("$share/crew/jobs/#", qos=2)
            await other.quiet()
            back = await at["east"].join("first", clean=False, session_expiry=FOREVER)
            assert (await back.expect(Kind.PUBREL)).packet == got.packet
            back.send(AnswerPacket(Kind.PUBCOMP, got.packet))
            await back.quiet()

    run(story())
