"""What a topic says of retention is what its pubends do, however the topic came to be."""

from __future__ import annotations

import pytest

from gapless.core.client_messages import Lost, Subscribe
from gapless.core.identity import BrokerName, PubendName, SubscriptionName
from gapless.core.topic_messages import CreateTopic
from gapless.knowledge.retention import Policy
from gapless.node.config import SECOND
from gapless.node.context import EventEncoding
from gapless.node.network import parse_network
from gapless.node.node import Node
from gapless.wire.events import decode_attributes
from tests.node.town import ALONE, CONFIG, NEWS, Town, publish

ONE = ALONE.replace('["h", "h"]', '["h"]')
FIRST = PubendName("news/0")
NAME = SubscriptionName("away")
SIZE = "retention_bytes = 60\n"
AGE = "retention_seconds = 2\n"


def created(text: str) -> Town:
    """The topic is not in the network file, but made by a client."""
    town = Town("h", ONE.replace("news", "sport"), now=SECOND)
    town.connect("ann")
    time = 2 * SECOND if text == AGE else None
    size = 60 if text == SIZE else None
    town.receive("ann", CreateTopic(1, NEWS, retention_us=time, retention_bytes=size))
    town.wait(SECOND)
    return town


def restarted(town: Town, text: str) -> Town:
    """The same disk, and a new node."""
    town.node = Node(
        BrokerName("h"),
        parse_network(text),
        town.volume,
        town.now,
        encoding=EventEncoding(decode_attributes),
        config=CONFIG,
    )
    town._do(town.node.start(town.now))
    town.connect("ann")
    return town


@pytest.mark.parametrize("again", [False, True], ids=["first", "restarted"])
@pytest.mark.parametrize("way", ["file", "client"])
@pytest.mark.parametrize("text", [SIZE, AGE], ids=["size", "age"])
def test_what_is_retained_no_longer_is_lost_to_one_that_was_away(
    text: str, way: str, again: bool
) -> None:
    if way == "file":
        town = Town("h", ONE + text, now=SECOND)
        town.connect("ann")
    else:
        town = created(text)
    if again:
        file = ONE + text if way == "file" else ONE.replace("news", "sport")
        town = restarted(town, file)
    wish = Subscribe(NEWS, 1, 1, name=NAME, tokens="broker")
    town.receive("ann", wish)
    town.wait(SECOND)
    town.leave("ann")
    town.connect("bob")
    for _ in range(5):
        town.receive("bob", publish(*["red"] * 4))
        town.wait(SECOND)
    pubend = town.node.durable.streams.pubends[FIRST]
    assert pubend.release.policy != Policy()
    assert pubend.released > 0, "though one that is away has acknowledged nothing"
    town.connect("ann")
    sent = town.receive("ann", wish) + town.wait(2 * SECOND)
    assert sum(isinstance(message, Lost) for _, message in sent) == 1
