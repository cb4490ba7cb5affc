"""The network file: what it says, and every way in which it may be wrong."""

from __future__ import annotations

import pytest

from gapless.core.errors import UsageError
from gapless.core.identity import BrokerName, CellName
from gapless.core.ticks import PUBEND_COUNT_MAX
from gapless.node.network import DEFAULT_LISTEN, BrokerEntry, Cell, Network, parse_network
from tests.node.town import ALONE, TOWN

A, B, C = (
    f'[[cell]]\nname = "{cell}"\nbrokers = [{{ name = "{broker}" }}]\n'
    for cell, broker in (("a", "x"), ("b", "y"), ("c", "z"))
)
TWO_BROKERS = '[[cell]]\nname = "a"\nbrokers = [{ name = "x" }, { name = "y" }]\n'
TOPIC = '[[topic]]\nname = "news"\n'

WRONG = {
    "no TOML": ("[[cell", "the network file is not TOML: "),
    "empty": ("", "a network needs at least one cell"),
    "two cells of a name": (
        A + A.replace("x", "y"),
        r"every cell needs a name of its own: \['a'\]",
    ),
    "two brokers of a name": (
        A + B.replace('"y"', '"x"'),
        r"every broker needs a name of its own: \['x'\]",
    ),
    "two topics of a name": (
        A + (TOPIC + 'pubends = ["x"]\n') * 2,
        r"every topic needs a name of its own: \['news'\]",
    ),
    "an empty name": (A.replace('"a"', '""'), "every cell needs a name of its own: one is empty"),
    "a name of ours": (A.replace('"a"', '"@pubend"'), "'@pubend' contains @"),
    "a broker with a name of ours": (
        A.replace('"x"', '"@total-order"'),
        "'@total-order' contains @",
    ),
    "no broker": ('[[cell]]\nname = "a"\nbrokers = []', "cell 'a' has no broker"),
    "a link to nowhere": (A + 'links = ["q"]', "cell 'a' links to 'q', which is no other cell"),
    "a link to itself": (A + 'links = ["a"]', "cell 'a' links to 'a', which is no other cell"),
    "two islands": (A + B, "2 cells with 0 links are no tree: from 'a' one reaches 1 cells"),
    "a ring": (
        A + 'links = ["b", "c"]\n' + B + 'links = ["c"]\n' + C,
        "3 cells with 3 links are no tree: from 'a' one reaches 3 cells",
    ),
    "a ring and an island": (
        A
        + 'links = ["b", "c"]\n'
        + B
        + 'links = ["c"]\n'
        + C
        + C.replace("c", "d", 1)
        .replace('"c"', '"d"')
        .replace('"z"', '"w"')
        .replace("[[dell]]", "[[cell]]"),
        "4 cells with 3 links are no tree: from 'a' one reaches 3 cells",
    ),
    "subscribers in a cell of two": (
        TWO_BROKERS + "subscribers = true",
        "cell 'a' hosts subscribers, so it must have one broker",
    ),
    "no pubend": (A + TOPIC + "pubends = []", "topic 'news' needs 1 to 1024 pubends"),
    "too many pubends": (
        A + TOPIC + f"pubends = {['x'] * (PUBEND_COUNT_MAX + 1)}",
        "topic 'news' needs 1 to 1024 pubends",
    ),
    "an unknown host": (A + TOPIC + 'pubends = ["q"]', "'q' is no broker alone in its cell"),
    "a host with a sibling": (
        TWO_BROKERS + TOPIC + 'pubends = ["x"]',
        "'x' is no broker alone in its cell",
    ),
    "a cell without a name": ("[[cell]]\nbrokers = []", "a field is missing.*'name'"),
    "a cell without brokers": ('[[cell]]\nname = "a"', "a field is missing.*'brokers'"),
    "a topic without pubends": (A + TOPIC, "a field is missing.*'pubends'"),
    "a broker that is a string": ('[[cell]]\nname = "a"\nbrokers = ["x"]', "of the wrong type"),
    "cells that are no tables": ('cell = "a"', "of the wrong type"),
    "a name that is a number": (A.replace('"a"', "5"), "name = 5 is not of type str"),
    "a word for yes": (A + 'subscribers = "no"', "subscribers = 'no' is not of type bool"),
    "an unknown service": (
        A + TOPIC + 'pubends = ["x"]\nservice = "best"',
        "topic 'news' has no service 'best'",
    ),
    "a network that is no table": ('network = "a"\n' + A, "of the wrong type"),
}


@pytest.mark.parametrize(("text", "problem"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_file_is_refused_and_told_what_is_wrong(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem) as caught:
        parse_network(text)
    assert caught.value.remedy


@pytest.mark.parametrize(
    "name", ["p/x", "p\\x", "..", ".p", " p", "p ", "\t", "p\nx", "p\0", "é" * 101, "/p"]
)
def test_a_broker_whose_name_is_not_fit_for_its_folder_is_refused(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        Network((Cell(CellName("a"), (BrokerEntry(BrokerName(name)),)),))
    assert repr(name) in caught.value.problem
    assert "without /" in caught.value.remedy


@pytest.mark.parametrize("name", ["p", "broker-7", "Größe 2", "a.b", "b_1", "x:y", "é" * 100])
def test_other_names_of_brokers_are_fine(name: str) -> None:
    network = Network((Cell(CellName("a/b"), (BrokerEntry(BrokerName(name)),)),))
    assert list(network.cell_of) == [name]


def test_the_file_says_who_is_where() -> None:
    network = parse_network(TOWN)
    assert network.name == "town"
    assert network.members(CellName("middle")) == ("m1", "m2")
    assert network.cell_of[BrokerName("m2")].name == "middle"
    assert network.cell[CellName("left")].brokers[0].listen == DEFAULT_LISTEN
    assert network.neighbours(CellName("middle")) == ("left", "right", "source")
    assert list(network.pubends) == ["news/0"]
    assert network.topic["news"].service == "durable"  # type: ignore[index]
    assert parse_network(ALONE).name == "gapless"


def test_for_each_pubend_the_tree_is_directed_away_from_its_host() -> None:
    network = parse_network(TOWN)
    [pubend] = network.pubends.values()
    up = {cell.name: network.upstream(pubend, cell.name) for cell in network.cells}
    assert up == {"source": None, "middle": "source", "left": "middle", "right": "middle"}
    down = {cell.name: network.downstream(pubend, cell.name) for cell in network.cells}
    assert down == {"source": ("middle",), "middle": ("left", "right"), "left": (), "right": ()}
    assert network.next_hop(CellName("left"), CellName("right")) == "middle"


def test_where_no_subscriber_can_be_nothing_is_sent() -> None:
    network = parse_network(TOWN.replace("subscribers = true", "subscribers = false", 1))
    [pubend] = network.pubends.values()
    assert network.downstream(pubend, CellName("middle")) == ("right",)


def test_a_link_that_both_ends_name_is_one_link() -> None:
    network = parse_network(A + 'links = ["b"]\n' + B + 'links = ["a"]\n')
    assert network.neighbours(CellName("a")) == ("b",)
