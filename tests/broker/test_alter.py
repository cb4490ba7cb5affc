"""A named subscription gets another condition at one tick of each pubend, and nothing is lost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from gapless.client.client import connect
from gapless.client.delivery import Gap
from gapless.client.errors import RefusedError
from gapless.filters import Filter
from gapless.testing.processes.brokers import Processes
from tests.broker.stage import LINE, connected, make_broker, run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gapless.client.client import Client
    from gapless.client.subscription import Subscription
    from gapless.core.events import Event
    from gapless.core.token import Token

CHANGES = 50
NEXT = "k = 1 OR last IS NOT NULL"


async def take(subscription: Subscription, last: str) -> list[Event]:
    """All events up to the one that is called so."""
    found: list[Event] = []
    async for each in subscription:
        assert not isinstance(each, Gap)
        found.append(each)  # type: ignore[arg-type]  # there are no silences
        if found[-1].attributes.get("last") == last:
            return found
    raise AssertionError("it ended")


def expected(
    published: Sequence[tuple[str, int, dict[str, int | str]]],
    first: str,
    changes: list[tuple[str, Token]],
) -> list[int | str]:
    """What an oracle delivers: each event by the last change at or before its tick."""
    found = []
    for pubend, tick, attributes in published:
        condition = first
        for text, since in changes:
            if tick >= since.get(pubend):
                condition = text
        if Filter.parse(condition).matches(attributes):
            found.append(attributes["n"])
    return found


@pytest.mark.parametrize("topic", ["t", "two"])
def test_a_condition_that_changes_under_load_is_exact_at_the_ticks_it_tells(
    tmp_path: Path, topic: str
) -> None:
    published: list[tuple[str, int, dict[str, int | str]]] = []
    changes: list[tuple[str, Token]] = []

    async def publish(client: Client) -> None:
        number = 0
        while len(changes) < CHANGES:
            number += 1
            attributes: dict[str, int | str] = {"n": number, "k": number % 5}
            receipt = await client.publish(topic, attributes)
            published.append((receipt.pubend, receipt.tick, attributes))

    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            async with client.subscribe(topic, "k = 0", name="desk") as subscription:
                tasks = [asyncio.ensure_future(publish(client)) for _ in range(2)]
                for index in range(CHANGES):
                    text = f"k = {index % 5} OR last IS NOT NULL"
                    since = await client.alter_subscription("desk", condition=text)
                    if index % 10 == 0:
                        await subscription.acknowledge()
                    changes.append((text, since))
                await asyncio.gather(*tasks)
                for _ in range(8):  # each pubend has a last one
                    await client.publish(topic, {"last": "end"})
                found: list[Event] = []
                while sum("last" in each.attributes for each in found) < 8:
                    found += await take(subscription, "end")
            got = [each.attributes["n"] for each in found if "n" in each.attributes]
            assert sorted(got) == sorted(expected(published, "k = 0", changes))
            assert got

    run(main())


def test_a_client_that_was_away_gets_old_events_by_the_old_condition(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            async with client.subscribe("t", "k = 0", name="desk"):
                pass
            await client.publish_many("t", [({"k": k, "n": k}, b"") for k in (0, 1)])
            await client.alter_subscription("desk", condition="k = 1 OR last IS NOT NULL")
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            await client.publish_many("t", [({"k": k, "n": k + 2}, b"") for k in (0, 1)])
            await client.publish("t", {"last": "end"})
            with pytest.raises(RefusedError, match="with condition 'k = 1 OR last"):
                async with client.subscribe("t", "k = 0", name="desk"):
                    pass
            text = "k = 1 OR last IS NOT NULL"
            async with client.subscribe("t", text, name="desk") as subscription:
                found = await take(subscription, "end")
            assert [each.attributes.get("n") for each in found] == [0, 3, None]

    run(main())


def test_a_client_that_moves_takes_the_former_condition_along(tmp_path: Path) -> None:
    """Its broker is killed with what it knows; another one serves the events before the change."""

    async def main() -> None:
        async with Processes(LINE, folder=tmp_path) as brokers:
            await brokers.start("p", "r1", "r2", "s", "o")
            both = f"{brokers.url('s')},{brokers.url('o').removeprefix('gapless://')}"
            async with (
                connect(both) as client,
                connect(brokers.url("p")) as publisher,
                client.subscribe("t", "k = 0", name="desk") as subscription,
            ):
                events: list[dict[str, int | str]] = [{"k": n % 2, "n": n} for n in range(6)]
                receipts = [await publisher.publish("t", each) for each in events[:4]]
                since = await client.alter_subscription("desk", condition=NEXT)
                brokers.kill("s")
                receipts += [await publisher.publish("t", each) for each in events[4:]]
                await publisher.publish("t", {"last": "end"})
                found = await take(subscription, "end")
                pairs = zip(receipts, events, strict=True)
                published = [(receipt.pubend, receipt.tick, each) for receipt, each in pairs]
                wanted = expected(published, "k = 0", [(NEXT, since)])
                assert [each.attributes.get("n") for each in found] == [*wanted, None]

    run(main())


def test_a_change_that_cannot_be_is_refused_with_the_reason(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            with pytest.raises(RefusedError, match="no subscription 'desk' of yours"):
                await client.alter_subscription("desk", condition="k = 1")
            async with client.subscribe("t", "k = 0", name="desk"):
                with pytest.raises(RefusedError, match="expected a value"):
                    await client.alter_subscription("desk", condition="k =")
                first = await client.alter_subscription("desk", condition="k = 1")
                assert await client.alter_subscription("desk", condition="k = 1") == first

    run(main())
