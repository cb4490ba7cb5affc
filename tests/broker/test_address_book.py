"""A client that is sent elsewhere gets addresses, and only such as it can use."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from gapless.broker.addresses import AddressBook, write_addresses
from gapless.core.client_messages import Refused
from gapless.core.events import Event
from gapless.node.network import parse_network
from tests.broker.stage import LINE, connected, make_broker, run, wait_until

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """
[[cell]]
name = "c"
brokers = [
    { name = "plain", listen = "10.0.0.1:7117" },
    { name = "told", listen = "0.0.0.0:7117", advertise = "[fd00::2]:7118" },
    { name = "hidden", listen = "0.0.0.0:7117" },
    { name = "any", listen = "127.0.0.1:0" },
    { name = "new", listen = "127.0.0.1:0" },
]
"""


def test_addresses_are_those_advertised_or_listened_on_or_told_in_the_data_folder(
    tmp_path: Path,
) -> None:
    (tmp_path / "any").mkdir()
    write_addresses(tmp_path / "any", {"listen": "127.0.0.1:4321"})
    address_book = AddressBook(parse_network(TEXT), tmp_path)
    names = ("plain", "told", "hidden", "any", "new")
    refused = address_book.addressed(Refused(3, "no", "go", elsewhere=names))
    assert refused.elsewhere == ("10.0.0.1:7117", "[fd00::2]:7118", "127.0.0.1:4321")
    assert (refused.request, refused.problem) == (3, "no")
    with pytest.raises(ConnectionError, match="new has not told its address"):
        address_book.find("new")


def test_what_is_published_at_a_broker_that_hosts_nothing_gets_to_the_host_and_back(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            found = {}
            for name in ("p", "r1", "r2", "s"):
                found[name] = await stack.enter_async_context(make_broker(tmp_path, LINE, name))
            client = await stack.enter_async_context(connected(found["s"]))
            subscription = await stack.enter_async_context(client.subscribe("t"))
            receipts = [await client.publish("t", {"i": number}) for number in range(3)]
            async with client.publisher("t", name="feed") as publisher:
                await publisher.send_many(({"i": number}, b"") for number in range(3, 6))
            assert [each.pubend for each in receipts] == ["t/0"] * 3
            got: list[object] = []
            while len(got) < 6:
                item = await anext(subscription)
                assert isinstance(item, Event)
                got.append(item.attributes["i"])
            assert got == [*range(6)]
            statistics = found["p"].statistics()["links"]
            assert isinstance(statistics, dict)
            assert statistics["clients"] == 1, "one further connection for all of it"
        await wait_until(lambda: found["p"].statistics()["links"]["clients"] == 0)  # type: ignore[index]

    run(main())
