"""What a broker knows of durable subscriptions counts at once, durable or not."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gapless.core.client_messages import Acknowledge, Deliveries, Done, Subscribed
from gapless.core.effects import Delete
from gapless.core.identity import BrokerName, Instant, SubscriptionName, TopicName
from gapless.core.ticks import TICK_MAX
from gapless.core.topic_messages import CreateTopic
from gapless.node.context import Context, EventEncoding
from gapless.node.delivery.connections import ClientConnections
from gapless.node.delivery.subscribers import Subscribers
from gapless.node.directory.catalogue import CATALOGUE
from gapless.node.network import parse_network
from gapless.node.subscriptions.named_subscriptions import MOVING_MAX, Moved, NamedSubscriptions
from gapless.testing.memory_volume import MemoryVolume
from gapless.wire.events import decode_attributes
from tests.node.country import Country
from tests.node.town import TOWN, colours, publish, subscribe


def durables(volume: MemoryVolume) -> NamedSubscriptions:
    network, encoding = parse_network(TOWN), EventEncoding(decode_attributes)
    context = Context(BrokerName("s"), network, volume, Instant(0), encoding)
    return NamedSubscriptions(
        context, Subscribers(context.config, decode_attributes, ClientConnections())
    )


def test_a_move_is_remembered_before_it_is_durable_and_after() -> None:
    volume = MemoryVolume()
    here, desk, there = durables(volume), SubscriptionName("desk"), BrokerName("there")
    assert here.moved(desk) is None
    [persist] = here.remember_move(desk, Moved(there, 3))
    assert here.moved(desk) == Moved(there, 3)
    volume.commit(persist.writes)  # type: ignore[union-attr]
    for number in range(MOVING_MAX):
        here.remember_move(SubscriptionName(str(number)), Moved(there, 1))
    assert here.moved(desk) == durables(volume).moved(desk) == Moved(there, 3)


@pytest.mark.parametrize("topic", ["fixed", "made", "made, and not noted"])
def test_what_survives_a_restart_is_still_told_upward(topic: str) -> None:
    """Nobody is attached, and nobody else at this broker wants the event: only the leaf that got
    its survivors back keeps the brokers on the way from filtering it. The topic is of the network
    file, or was created; or news of it found no room on the disk, so that it comes again later."""
    country, name = Country(), topic.partition(",")[0]
    country.decide(CreateTopic(1, TopicName("made"), hosts=(BrokerName("a"),)))
    country.wait(2)
    red = replace(subscribe(1, "colour = 'red'", topic=name), name=SubscriptionName("x"))
    assert isinstance(country.ask("l", red), Subscribed)
    if name != topic:
        country.towns["l"].volume.commit((Delete(CATALOGUE, name),))
    country.restart("l")
    country.wait(5)
    country.ask("a", publish("red", "blue", "red", topic=name), client="pub")
    country.wait(3)
    country.ask("l", red, client="bob")
    country.wait(3)
    heard = [each for each in country.heard["bob@l"] if isinstance(each, Deliveries)]
    assert [colour for each in heard for colour in colours(each.events)] == ["red", "red"]


def test_the_filtered_log_gives_back_what_every_durable_subscription_has_acknowledged() -> None:
    country, pubend = Country(), "fixed/0"
    volume = country.towns["l"].volume
    for number, name in enumerate(("x", "y"), start=1):
        named = replace(subscribe(number, topic="fixed"), name=SubscriptionName(name))
        country.ask("l", named)
        country.wait(1)
    assert len(country.towns["l"].node.durable.subscriptions) == 2
    country.ask("a", publish("red", "blue", topic="fixed"), client="pub")
    country.wait(3)
    ticks, _ = volume.scan(f"filtered/{pubend}", 0, TICK_MAX)
    assert len(ticks) == 2
    for number, kept in ((1, 2), (2, 1)):
        acknowledged = Acknowledge(number, {pubend: ticks[0] + 1}, request=10 + number)
        assert country.ask("l", acknowledged) == Done(10 + number)
        country.wait(2)
        assert len(volume.scan(f"filtered/{pubend}", 0, TICK_MAX)[0]) == kept
