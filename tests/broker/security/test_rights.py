"""What a principal may not do is refused, in words that tell nothing it did not know."""

from __future__ import annotations

from functools import partial

import pytest

from gapless.broker.security.rights import (
    ALL_RIGHTS,
    EVERYTHING,
    NEEDS,
    Right,
    Rights,
    name_refusal,
    parse_rights,
    read_rights,
    refusal,
    visible,
)
from gapless.core.broker_messages import Nack
from gapless.core.client_messages import (
    Acknowledge,
    CaughtUp,
    Consumed,
    Deliveries,
    Done,
    Ended,
    FellBehind,
    Forget,
    Lost,
    PublisherPosition,
    PublisherQuery,
    Receipt,
    Refused,
    Subscribe,
    Subscribed,
    SubscriptionAltered,
    Unreached,
    Unsubscribe,
)
from gapless.core.effects import Send
from gapless.core.errors import ProtocolError, UsageError
from gapless.core.group_messages import Handed, TakenBack
from gapless.core.identity import (
    BrokerName,
    ClientName,
    ProducerName,
    PubendName,
    PublisherName,
    SubscriptionName,
    TopicName,
)
from gapless.core.range_messages import Positions, PositionsQuery, RangeRead, ReadRange
from gapless.core.roster_messages import Roster, RosterQuery, Strike
from gapless.core.ticks import Span
from gapless.core.topic_messages import (
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    TopicEntry,
    TopicList,
    TopicNews,
    TopicQuestion,
)
from gapless.core.transaction_messages import (
    Abort,
    Commit,
    Committed,
    ProducerPosition,
    ProducerQuery,
    Stage,
)
from gapless.node.delivery.connections import ClientConnection
from gapless.node.subscriptions.homes import refuse_unknown
from gapless.wire.kinds import BROKERS, KINDS, LINK
from tests.broker.stage import publication

ANSWERS = {
    Receipt, PublisherPosition, Refused, Subscribed, Ended, Deliveries, Lost, CaughtUp, FellBehind,
    Unreached, Done, SubscriptionAltered, Committed, ProducerPosition, RangeRead, Positions,
    TopicList, TopicNews, TopicQuestion, Roster, Handed, TakenBack,
}  # fmt: skip
"""What brokers send, to clients and, of topics, to each other; it is not for clients to send."""

FEED = ProducerName("feed")
NEEDING = [
    (publication(), Right.PUBLISH),
    (PublisherQuery(7, TopicName("t"), PublisherName("p")), Right.PUBLISH),
    (Subscribe(TopicName("t"), 7, 1), Right.SUBSCRIBE),
    (Stage(TopicName("t"), 7, FEED, 1, "a", 0, publication().events), Right.PUBLISH),
    (CreateTopic(7, TopicName("t")), Right.CREATE),
    (DeleteTopic(7, TopicName("t")), Right.CREATE),
    (AlterTopic(7, TopicName("t")), Right.CREATE),
    (Commit(TopicName("t"), 7, FEED, 1), Right.PUBLISH),
    (Abort(TopicName("t"), 7, FEED, 1), Right.PUBLISH),
    (ProducerQuery(TopicName("t"), 7, FEED), Right.PUBLISH),
    (ReadRange(TopicName("t"), 7, PubendName("t/0"), Span(1, 2)), Right.SUBSCRIBE),
    (PositionsQuery(TopicName("t"), 7), Right.SUBSCRIBE),
    (RosterQuery(TopicName("t"), 7), Right.ADMINISTER),
    (Strike(TopicName("t"), 7, "publishers", "feed"), Right.ADMINISTER),
]


def test_every_message_of_a_client_says_which_right_it_needs() -> None:
    """A new kind of message belongs into `NEEDS`, or here into `ANSWERS`."""
    assert set(KINDS) - {*LINK, *BROKERS} == set(NEEDS) | ANSWERS
    assert not set(NEEDS) & ANSWERS
    for kind, need in NEEDS.items():
        assert need is None or need.field in (EVERYTHING, *kind.__struct_fields__), kind


@pytest.mark.parametrize(("message", "right"), NEEDING)
def test_a_message_is_allowed_by_its_right_alone(message: Subscribe, right: Right) -> None:
    assert refusal(Rights({right: ("t",)}), message) is None
    others = Rights({other: ("*",) for other in Right if other != right} | {right: ("tt", "T")})
    refused = refusal(others, message)
    assert refused is not None
    assert refused.request == message.request
    assert refused.problem == f"not allowed to {right} on topic 't'"


@pytest.mark.parametrize("message", [Acknowledge(1, {}), Unsubscribe(1), Consumed(3)])
def test_what_is_about_the_connection_itself_needs_no_right(message: Consumed) -> None:
    assert refusal(Rights(), message) is None


@pytest.mark.parametrize(
    "message", [Done(1), Nack(PubendName("t/0"), (Span(1, 2),)), Ended(1)], ids=repr
)
def test_what_is_not_listed_is_not_taken_from_a_client(message: Done) -> None:
    with pytest.raises(ProtocolError, match="not for clients"):
        refusal(ALL_RIGHTS, message)


@pytest.mark.parametrize(
    ("pattern", "topic", "allowed"),
    [
        ("*", "anything", True),
        ("trades*", "trades", True),
        ("trades*", "trades.eu", True),
        ("trades*", "xtrades", False),
        ("trades.?", "trades.eu", False),
        ("Trades", "trades", False),
        ("[ab]", "b", True),
    ],
)
def test_patterns_are_of_whole_names_and_case_counts(
    pattern: str, topic: str, allowed: bool
) -> None:
    assert Rights({Right.PUBLISH: ("none", pattern)}).may(Right.PUBLISH, topic) is allowed


FORGET = Forget(3, SubscriptionName("desk-7"))
SUBSCRIBES, ADMINISTERS = parse_rights(["subscribe=t"]), parse_rights(["administer=t"])


@pytest.mark.parametrize(
    ("rights", "topic", "allowed"),
    [
        (SUBSCRIBES, "t", True),
        (SUBSCRIBES, "u", False),
        (ADMINISTERS, "t", True),
        (ADMINISTERS, "u", False),
        (Rights(), "t", False),
    ],
)
def test_a_subscription_of_ones_own_is_ended_while_its_topic_is_allowed(
    rights: Rights, topic: str, allowed: bool
) -> None:
    refused = name_refusal(rights, FORGET, topic)
    assert (refused is None) is allowed
    if refused is not None:  # as the node says it of one that is not there, or another's
        [unknown] = refuse_unknown(ClientName("c"), FORGET)
        assert isinstance(unknown, Send)
        assert refused == unknown.message


@pytest.mark.parametrize(
    ("rights", "owner", "uses", "ends"),
    [
        (SUBSCRIBES, "desk", True, True),
        (SUBSCRIBES, "", False, False),  # from before there was security
        (SUBSCRIBES, "rival", False, False),
        (ADMINISTERS, "rival", False, True),
        (ADMINISTERS, "", True, True),
    ],
)
def test_one_of_another_is_ended_by_who_administers_its_topic_and_used_by_nobody_else(
    rights: Rights, owner: str, uses: bool, ends: bool
) -> None:
    client = ClientConnection("desk", partial(rights.may, Right.ADMINISTER))
    assert (client.may_use(owner, "t"), client.may_end(owner, "t")) == (uses, ends)


def test_rights_are_written_as_they_are_read() -> None:
    rights = parse_rights(["publish=a,b* subscribe=*", "publish=c"])
    assert rights.patterns == {Right.PUBLISH: ("a", "b*", "c"), Right.SUBSCRIBE: ("*",)}
    assert parse_rights([rights.show()]) == rights
    assert read_rights({"publish": ["a", "b*", "c"], "subscribe": ["*"]}, "x") == rights
    assert parse_rights(["all"]) == ALL_RIGHTS
    assert ALL_RIGHTS.administers
    assert not parse_rights(["administer=t"]).administers
    assert not Rights()


@pytest.mark.parametrize("text", ["publish", "publish=", "=t", "fly=t", "ALL"])
def test_what_is_no_right_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no right"):
        parse_rights([text])


@pytest.mark.parametrize("table", [None, {"fly": ["*"]}, {"publish": "*"}, {"publish": [""]}])
def test_a_table_that_gives_no_rights_is_refused(table: object) -> None:
    with pytest.raises(UsageError):
        read_rights(table, "here")


def test_topics_are_shown_only_to_those_who_may_do_something_with_them() -> None:
    told = TopicList(
        1, tuple(TopicEntry(TopicName(name), 1, (BrokerName("b"),)) for name in ("a", "b", "c"))
    )
    rights = Rights({Right.PUBLISH: ("a",), Right.CREATE: ("c*",)})
    assert [each.name for each in visible(rights, told).topics] == ["a", "c"]
    assert visible(Rights(), told).topics == ()
