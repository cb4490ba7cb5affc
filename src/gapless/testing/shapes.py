"""Shapes: networks drawn from dice, from one broker that does everything to six levels of cells.

A trunk of inner cells (one to three brokers each, now and then a fork) joins the cells that host
pubends with those that host subscribers; roles are combined now and then.
"""

from __future__ import annotations

import random
from dataclasses import replace

from gapless.core.identity import BrokerName, CellName, TopicName
from gapless.node.network import BrokerEntry, Cell, Network, Topic

LEAVES_MAX = 6


def draw_network(dice: random.Random) -> Network:
    """A network of any shape that the simulator plays."""
    if dice.random() < 0.08:
        return Network(
            cells=(cell("a", 1, subscribers=True),), topics=draw_topics(dice, [BrokerName("a")])
        )
    levels = dice.choices((2, 3, 4, 5, 6), (1, 8, 4, 2, 1))[0]
    cells: list[Cell] = []
    trunk: list[str] = []
    for depth in range(levels - 2):
        name = f"m{depth + 1}"
        size = dice.choices((1, 2, 3), (3, 4, 1))[0]
        cells.append(cell(name, size, links=trunk[-1:]))
        trunk.append(name)
        if depth and dice.random() < 0.2:
            cells.append(cell(f"{name}x", dice.randint(1, 2), links=[trunk[-2]]))
    hosts: list[str] = []
    for number in range(dice.choices((1, 2), (3, 1))[0]):
        name = f"p{number + 1}"
        above = trunk[:1] or hosts[:1]
        cells.append(cell(name, 1, links=above, subscribers=dice.random() < 0.2))
        hosts.append(name)
    inner = [each.name for each in cells if each.name not in hosts] or [CellName(hosts[0])]
    for number in range(dice.choices(range(1, LEAVES_MAX + 1), (6, 6, 4, 2, 1, 1))[0]):
        upper = trunk[-1] if trunk and not number else dice.choice(inner)
        cells.append(cell(f"s{number + 1}", 1, links=[upper], subscribers=True))
        if dice.random() < 0.1:
            hosts.append(f"s{number + 1}")
    return Network(
        cells=tuple(cells), topics=draw_topics(dice, [BrokerName(host) for host in hosts])
    )


def draw_topics(dice: random.Random, hosts: list[BrokerName]) -> tuple[Topic, ...]:
    """One or two topics with one to four pubends altogether, every host having at least one."""
    pubends = max(len(hosts), dice.choices((1, 2, 3, 4), (4, 3, 1, 1))[0])
    placed = [*hosts, *(dice.choice(hosts) for _ in range(pubends - len(hosts)))]
    cut = dice.randrange(1, pubends) if pubends > 1 and dice.random() < 0.4 else pubends
    parts = [placed[:cut], placed[cut:]]
    return tuple(
        Topic(TopicName(name), tuple(part)) for name, part in zip("tu", parts, strict=True) if part
    )


def draw_retention(dice: random.Random, network: Network) -> Network:
    """The same network, in which topics now and then give up on subscribers that are away."""
    topics = tuple(
        replace(
            topic,
            retention_us=dice.choice((50_000, 300_000)) if dice.random() < 0.25 else None,
            retention_bytes=dice.choice((200, 1_000)) if dice.random() < 0.15 else None,
        )
        for topic in network.topics
    )
    return Network(cells=network.cells, topics=topics)


def draw_keeps(seed: int, network: Network) -> Network:
    """The same network, in which topics now and then keep events for everybody. Its dice are its
    own."""
    own = random.Random(f"keeps of {seed}")
    topics = []
    for topic in network.topics:
        time, size = own.choice((50_000, 300_000)), own.choice((200, 1_000))
        time, size = min(time, topic.retention_us or time), min(size, topic.retention_bytes or size)
        keep_us = time if own.random() < 0.15 else None
        topics.append(
            replace(topic, keep_us=keep_us, keep_bytes=size if own.random() < 0.1 else None)
        )
    return Network(cells=network.cells, topics=tuple(topics))


def cell(
    name: str, size: int, links: list[str] | None = None, *, subscribers: bool = False
) -> Cell:
    """A cell whose brokers are called after it."""
    brokers = [name] if size == 1 else [f"{name}{letter}" for letter in "abc"[:size]]
    return Cell(
        CellName(name),
        tuple(BrokerEntry(BrokerName(broker)) for broker in brokers),
        tuple(CellName(link) for link in links or ()),
        subscribers,
    )


def show_network(network: Network) -> str:
    """One line: cells with their brokers and links, then the topics."""
    cells = []
    for each in network.cells:
        size = f"*{len(each.brokers)}" if len(each.brokers) > 1 else ""
        links = f"-{','.join(each.links)}" if each.links else ""
        cells.append(f"{each.name}{size}{links}{'!' if each.subscribers else ''}")
    topics = [
        f"{topic.name}@{','.join(topic.hosts)}{_retention(topic)}" for topic in network.topics
    ]
    return " ".join(cells + topics)


def _retention(topic: Topic) -> str:
    time = "" if topic.retention_us is None else f"<{topic.retention_us // 1_000}ms"
    size = "" if topic.retention_bytes is None else f"<{topic.retention_bytes}B"
    keep_time = "" if topic.keep_us is None else f">{topic.keep_us // 1_000}ms"
    keep_size = "" if topic.keep_bytes is None else f">{topic.keep_bytes}B"
    return time + size + keep_time + keep_size
