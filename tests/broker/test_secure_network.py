"""Networks with mutual TLS: brokers as processes, one killed; and subscriptions that move."""

from __future__ import annotations

import asyncio
import signal
import ssl
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gapless.broker.broker import Broker
from gapless.broker.networks import joining_network
from gapless.broker.security.rights import parse_rights
from gapless.broker.settings import Settings
from gapless.client.client import connect
from gapless.client.errors import RefusedError
from gapless.core.client_messages import Subscribe, Subscribed
from gapless.core.events import Event
from gapless.core.identity import BrokerName, SubscriptionName, TopicName
from gapless.core.messages import Hello
from gapless.node.network import parse_network
from gapless.testing.processes.brokers import Processes
from tests.broker.castle import Castle
from tests.broker.stage import ONE, THREE, ByHand, run, wait_until
from tests.broker.test_durable_process import Reader, publish_on

if TYPE_CHECKING:
    from pathlib import Path

TWO_HOSTS = """
[[cell]]
name = "left"
links = ["right"]
subscribers = true
brokers = [{ name = "l", listen = "127.0.0.1:0" }]
[[cell]]
name = "right"
subscribers = true
brokers = [{ name = "r", listen = "127.0.0.1:0" }]
[[topic]]
name = "t"
pubends = ["l"]
"""


@pytest.mark.slow
def test_three_processes_deliver_over_mutual_tls_while_one_is_killed(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path, "p", "r", "s", text=THREE)
        async with Processes(castle.text, folder=tmp_path) as brokers:
            await brokers.start("p", "r", "s")
            feed, desk = castle.tokens["feed"], castle.tokens["desk"]
            async with (
                connect(brokers.url("p"), token=feed, ca=castle.ca) as publishing,
                connect(brokers.url("s"), token=desk, ca=castle.ca) as subscribing,
                subscribing.subscribe("t", name="all") as subscription,
                publishing.publisher("t", name="feed") as publisher,
            ):
                stop, reader = asyncio.Event(), Reader(subscription)
                load = asyncio.create_task(publish_on(publisher, stop, count=1))
                await wait_until(lambda: reader.has_seen(20))
                for victim in ("r", "s"):
                    brokers.kill(victim)
                    await brokers.start(victim)
                    number = publisher.sequence + 20
                    await wait_until(lambda n=number: reader.has_seen(n))  # type: ignore[misc]
                stop.set()
                await load
                last = publisher.sequence - 1
                await wait_until(lambda: reader.has_seen(last))
                reader.task.cancel()
                assert reader.numbers == list(range(last + 1)), "once, in order, gapless"
                assert reader.gaps == []
                await check_reload(brokers, castle)

    async def check_reload(brokers: Processes, castle: Castle) -> None:
        token = castle.principals.add_token("late", parse_rights(["publish=t"]))
        castle.principals.write(tmp_path / "principals.json")
        with pytest.raises(RefusedError, match="not admitted"):
            await connect(brokers.url("p"), token=token, ca=castle.ca).__aenter__()
        brokers.signal("p", signal.SIGHUP)
        await wait_until(lambda: "principals reloaded" in brokers.log("p"))
        async with connect(brokers.url("p"), token=token, ca=castle.ca) as client:
            await client.publish("t", {})

    run(main())


def test_a_broker_process_cuts_off_who_is_revoked_whether_it_reads_or_not(tmp_path: Path) -> None:
    """The token is replaced, as `gapless security` does it: the rights are what they were."""

    async def main() -> None:
        castle = Castle(tmp_path)
        async with Processes(castle.text, folder=tmp_path) as brokers:
            await brokers.start("b")
            url, ca = brokers.url("b"), castle.ca
            async with (
                connect(url, token=castle.tokens["admin"], ca=ca) as admin,
                connect(url, token=castle.tokens["desk"], ca=ca) as desk,
                desk.subscribe("t", name="kept") as subscription,
            ):
                host, port = brokers.address("b").split(":")
                context = ssl.create_default_context(cafile=str(ca))
                deaf = ByHand(*await asyncio.open_connection(host, int(port), ssl=context))
                deaf.send(Hello(token=castle.tokens["desk"]), Subscribe(TopicName("t"), 1, 1))
                await deaf.read_until(Subscribed)
                deaf.stop_reading()
                for _ in range(40):
                    await admin.publish_many("t", [({}, b"x" * 250_000)])
                for _ in range(40):
                    await anext(subscription)
                rights = castle.principals.entries.pop("desk").rights
                token = castle.principals.add_token("desk", rights)
                castle.principals.write(tmp_path / "principals.json")
                brokers.signal("b", signal.SIGHUP)
                with pytest.raises(RefusedError, match="not admitted"):
                    await anext(subscription)
                with pytest.raises(RefusedError, match="not admitted"):
                    await desk.subscribe("t").__aenter__()
                await wait_until(lambda: brokers.log("b").count("counts no more") == 2)
                async with (
                    connect(url, token=token, ca=ca) as again,
                    again.subscribe("t", name="kept") as kept,
                ):
                    await admin.publish("t", {"a": 1})
                    async for event in kept:
                        if isinstance(event, Event) and event.attributes:
                            break
                assert admin.channel.session == 1
                await deaf.close()

    run(main())


async def move(castle: Castle, broker: Broker, who: str, token: dict[str, int], moves: int) -> None:
    """Go on with the subscription `all`, which was at `l` and has moved so often."""
    peer = await castle.by_hand(broker, who)
    await peer.read_until(Hello)
    name, previous = SubscriptionName("all"), BrokerName("l")
    wish = Subscribe(TopicName("t"), 1, 1, name=name, token=token, previous=previous, moves=moves)
    peer.send(wish)
    await peer.read_until(Subscribed)
    await peer.close()


def test_who_has_just_started_proves_itself_and_is_dialled_at_once(tmp_path: Path) -> None:
    patient = {"redial_s": 1e6, "redial_longest_s": 1e6}

    async def main() -> None:
        castle = Castle(tmp_path, "l", "r", text=TWO_HOSTS)
        async with castle.broker("l", **patient) as left:
            forged = Hello(sender=BrokerName("r"))  # who has no certificate of that name
            await (await castle.by_hand(left, hello=forged)).read_all()
            assert not left._dialler._knocked[BrokerName("r")].is_set()
            async with castle.broker("r"):
                await wait_until(lambda: BrokerName("r") in left._links.named)

    run(main())


@pytest.mark.parametrize("who", ["desk", "rival"])
def test_a_subscription_is_handed_over_for_its_owner_only(tmp_path: Path, who: str) -> None:
    async def main() -> None:
        castle = Castle(tmp_path, "l", "r", text=TWO_HOSTS)
        async with castle.broker("l") as left, castle.broker("r") as right:
            async with (
                castle.client(left, "desk") as desk,
                castle.client(left, "feed") as feed,
                desk.subscribe("t", name="all") as subscription,
            ):
                await feed.publish("t", {"i": 1})
                await anext(subscription)
                token = dict(subscription.token)
                (found,) = left.subscriptions()
            await move(castle, right, who, token, int(str(found["moves"])))

            def is_settled() -> bool:
                node = right._pump.node
                known = node.durable.subscriptions.get(SubscriptionName("all"))
                return known is not None and known.definition.previous is None

            await wait_until(is_settled)
            assert [each["owner"] for each in right.subscriptions()] == [who]
            assert [each["owner"] for each in left.subscriptions()] == (
                [] if who == "desk" else ["desk"]
            )

    run(main())


def test_a_broker_joins_with_a_certificate_in_its_name_and_not_without(tmp_path: Path) -> None:
    feed = '[[topic]]\nname = "feed"\nservice = "reliable"\n'
    castle = Castle(tmp_path, "b", "new", text=ONE + feed)
    castle.write(castle.authority.broker("another"), "brokers/wrong")

    def joining(name: str, at: str) -> Broker:
        network = replace(joining_network(name), security=parse_network(castle.text).security)
        options = {"data": tmp_path, "security_folder": tmp_path, "admin": None, "join": at}
        return Broker(BrokerName(name), network, Settings(**options))  # type: ignore[arg-type]

    async def main() -> None:
        async with castle.broker() as home, joining("new", home.address) as new:
            await wait_until(lambda: "feed" in new._pump.node.network.topic)
            async with (
                castle.client(home, "admin") as near,
                castle.client(new, "admin") as far,
                far.subscribe("feed") as subscription,
            ):
                await near.publish("feed", {"i": 1})
                assert isinstance(await anext(subscription), Event)
            async with joining("wrong", home.address):
                refused = home._links.statistics
                await wait_until(lambda: refused()["refused_logins"] != 0)
                assert "wrong" not in home._links.address_book

    run(main())
