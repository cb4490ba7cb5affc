"""A reload names what has changed, and refuses by name what cannot be applied."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gapless.broker.configuration import Configuration, compare
from gapless.broker.settings import Settings
from gapless.core.identity import BrokerName, CellName, Instant
from gapless.node.config import Config
from gapless.node.context import EventEncoding
from gapless.node.network import Network, parse_network
from gapless.node.node import Node
from gapless.testing.memory_volume import MemoryVolume
from gapless.wire.events import check_events, decode_attributes

FILE = """
[[cell]]
name = "p"
brokers = [{ name = "p" }]
links = ["s1"]
[[cell]]
name = "s1"
subscribers = true
brokers = [{ name = "s1" }]
[[topic]]
name = "t"
pubends = ["p"]
"""
MORE = """
[[cell]]
name = "s2"
subscribers = true
brokers = [{ name = "s2" }]
links = ["p"]
"""
P, S2 = BrokerName("p"), BrokerName("s2")


def configured(text: str, limits: Config | None = None) -> Configuration:
    return Configuration(parse_network(text), Settings(data=Path()), limits or Config())


def node_of(name: BrokerName, network: Network) -> Node:
    encoding = EventEncoding(decode_attributes, check_events)
    return Node(name, network, MemoryVolume(), Instant(1_000_000), encoding=encoding)


def looked(name: BrokerName, old: str, new: str) -> tuple[list[str], list[str]]:
    before = configured(old)
    found = compare(name, node_of(name, before.network), before, configured(new))
    return list(found.differences), list(found.refused)


def test_a_broker_that_comes_is_named() -> None:
    differences, refused = looked(P, FILE, FILE + MORE)
    assert differences == ["broker 's2' comes, in cell 's2'", "cell 'p' links to s1, s2"]
    assert refused == []


def test_a_broker_that_goes_is_named_and_ends_if_it_has_nothing() -> None:
    assert looked(P, FILE + MORE, FILE)[0][0] == "broker 's2' goes"
    assert looked(S2, FILE + MORE, FILE)[1] == []


@pytest.mark.parametrize(
    ("name", "new", "refused"),
    [
        (P, MORE.replace('links = ["p"]', ""), "'p' goes, and hosts 't/0'"),
        (P, FILE.partition("[[topic]]")[0], "topic 't' is not in the new file"),
        (P, FILE.replace('pubends = ["p"]', 'pubends = ["s1"]'), "topic 't' has other pubends"),
        (
            P,
            FILE.replace('pubends = ["p"]', 'service = "reliable"'),
            "topic 't' has another service",
        ),
    ],
)
def test_what_cannot_be_applied_is_refused_by_name(
    name: BrokerName, new: str, refused: str
) -> None:
    assert any(line.startswith(refused) for line in looked(name, FILE, new)[1])


def test_a_setting_that_changed_is_named_with_both_values() -> None:
    before, after = configured(FILE), configured(FILE, Config(topics_max=7))
    found = compare(P, node_of(P, before.network), before, after)
    assert found.differences == (f"topics_max is 7, and was {Config().topics_max}",)
    assert found.is_applied


def test_files_that_say_the_same_have_one_digest_whatever_their_addresses() -> None:
    network = parse_network(FILE + MORE)
    elsewhere = parse_network((FILE + MORE).replace('name = "s2" }', 'name = "s2", http = "h:1" }'))
    assert network.digest == elsewhere.digest
    assert network.digest != parse_network(FILE).digest
    assert network.without(CellName("s2")).digest == parse_network(FILE).digest


def test_pubends_of_a_broker_that_moved_are_where_the_file_says() -> None:
    moved = '[network]\nmoved = { old = "p" }\n' + FILE.replace('["p"]', '["old"]')
    network = parse_network(moved.replace('links = ["old"]', 'links = ["p"]'))
    assert network.topic["t"].hosts == ("p",)  # type: ignore[index]
    put = replace(network.topics[0], name="u", hosts=(BrokerName("old"),))  # type: ignore[arg-type]
    own = network.own()
    own.put_topic(put)
    assert own.topic["u"].hosts == ("p",)  # type: ignore[index]
