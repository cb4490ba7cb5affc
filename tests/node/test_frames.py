"""Whatever clients ask for, what brokers say to each other of it fits a frame."""

from __future__ import annotations

from gapless.core.client_messages import Refused, Subscribe, Subscribed
from gapless.core.effects import Send
from gapless.core.identity import BrokerName, TopicName
from gapless.core.topic_messages import TopicEntry, TopicList, TopicNews, TopicsQuery
from gapless.filters.filter import Filter
from gapless.node.dispatch import KINDS as SERVICE_KINDS
from gapless.propagation import condition
from gapless.propagation.condition import EVERYTHING, show_all, show_removed
from gapless.tree.messages import Carried, Hop, Position, SubscriptionId, SubscriptionOffer
from gapless.tree.recovery import batches
from gapless.tree.settings import TreeSettings
from gapless.wire.framing import FRAME_BYTES_MAX
from gapless.wire.kinds import codec
from tests.node.test_hostile import T, calm, last, say, world
from tests.node.town import ANN, TOWN, Town

CODEC = codec(*SERVICE_KINDS)
LONGEST = 65_000


def test_many_long_conditions_are_told_as_everything_and_what_matches_comes() -> None:
    """The fuzzer's world refuses what fits no frame."""
    made = world("pair", "b1")
    for number in range(280):
        text = f"{number:05}".ljust(LONGEST, "x")
        say(made, "b1", Subscribe(T, number, number, f"c = '{text}'"))
    calm(made)
    begun = [each for each in made.heard["b1"] if isinstance(each, Subscribed)]
    assert len(begun) == 280
    made.restart("a")  # and asks for all of it at once
    calm(made)
    made.come("b", "b2", "")
    say(made, "b2", Subscribe(T, 1, 1, "c = 'red'"))
    calm(made)
    assert isinstance(last(made, "b2"), Subscribed)


def test_conditions_that_are_too_long_together_are_covered_by_one() -> None:
    texts = [f"c = '{number}{'é' * 30_000}'" for number in range(80)]
    wanted = [one for text in texts for one in Filter.parse(text).conjunctions]
    assert show_all(wanted) == (EVERYTHING,)
    assert show_removed(wanted) == ()
    few = wanted[: condition.CONDITIONS_BYTES_MAX // 60_100]
    assert len(show_all(few)) == len(show_removed(few)) == len(few)
    assert sum(len(each.encode()) for each in show_all(few)) <= condition.CONDITIONS_BYTES_MAX


def test_news_of_topics_with_many_pubends_go_in_several_messages() -> None:
    town = Town("s", TOWN)
    host = BrokerName("h" * 200)
    entries = tuple(TopicEntry(TopicName(f"{n}"), 1, (host,) * 1_024) for n in range(200))
    effects = town.node.catalogue._tell(BrokerName("m1"), entries)
    told: list[TopicEntry] = []
    for effect in effects:
        assert isinstance(effect, Send)
        assert isinstance(effect.message, TopicNews)
        assert len(CODEC.encode(effect.message)) <= FRAME_BYTES_MAX
        told += effect.message.entries
    assert tuple(told) == entries


def test_a_list_of_topics_that_fits_no_frame_is_refused_with_how_long_it_is() -> None:
    town = Town("s", TOWN)
    town.connect()
    town.flush()
    [(_, answer)] = town.receive(ANN, TopicsQuery(1))
    assert isinstance(answer, TopicList)
    host = BrokerName("h" * 200)
    for number in range(70):
        entry = TopicEntry(TopicName(f"{number}"), 1, (host,) * 1_024)
        town.node.catalogue._put(entry)
    [(_, answer)] = town.receive(ANN, TopicsQuery(2))
    assert isinstance(answer, Refused)
    assert "71 topics" in answer.problem


def test_subscriptions_of_long_conditions_go_through_the_tree_in_several_batches() -> None:
    hop = Hop(BrokerName("a"), None)
    messages = [
        SubscriptionOffer(SubscriptionId(BrokerName("a"), 1, number), "t", "c" * LONGEST, (hop,))
        for number in range(500)
    ]
    cut = list(batches(list(messages), TreeSettings()))
    assert [each for batch in cut for each in batch] == messages
    for batch in cut:
        assert len(CODEC.encode(Carried(Position(1, 1), 0, batch))) < 2 << 20
