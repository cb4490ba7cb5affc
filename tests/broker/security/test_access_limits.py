"""How much a principal may have, how much strangers may take, and what a reload changes."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from gapless.broker.security.rights import parse_rights
from gapless.client.errors import RefusedError, SubscriptionInterruptedError
from gapless.core.client_messages import Receipt, Subscribe, Subscribed
from gapless.core.events import Event
from gapless.core.identity import TopicName
from gapless.core.messages import Goodbye, Hello
from tests.broker.castle import TABLE, Castle
from tests.broker.stage import publication, run, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.broker.broker import Broker
    from gapless.client.client import Client


async def is_subscribed(client: Client) -> bool:
    try:
        async with client.subscribe("t"):
            return True
    except RefusedError:
        return False


def test_a_principal_has_so_many_connections_and_others_do_not_notice(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path, table=TABLE + "principal_connections_max = 2\n")
        async with castle.broker() as broker:
            async with castle.client(broker, "feed"), castle.client(broker, "feed"):
                peer = await castle.by_hand(broker, "feed")
                (said,) = await peer.read_all()
                assert isinstance(said, Goodbye)
                assert "'feed' has 2 connections, which is its limit" in said.problem
                assert not said.final
                async with castle.client(broker, "desk"):
                    pass
            async with castle.client(broker, "feed"):
                pass

    run(main())


def test_a_principal_has_so_many_subscriptions_over_all_its_connections(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path, table=TABLE + "principal_subscriptions_max = 2\n")
        async with castle.broker() as broker:
            async with castle.client(broker, "desk") as first, first.subscribe("t", name="kept"):
                pass
            async with (
                castle.client(broker, "desk") as first,
                castle.client(broker, "desk") as second,
                castle.client(broker, "rival") as rival,
            ):
                async with first.subscribe("t"):
                    with pytest.raises(RefusedError, match="'desk' has 2 subscriptions"):
                        await second.subscribe("t").__aenter__()
                    async with rival.subscribe("t"):
                        pass
                while not await is_subscribed(second):  # noqa: ASYNC110 - until counted anew
                    await asyncio.sleep(0.05)

    run(main())


def test_a_long_frame_is_refused_before_it_is_known_who_sends_it(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        async with castle.broker(hello_bytes_max=1000) as broker:
            peer = await castle.by_hand(broker, hello=Hello(token="x" * 2000))
            (said,) = await peer.read_all()
            assert isinstance(said, Goodbye)
            assert "the limit is 1000" in said.problem
            peer = await castle.by_hand(broker, "admin")
            peer.send(publication(1, body=b"x" * 100_000))
            assert any(isinstance(each, Receipt) for each in await peer.read_until(Receipt))
            await peer.close()

    run(main())


def test_strangers_have_room_of_their_own_and_who_is_known_goes_on(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path, table=TABLE + "strangers_max = 5\n")
        async with (
            castle.broker(hello_patience_s=60) as broker,
            castle.client(broker, "admin") as client,
        ):
            silent = [await castle.by_hand(broker) for _ in range(5)]
            one_more = await castle.by_hand(broker)
            (said,) = await one_more.read_all()
            assert isinstance(said, Goodbye)
            assert said.problem == "too many connections"
            await client.publish("t", {})
            await silent[0].close()
            async with castle.client(broker, "feed"):
                pass
            for peer in silent[1:]:
                await peer.close()

    run(main())


def test_handshakes_that_are_begun_and_not_ended_are_bounded(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path, table=TABLE + "strangers_max = 5\n")
        async with (
            castle.broker(hello_patience_s=3.0) as broker,
            castle.client(broker, "admin") as client,
        ):
            host, port = broker.address.split(":")
            floods = [await asyncio.open_connection(host, int(port)) for _ in range(20)]
            await wait_until(
                lambda: broker.statistics()["links"]["refused_handshakes"] == 15  # type: ignore[index]
            )
            await client.publish("t", {})
            for reader, writer in floods:  # each is closed, at once or when patience ends
                assert await asyncio.gather(reader.read(), return_exceptions=True)
                writer.close()
            async with castle.client(broker, "feed"):
                pass

    run(main())


# --- while it runs --------------------------------------------------------------------------------


def test_a_reload_admits_new_tokens_and_ends_who_has_lost_rights(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        async with castle.broker() as broker:
            async with (
                castle.client(broker, "feed") as feed,
                castle.client(broker, "desk") as desk,
                desk.subscribe("t", name="kept") as subscription,
            ):
                del castle.principals.entries["desk"]
                castle.tokens["new"] = castle.principals.add_token("new", parse_rights(["all"]))
                castle.principals.write(tmp_path / "principals.json")
                broker.reload()
                with pytest.raises(RefusedError, match="not admitted"):
                    await anext(subscription)
                with pytest.raises(RefusedError, match="not admitted"):
                    await desk.unsubscribe("kept")
                await feed.publish("t", {})
                assert feed.channel.session == 1, "who has its rights still keeps its connection"
                async with castle.client(broker, "new") as new:
                    await new.unsubscribe("kept")
            (tmp_path / "principals.json").write_text("{")
            broker.reload()
            async with castle.client(broker, "new") as new:
                await new.publish("t", {})

    run(main())


def count(broker: Broker) -> int:
    """Connections, of whomever."""
    return broker.statistics()["links"]["clients"]  # type: ignore[index, no-any-return]


def test_who_came_with_a_token_that_was_replaced_is_sent_away_and_told_why(tmp_path: Path) -> None:
    """The principal is the same, and so are its rights: it is the token that counts no more."""

    async def main() -> None:
        castle = Castle(tmp_path)
        async with castle.broker() as broker:
            old, other = await castle.by_hand(broker, "desk"), await castle.by_hand(broker, "desk")
            await old.read_until(Hello)
            await other.read_until(Hello)
            other.stop_reading()
            entry = castle.principals.entries["desk"]
            new_token = castle.principals.add_token("desk", entry.rights)
            castle.principals.write(tmp_path / "principals.json")
            broker.reload()
            async with castle.client(broker, token=new_token) as new:
                old.send(Subscribe(TopicName("t"), 1, 1))
                assert await old.read_until(Subscribed), "a token more ends nobody"
                del entry.hashes[0]
                castle.principals.write(tmp_path / "principals.json")
                broker.reload()
                (said,) = await old.read_all()
                assert isinstance(said, Goodbye)
                assert said.final
                assert "what 'desk' has shown counts no more" in said.problem
                await wait_until(lambda: count(broker) == 1)  # also that of who does not read
                async with new.subscribe("t"):
                    assert new.channel.session == 1, "who has the new one keeps its connection"
            with pytest.raises(RefusedError, match="not admitted"):
                await castle.client(broker, "desk").__aenter__()
            await other.close()

    run(main())


def test_rights_that_grow_count_at_once_and_what_is_lost_ends_with_a_refusal(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        entry = castle.principals.entries["desk"]
        async with (
            castle.broker() as broker,
            castle.client(broker, "desk") as desk,
            desk.subscribe("t", name="kept") as kept,
            desk.subscribe("t") as passing,
        ):
            entry.rights = parse_rights(["subscribe=t,two"])
            castle.principals.write(tmp_path / "principals.json")
            broker.reload()
            async with desk.subscribe("two", name="other") as other:
                assert desk.channel.session == 1, "it keeps its connection, and all it has"
                entry.rights = parse_rights(["subscribe=two"])
                castle.principals.write(tmp_path / "principals.json")
                broker.reload()
                with pytest.raises(SubscriptionInterruptedError, match="not allowed to sub"):
                    await anext(kept)
                with pytest.raises(SubscriptionInterruptedError):
                    await anext(passing)
                async with castle.client(broker, "admin") as admin:
                    await admin.publish("two", {"a": 1})
                event = await anext(other)
                assert isinstance(event, Event)
                assert event.attributes == {"a": 1}
            with pytest.raises(RefusedError, match="not allowed to subscribe on topic 't'"):
                await desk.subscribe("t").__aenter__()

    run(main())


def test_a_reload_ends_those_whose_certificate_has_expired_since(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        shown = castle.write(castle.authority.client("feed", days=1), "feed")
        async with (
            castle.broker() as broker,
            castle.client(broker, **shown) as feed,
            castle.client(broker, "admin") as admin,
        ):
            assert broker.access is not None
            broker.access.reload(time.time())
            await feed.publish("t", {})
            broker.access.reload(time.time() + 100_000)
            await wait_until(lambda: feed.channel.session == 2)  # by our clock it still counts
            await admin.publish("t", {})
            assert admin.channel.session == 1, "who came with a token has no certificate to lose"

    run(main())


def test_a_reload_shows_the_new_certificate(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        castle.write(castle.authority.broker("b", days=-1), "brokers/b")
        async with castle.broker() as broker:
            with pytest.raises(RefusedError, match="expired"):
                await castle.client(broker, "admin").__aenter__()
            castle.write(castle.authority.broker("b"), "brokers/b")
            broker.reload()
            async with castle.client(broker, "admin") as client:
                await client.publish("t", {})

    run(main())
