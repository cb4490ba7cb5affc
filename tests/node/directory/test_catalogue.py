"""All brokers come to know the same topics, and one broker decides about each."""

from __future__ import annotations

import pytest

from gapless.core.client_messages import Done, Refused
from gapless.core.effects import Persist, Send
from gapless.core.errors import ProtocolError, UsageError
from gapless.core.identity import BrokerName, ClientName, Instant, TopicName
from gapless.core.topic_messages import (
    CreateTopic,
    DeleteTopic,
    TopicEntry,
    TopicList,
    TopicNews,
    TopicQuestion,
    TopicsQuery,
)
from gapless.node.config import Config
from gapless.node.directory.catalogue import NEWS_ENTRIES_MAX, decode, encode
from gapless.node.directory.owner import choose_hosts, ranking
from gapless.node.network import parse_network
from tests.node.country import WIDE, Country
from tests.node.town import ALONE, ANN, Town, publish, subscribe

SPORT = TopicName("sport")
A, B = BrokerName("a"), BrokerName("b")
CREATE, DELETE = CreateTopic(7, SPORT), DeleteTopic(8, SPORT)


def test_a_name_has_one_owner_and_names_are_spread_over_those_that_may_host() -> None:
    network = parse_network(WIDE)
    owners = {ranking(network, TopicName(f"t{number}"))[0] for number in range(30)}
    assert owners == {"a", "b"}, "not a relay of two, nor one with subscribers"
    hosts = choose_hosts(network, SPORT, 3)
    assert hosts[0] == hosts[2] == ranking(network, SPORT)[0]
    assert {*hosts} == {"a", "b"}
    alone = parse_network('cell = [{name = "c", brokers = [{name = "x"}], subscribers = true}]')
    assert ranking(alone, SPORT) == ["x"]


def test_a_topic_is_created_by_its_owner_and_known_to_all_at_once() -> None:
    country = Country()
    refused = country.ask("l", CREATE)
    assert isinstance(refused, Refused)
    assert refused.elsewhere == (country.owner("sport"),)
    assert country.decide(CREATE) == Done(7)
    assert country.catalogues() == [{"sport": (1, False)}] * 5
    for town in country.towns.values():
        listed = town.node.catalogue.topics()
        assert [each.name for each in listed] == ["fixed", "sport"]
        assert "sport/0" in town.node.durable.streams.relays
    answer = country.ask("l", TopicsQuery(9))
    assert isinstance(answer, TopicList)
    assert [(each.name, each.incarnation) for each in answer.topics] == [("fixed", 1), ("sport", 1)]


def test_creating_alike_is_fine_and_unlike_is_refused_with_how_it_is() -> None:
    country = Country()
    assert country.decide(CreateTopic(1, SPORT, pubends=2, retention_us=5_000_000)) == Done(1)
    assert country.decide(CreateTopic(2, SPORT, pubends=2, retention_us=5_000_000)) == Done(2)
    for unlike in (
        CreateTopic(3, SPORT, pubends=2),
        CreateTopic(3, SPORT, pubends=3, retention_us=5_000_000),
        CreateTopic(3, SPORT, pubends=2, hosts=(A, A), retention_us=5_000_000),
        CreateTopic(3, SPORT, pubends=2, retention_us=5_000_000, retention_bytes=1),
    ):
        answer = country.decide(unlike)
        assert isinstance(answer, Refused)
        assert "exists, but otherwise: durable; 2 pubends at" in answer.problem
        assert "retention 5 s" in answer.problem
    assert country.ask("l", CreateTopic(4, TopicName("fixed"))) == Done(4)


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (CreateTopic(1, SPORT, "reliable", pubends=2), "reliable service stores nothing"),
        (CreateTopic(1, SPORT, "multicast", retention_us=1), "multicast service stores nothing"),
        (CreateTopic(1, SPORT, ordered=True), "a durable topic is ordered anyhow"),
        (CreateTopic(1, TopicName("")), "is no name"),
        (CreateTopic(1, TopicName("a@3")), "is no name"),
        (CreateTopic(1, TopicName("a\n")), "is no name"),
        (CreateTopic(1, TopicName("a\x1b[2J")), "is no name"),
        (CreateTopic(1, TopicName(".")), "is no name"),
        (CreateTopic(1, TopicName("..")), "is no name"),
        (CreateTopic(1, TopicName(" a")), "is no name"),
        (CreateTopic(1, SPORT, pubends=3, hosts=(A,)), "3 pubends and 1 hosts contradict"),
        (CreateTopic(1, TopicName("ä" * 101)), "is no name"),
        (CreateTopic(1, SPORT, pubends=0), "cannot have 0 pubends"),
        (CreateTopic(1, SPORT, retention_us=0), "retention of 0"),
        (CreateTopic(1, SPORT, hosts=(BrokerName("m1"),)), "'m1' may host no pubend"),
        (CreateTopic(1, SPORT, hosts=(BrokerName("x"),)), "'x' may host no pubend"),
        (DeleteTopic(1, SPORT), "there is no topic 'sport'"),
        (DeleteTopic(1, TopicName("fixed")), "one of the network file"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    message: CreateTopic | DeleteTopic, problem: str
) -> None:
    country = Country()
    answer = country.decide(message)
    assert isinstance(answer, Refused)
    assert problem in answer.problem
    assert answer.remedy
    assert not answer.retry
    assert country.catalogues() == [{}] * 5


def test_names_of_topics_are_bounded_and_one_that_was_deleted_may_be_used_again() -> None:
    country = Country(topics_max=2)
    assert country.decide(CREATE) == Done(7)
    answer = country.decide(CreateTopic(2, TopicName("more")))
    assert isinstance(answer, Refused)
    assert "which is its limit" in answer.problem
    assert country.decide(DELETE) == Done(8)
    assert country.decide(CREATE) == Done(7)
    assert country.catalogues() == [{"sport": (3, False)}] * 5


def test_nothing_is_answered_or_told_before_it_is_durable() -> None:
    country = Country()
    town = country.towns[country.owner("sport")]
    town.connect()
    effects = town.node.receive(ANN, CREATE, town.now)
    assert [type(each) for each in effects] == [Persist]
    assert SPORT not in town.node.network.topic
    later = town.node.receive(ANN, CreateTopic(9, SPORT, pubends=5), town.now)
    [refused] = [each.message for each in later]  # type: ignore[union-attr]
    assert isinstance(refused, Refused)
    assert refused.retry, "it is being decided about"
    town._do(effects)
    assert SPORT in town.node.network.topic
    country.run()
    assert country.catalogues() == [{"sport": (1, False)}] * 5


def test_without_room_a_topic_is_not_created_and_may_be_tried_again() -> None:
    country = Country()
    town = country.towns[country.owner("sport")]
    town.connect()
    [persist] = town.node.receive(ANN, CREATE, town.now)
    assert isinstance(persist, Persist)
    town._do(persist.otherwise)
    [(_, refused)] = town.flush()
    assert isinstance(refused, Refused)
    assert (refused.request, refused.retry) == (7, True)
    assert country.catalogues() == [{}] * 5
    assert country.decide(CREATE) == Done(7)


def test_one_that_was_cut_off_learns_by_its_pings_what_it_missed() -> None:
    country = Country()
    country.cut.add("l")
    assert country.decide(CREATE, country.owner("sport")) == Done(7)
    assert country.towns["l"].node.catalogue.entries == {}
    country.cut.clear()
    country.wait(3)
    assert country.catalogues() == [{"sport": (1, False)}] * 5
    messages = country.towns["m1"].wait(3_000_000)
    assert not any(isinstance(each, TopicNews) for _, each in messages), "once alike, all is said"


def test_an_older_entry_never_wins_and_a_gap_of_incarnations_does_not_matter() -> None:
    country = Country()
    leaf = country.towns["l"]
    new, old = TopicEntry(SPORT, 3, (A,)), TopicEntry(SPORT, 2, (A,), is_deleted=True)
    leaf.receive("m1", TopicNews((new,)))
    assert leaf.receive("m1", TopicNews((old,))) == [], "nor is it passed on"
    assert leaf.node.catalogue.entries[SPORT] == new
    assert leaf.node.network.topic[SPORT].pubends[0].name == "sport@3/0"
    leaf.receive("m1", TopicNews((TopicEntry(SPORT, 5, (B, B)),)))
    assert [p for p in leaf.node.durable.streams.relays if p.startswith("sport")] == [
        "sport@5/0",
        "sport@5/1",
    ]


def test_what_was_learnt_survives_a_crash_of_every_broker() -> None:
    country = Country()
    country.decide(CREATE)
    country.decide(CreateTopic(1, TopicName("gone")))
    country.decide(DeleteTopic(2, TopicName("gone")))
    before = country.catalogues()
    for name in country.towns:
        country.restart(name)
    assert country.catalogues() == before == [{"sport": (1, False), "gone": (2, True)}] * 5
    assert all(SPORT in town.node.network.topic for town in country.towns.values())


def test_an_owner_that_lost_its_disk_decides_nothing_before_it_knows_what_others_do() -> None:
    country = Country()
    owner = country.owner("sport")
    country.decide(CreateTopic(1, SPORT, pubends=2))
    country.towns[owner] = Town(owner, WIDE, propagates=True)
    later = country.ask(owner, CreateTopic(2, SPORT))
    assert isinstance(later, Refused)
    assert later.retry
    country.wait(3)
    unlike = country.ask(owner, CreateTopic(3, SPORT))
    assert isinstance(unlike, Refused)
    assert "exists, but otherwise" in unlike.problem


def test_a_file_that_contradicts_what_was_created_is_an_error_at_the_start() -> None:
    country = Country()
    country.decide(CREATE)
    town = country.towns["l"]
    for topic, wrong in (
        ("a", country.owner("sport") != "a"),
        ("b", country.owner("sport") == "a"),
    ):
        town.network = parse_network(
            WIDE.replace("topic = [", f'topic = [{{name = "sport", pubends = ["{topic}"]}}, ')
        )
        if wrong:
            with pytest.raises(UsageError, match="was created as durable; 1 pubends at"):
                country.restart("l")
        else:
            country.restart("l")
            assert SPORT in town.node.catalogue.static


def test_a_file_without_the_host_of_a_topic_that_was_created_is_an_error_at_the_start() -> None:
    country = Country()
    country.decide(CREATE)
    host, town = country.owner("sport"), country.towns["l"]
    town.network = parse_network(WIDE.replace(f'"{host}"', '"other"'))
    with pytest.raises(UsageError, match=f"has a pubend at '{host}', which is not in the network"):
        country.restart("l")


def test_a_broker_that_does_not_know_a_topic_asks_before_it_says_no_for_good() -> None:
    country = Country()
    answers = [country.ask("l", publish("red", topic="sport")) for _ in range(2)]
    assert [each.retry for each in answers if isinstance(each, Refused)] == [True, False]
    assert isinstance(answers[1], Refused)
    assert answers[1].remedy == "Create it: gapless topic create sport"
    country.cut.add("l")
    country.decide(CREATE, country.owner("sport"))
    country.cut.clear()
    country.wait(0)
    country.towns["l"].now = Instant(country.towns["l"].now + 2_000_000)
    answer = country.ask("l", subscribe(1, topic="sport"))
    assert isinstance(answer, Refused)
    assert answer.retry
    assert SPORT in country.towns["l"].node.network.topic, "the owner told it"


def test_questions_find_their_way_past_relays_and_from_strangers_are_refused() -> None:
    country = Country()
    [town] = [country.towns["m1"]]
    with pytest.raises(ProtocolError, match="no broker is called 'x'"):
        town.receive("l", TopicQuestion(SPORT, BrokerName("x"), A))
    with pytest.raises(ProtocolError, match="'x', which is to host 'sport', is unknown"):
        town.receive("l", TopicNews((TopicEntry(SPORT, 1, (BrokerName("x"),)),)))
    sent = town.receive("l", TopicQuestion(SPORT, BrokerName("l"), A))
    assert sent == [("a", TopicQuestion(SPORT, BrokerName("l"), A))]


def test_many_entries_go_in_several_messages() -> None:
    country = Country()
    leaf = country.towns["l"]
    names = [TopicName(f"t{number}") for number in range(NEWS_ENTRIES_MAX + 1)]
    entries = tuple(TopicEntry(name, 1, (A,)) for name in names)
    fresh, effects = leaf.node.catalogue.learn(BrokerName("m1"), entries, leaf.now)
    sent = [each.message for each in effects if isinstance(each, Send) and each.to == "m2"]
    assert [len(each.entries) for each in sent if isinstance(each, TopicNews)] == [
        NEWS_ENTRIES_MAX,
        1,
    ]
    assert tuple(fresh) == entries


def test_entries_are_written_down_as_they_are() -> None:
    for entry in (
        TopicEntry(SPORT, 1, (A, B), "durable", 5, 6),
        TopicEntry(SPORT, 2, (A,), is_deleted=True),
    ):
        assert decode(encode(entry)) == entry
    with pytest.raises(ValueError, match="from 1"):
        TopicEntry(SPORT, 0, (A,))
    with pytest.raises(ValueError, match="pubends"):
        TopicEntry(SPORT, 1, ())


# --- names that are forgotten -------------------------------------------------------------------

FORGET = 10 * Config().heartbeat


@pytest.mark.parametrize("restarts", [False, True])
def test_the_name_of_a_deleted_topic_is_forgotten_by_all_and_takes_no_room(restarts: bool) -> None:
    country = Country(topics_max=2, topic_forget=FORGET)
    assert country.decide(CREATE) == Done(7)
    assert country.decide(DELETE) == Done(8)
    if restarts:
        for name in country.towns:
            country.restart(name)
    refused = country.decide(CreateTopic(2, TopicName("more")))
    assert isinstance(refused, Refused)
    country.wait(12)
    assert country.catalogues() == [{}] * 5
    messages = country.towns["m1"].wait(3_000_000)
    assert not any(isinstance(each, TopicNews) for _, each in messages), "their digests are alike"
    assert country.decide(CreateTopic(2, TopicName("more"))) == Done(2)
    for town in country.towns.values():
        town.node.check()


def test_a_name_that_comes_back_after_it_was_forgotten_has_new_pubends() -> None:
    country = Country(topic_forget=FORGET)
    country.decide(CREATE)
    country.decide(DELETE)
    country.wait(12)
    country.restart(country.owner("sport"))
    assert country.decide(CREATE) == Done(7)
    assert country.catalogues() == [{"sport": (3, False)}] * 5


def test_a_deleted_topic_is_not_brought_back_by_one_who_was_away_for_long() -> None:
    country = Country(topic_forget=FORGET)
    country.decide(CREATE)
    country.cut.add("l")
    country.decide(DELETE, country.owner("sport"))
    country.wait(12)
    assert country.towns["a"].node.catalogue.entries == {}
    country.cut.clear()
    country.wait(8)
    assert country.catalogues() == [{"sport": (3, True)}] * 5, "it is deleted again"
    assert not any(SPORT in town.node.network.topic for town in country.towns.values())
    country.wait(12)
    assert country.catalogues() == [{}] * 5


def test_topics_and_pubends_are_counted_for_their_creators() -> None:
    town = Town("h", ALONE, topics_max=9, pubends_max=42)  # of which one is there, with two
    for client, owner in (("ann", "ann"), ("bob", "bob")):
        town._do(town.node.link_up(ClientName(client), town.now, owner))

    def create(client: str, name: str, pubends: int = 1) -> str:
        [answer] = [
            message
            for to, message in town.receive(
                client, CreateTopic(1, TopicName(name), pubends=pubends)
            )
            if to == client
        ]
        return answer.problem if isinstance(answer, Refused) else ""

    assert create("ann", "a0") == create("ann", "a1") == ""
    assert create("ann", "a2") == "'ann' has 2 names of topics, and one principal may have 2"
    assert create("bob", "b0", 9) == ""
    assert create("bob", "b1", 2) == "'bob' has 9 pubends, and one principal may have 10"
    assert create("bob", "b1") == ""
    town.receive("ann", DeleteTopic(1, TopicName("a1")))
    assert "'ann' has 2 names" in create("ann", "a2"), "a name counts until it is forgotten"
    assert create("ann", "a1") == "", "and may be used again"
    decoded = [decode(fact) for fact in town.volume.items("catalogue").values()]
    assert {(each.name, each.owner) for each in decoded} == {
        ("a0", "ann"),
        ("a1", "ann"),
        ("b0", "bob"),
        ("b1", "bob"),
    }
