"""Brokers further apart are linked when one wants something of the other; who joins, told of."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gapless.broker.addresses import AddressBook
from gapless.broker.link_table import SILENT_LOOKS
from gapless.broker.networks import joining_network
from gapless.core.client_messages import Refused
from gapless.core.errors import UsageError
from gapless.core.identity import BrokerName
from gapless.core.messages import Hello
from gapless.node.network import parse_network
from gapless.tree.messages import Beat, Position
from tests.broker.stage import ByHand, make_broker, run, wait_until
from tests.broker.test_dialler import brokers_up
from tests.broker.test_link import goodbye

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.broker.broker import Broker

CHAIN = "".join(
    f'[[cell]]\nname = "{name}"\nlinks = {links}\n'
    f'brokers = [{{ name = "{name}", listen = "127.0.0.1:0" }}]\n'
    for name, links in (("a", []), ("b", ["a"]), ("c", ["b"]))
)
A, C = BrokerName("a"), BrokerName("c")


def links_to(broker: Broker, name: str) -> int:
    return sum(link.peer == name for link in broker._links.all)


@pytest.mark.parametrize("who", [("a",), ("c",), ("a", "c")])
def test_two_that_are_no_neighbours_get_one_link_whoever_dials(
    tmp_path: Path, who: tuple[str, ...]
) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            town = {
                name: await stack.enter_async_context(make_broker(tmp_path, CHAIN, name))
                for name in "abc"
            }
            assert "c" not in brokers_up(town["a"])
            for name in who:
                other = BrokerName("c" if name == "a" else "a")
                town[name]._links.send(other, Beat(Position(1, 1)))  # is lost, and dials
            ends = (town["a"], "c"), (town["c"], "a")
            await wait_until(lambda: all(name in brokers_up(each) for each, name in ends))
            await wait_until(lambda: all(links_to(each, name) == 1 for each, name in ends))
            before = [town[name]._links.named[BrokerName(other)] for name, other in ("ac", "ca")]
            for each, name in ends:
                each._links.send(BrokerName(name), Beat(Position(1, 1)))
                each._links.flush()
            await asyncio.sleep(0)
            after = [town[name]._links.named[BrokerName(other)] for name, other in ("ac", "ca")]
            assert before == after

    run(main())


@pytest.mark.parametrize(("first", "second"), ["ac", "ca"])
def test_the_link_of_the_one_whose_name_sorts_first_stays_or_takes_over(
    tmp_path: Path, first: str, second: str
) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            town = {
                name: await stack.enter_async_context(make_broker(tmp_path, CHAIN, name))
                for name in "abc"
            }
            links = {name: town[name]._links for name in "ac"}
            for name, other in ((first, second), (second, first)):
                dialler = town[name]._dialler
                dialler._reach(BrokerName(other))
                await wait_until(lambda: C in links["a"].named and A in links["c"].named)
                await wait_until(lambda dialler=dialler: not dialler._once)  # type: ignore[misc]
                await wait_until(lambda: links_to(town["a"], "c") == links_to(town["c"], "a") == 1)
            assert links["a"].named[C].dialled == C
            assert links["c"].named[A].dialled is None

    run(main())


def test_a_broker_joins_and_everybody_learns_where_it_is(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            town = {
                name: await stack.enter_async_context(make_broker(tmp_path, CHAIN, name))
                for name in "abc"
            }
            settled = make_broker(tmp_path, join=town["b"].address)
            network = joining_network("new")
            newcomer = type(settled)(BrokerName("new"), network, settled.settings)
            await stack.enter_async_context(newcomer)
            await wait_until(
                lambda: all("new" in each._links.address_book for each in town.values())
            )
            assert town["a"]._links.address_book.find("new") == newcomer._links.address_book.find(
                "new"
            )
            await wait_until(lambda: "a" in newcomer._links.address_book)
            assert "new" not in town["b"]._pump.node.connections  # it is no client

    run(main())


def test_the_link_of_one_that_joined_stays_though_there_is_nothing_to_say(tmp_path: Path) -> None:
    """There is no topic yet that needs the two to talk."""

    async def main() -> None:
        async with make_broker(tmp_path, CHAIN, "b", silence_s=0.6) as home:
            settled = make_broker(tmp_path, join=home.address, silence_s=0.6)
            network = joining_network("new")
            async with type(settled)(BrokerName("new"), network, settled.settings) as new:
                await wait_until(lambda: "b" in new._links.named)
                link = new._links.named[BrokerName("b")]
                # Twice as many looks as end a link that brings nothing.
                await wait_until(lambda: link.is_closing or link.messages_in > 3 * SILENT_LOOKS)
                assert not link.is_closing
                assert new._links.named[BrokerName("b")] is link

    run(main())


@pytest.mark.parametrize("name", ["a", "b", "client:7", "@x"])
def test_nobody_joins_under_a_name_that_is_taken_or_ours(tmp_path: Path, name: str) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, CHAIN, "b") as broker:
            hello = Hello(sender=BrokerName(name), address="127.0.0.1:1")
            assert "cannot join as" in await goodbye(await ByHand.connect(broker, hello=hello))

    run(main())


def test_of_brokers_in_the_file_the_file_knows_best_and_of_others_not_too_many(
    tmp_path: Path,
) -> None:
    text = CHAIN.replace("127.0.0.1:0", "10.0.0.1:1")
    address_book = AddressBook(parse_network(text), tmp_path, learnt_max=1)
    new, more = BrokerName("new"), BrokerName("more")
    assert address_book.learn({A: "10.0.0.9:9", new: "10.0.0.7:7"}) == {new: "10.0.0.7:7"}
    assert address_book.learn({new: "10.0.0.7:7", more: "10.0.0.8:8"}) == {}
    assert address_book.learn({new: "10.0.0.6:6"}) == {new: "10.0.0.6:6"}  # it moved
    assert address_book.find("a") == [("10.0.0.1", 1)]
    assert address_book.find("new") == [("10.0.0.6", 6)]
    assert more not in address_book
    assert address_book.all()[new] == "10.0.0.6:6"


def test_a_broker_with_standbys_has_all_their_addresses_and_redirects_name_them(
    tmp_path: Path,
) -> None:
    text = '[network]\nstore = "postgresql://db"\n' + CHAIN.replace(
        'name = "a", listen = "127.0.0.1:0"',
        'name = "a", listen = "10.0.0.1:1", standbys = ["10.0.0.2:2", "10.0.0.3:3"]',
    )
    network = parse_network(text)
    address_book = AddressBook(network, tmp_path)
    assert address_book.find("a") == [("10.0.0.1", 1), ("10.0.0.2", 2), ("10.0.0.3", 3)]
    refused = address_book.addressed(Refused(1, "elsewhere", "", elsewhere=("a",)))
    assert refused.elsewhere == ("10.0.0.1:1", "10.0.0.2:2", "10.0.0.3:3")
    assert address_book.all()[A] == "10.0.0.1:1,10.0.0.2:2,10.0.0.3:3"
    entries = [each for cell in network.cells for each in cell.brokers]
    assert {network.store_of(each) for each in entries} == {"postgresql://db"}
    assert network.store_of(replace(entries[0], store="")) == ""


@pytest.mark.parametrize(
    ("broker", "problem"),
    [
        ('standbys = ["10.0.0.2:2"]', "has standbys and no store"),
        ('store = "x", standbys = ["127.0.0.1:0"]', "addresses of their own"),
        ('store = "x", standbys = "10.0.0.2:2"', "wrong type"),
    ],
)
def test_standbys_that_make_no_sense_are_refused(broker: str, problem: str) -> None:
    text = CHAIN.replace(
        'name = "a", listen = "127.0.0.1:0"', f'name = "a", listen = "127.0.0.1:0", {broker}'
    )
    with pytest.raises(UsageError, match=problem):
        parse_network(text)
