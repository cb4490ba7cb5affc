"""Messages check themselves; effects are plain values."""

from __future__ import annotations

import pytest

from gapless.core.client_messages import Publish, PublisherQuery
from gapless.core.effects import Append, Persist, Put, Send
from gapless.core.events import EventBatch
from gapless.core.identity import BrokerName, PublisherName, TopicName
from gapless.core.messages import Hello, Ping


def test_a_hello_with_versions_that_are_no_range_cannot_be_made() -> None:
    with pytest.raises(ValueError, match=r"2\.\.1"):
        Hello(version=1, version_min=2)


def test_messages_are_values() -> None:
    assert Ping(3) == Ping(3) != Ping(4)
    with pytest.raises(AttributeError):
        Ping(3).number = 4  # type: ignore[misc]  # that it cannot be set is the point


def test_a_write_carries_its_replies() -> None:
    reply = Send(BrokerName("b"), Ping(1))
    persist = Persist((Append("log", (7,), (b"x",)), Put("facts", "k", b"v")), then=(reply,))
    assert persist.then == (reply,)


def test_a_publisher_cannot_choose_a_name_that_no_disk_keeps() -> None:
    events = EventBatch((b"x",))
    Publish(TopicName("t"), 1, events, PublisherName("n" * 255))
    for name in ("", "n" * 256, "é" * 128):
        with pytest.raises(ValueError, match="1 to 255 bytes"):
            Publish(TopicName("t"), 1, events, PublisherName(name))
        with pytest.raises(ValueError, match="1 to 255 bytes"):
            PublisherQuery(1, TopicName("t"), PublisherName(name))
