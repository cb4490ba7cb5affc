"""A registrar knows where a name is at home, whatever order the news of it come in."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from gapless.core.client_messages import Subscribe
from gapless.core.effects import Persist, Tell
from gapless.core.identity import BrokerName, SubscriptionName
from gapless.core.name_messages import NameEntry, NameQuestion
from gapless.node.config import Config
from gapless.node.directory.registry import Noted, Registry, registrar_of
from gapless.node.network import parse_network
from gapless.testing.memory_volume import MemoryVolume
from tests.node.town import ALONE, ANN, NEWS, Town

if TYPE_CHECKING:
    from gapless.core.effects import Effect
    from gapless.core.name_messages import NameAnswer, Want

NETWORK = parse_network("""
cell = [
    { name = "p", brokers = [{ name = "p" }] },
    { name = "a", links = ["p"], subscribers = true, brokers = [{ name = "a" }] },
    { name = "b", links = ["p"], subscribers = true, brokers = [{ name = "b" }] },
    { name = "c", links = ["p"], subscribers = true, brokers = [{ name = "c" }] },
]
""")
DESK = SubscriptionName("desk")


class Office:
    """A registrar, its disk, and questions put to it."""

    def __init__(self, volume: MemoryVolume | None = None, names_max: int = 10) -> None:
        self.volume = volume or MemoryVolume()
        self.own: NameEntry | None = None
        self.number = 0
        self.registry = Registry(
            BrokerName("a"), NETWORK, Config(names_max=names_max), self.volume, lambda _: self.own
        )

    def question(
        self, want: Want, sender: str, known: NameEntry | None = None, *, epoch: int = 1
    ) -> NameQuestion:
        self.number += 1
        here = BrokerName("a")
        return NameQuestion(DESK, BrokerName(sender), here, want, epoch, self.number, known)

    def put(self, question: NameQuestion) -> NameAnswer | None:
        answer, effects = self.registry.receive(question)
        return answer or self.write(effects)

    def write(self, effects: list[Effect], *, ok: bool = True) -> NameAnswer | None:
        answer = None
        for effect in effects:
            assert isinstance(effect, Persist)
            if ok:
                self.volume.commit(effect.writes)
            for told in effect.then if ok else effect.otherwise:
                assert isinstance(told, Tell)
                assert isinstance(told.message, Noted)
                answer = self.registry.noted(told.message)
            self.registry.check()
        return answer

    def ask(self, want: Want, sender: str, known: NameEntry | None = None) -> NameEntry | None:
        answer = self.put(self.question(want, sender, known))
        assert answer is not None
        return answer.entry


def at(home: str, moves: int = 0) -> NameEntry:
    return NameEntry(BrokerName(home), moves)


def test_a_name_goes_to_the_first_who_claims_it_and_is_shown_to_all_others() -> None:
    office = Office()
    assert office.ask("look", "b") is None
    first = office.ask("claim", "b")
    assert first is not None
    assert (first.home, first.moves) == ("b", 0)
    assert office.ask("claim", "c") == office.ask("look", "c") == first
    again = Office(office.volume)
    assert again.ask("look", "c") == first, "it is durable"


def test_nothing_is_answered_before_it_is_durable_nor_where_there_is_no_room() -> None:
    office = Office()
    answer, effects = office.registry.receive(office.question("claim", "b"))
    assert answer is None
    assert office.put(office.question("claim", "c")) is None, "it is being written"
    assert office.write(effects, ok=False) is None
    second = office.ask("claim", "c")
    assert second is not None
    assert second.home == "c", "as if nobody had asked before"


def test_the_same_claim_gets_the_same_answer_and_a_younger_one_begins_a_new_life() -> None:
    office = Office()
    claim = office.question("claim", "b", epoch=7)
    first = office.put(claim)
    assert first is not None
    assert first.entry is not None
    assert office.put(claim) == first
    crashed = office.put(office.question("claim", "b", epoch=8))
    assert crashed is not None
    assert crashed.entry is not None
    assert crashed.entry.moves == first.entry.moves + 2
    assert office.put(claim) == replace(first, entry=crashed.entry), "it comes too late"


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_newest_move_holds_in_whatever_order_they_are_told(order: tuple[int, ...]) -> None:
    office = Office()
    office.ask("claim", "a")
    moves = [at("b", 1), at("c", 2), at("b", 3)]
    for each in order:
        office.ask("tell", moves[each].home, moves[each])
    assert office.ask("look", "a") == at("b", 3)


def test_the_end_of_a_life_frees_the_name_and_nothing_of_it_touches_the_next() -> None:
    office = Office()
    office.ask("claim", "b")
    assert office.ask("free", "c", at("c", 1)) is None, "it had moved, and that was not told"
    second = office.ask("claim", "a")
    assert second is not None
    assert second.moves == 3
    for late in (
        office.question("free", "b", at("b")),
        office.question("free", "c", at("c", 1)),
        office.question("tell", "c", at("c", 1)),
        office.question("claim", "b", at("c", 2)),
    ):
        answer = office.put(late)
        assert answer is not None
        assert answer.entry == second
    restarted = Office(office.volume)
    assert restarted.ask("free", "a", at("a", 3)) is None
    third = restarted.ask("claim", "c")
    assert third is not None
    assert third.moves == 5, "the floor is durable"


def test_who_remembers_where_a_name_went_is_led_there() -> None:
    office = Office()
    office.ask("claim", "b")
    assert office.ask("claim", "b", at("c", 1)) == at("c", 1)
    assert office.ask("look", "a", at("nowhere", 9)) == at("c", 1), "there is no such broker"


def test_what_is_here_counts_as_noted_and_what_we_ask_ourselves_counts_at_once() -> None:
    office = Office()
    office.own = at("a", 4)
    assert office.ask("claim", "b") == at("a", 4)
    office.own = None
    free, effects = office.registry.ask(office.question("free", "a", at("a", 4)))
    assert free is not None
    claimed, more = office.registry.ask(office.question("claim", "a"))
    assert claimed is not None
    assert claimed.entry is not None
    assert (claimed.entry.home, claimed.entry.moves) == ("a", 6)
    assert [len(each.writes) for each in (*effects, *more) if isinstance(each, Persist)] == [2, 2]


def test_beyond_its_limit_a_registrar_notes_no_new_name() -> None:
    office = Office(names_max=1)
    office.ask("claim", "b")
    question = office.question("claim", "c")
    other = NameQuestion(SubscriptionName("other"), *_fields(question))
    refused = office.put(other)
    assert refused is not None
    assert refused.entry is None
    assert "limit" in refused.problem
    assert office.registry.ask(other) == (refused, [])


def _fields(question: NameQuestion) -> tuple[BrokerName, BrokerName, Want, int, int]:
    return question.sender, question.receiver, "claim", question.epoch, question.number


def test_all_brokers_with_subscribers_share_the_names_and_no_other_has_any() -> None:
    names = [SubscriptionName(str(number)) for number in range(60)]
    found = [registrar_of(NETWORK, name) for name in names]
    assert set(found) == {"a", "b", "c"}
    assert (
        registrar_of(parse_network('cell = [{name = "p", brokers = [{name = "p"}]}]'), DESK) is None
    )


def test_a_subscription_for_which_there_is_no_room_claims_no_name() -> None:
    """Names that nobody has would else fill the registrar, for good."""
    town = Town("h", ALONE, durable_subscriptions_max=1)
    town.connect()
    for number in range(6):
        name = SubscriptionName(f"name {number}")
        town.receive(ANN, Subscribe(NEWS, number, number, name=name))
    assert list(town.node.durable.homes.registry.entries) == ["name 0"]


def test_names_are_counted_for_their_owners() -> None:
    town = Town("h", ALONE, names_max=8)
    registry = town.node.durable.homes.registry
    here = BrokerName("h")

    def claim(name: str, owner: str) -> str:
        asked = NameQuestion(SubscriptionName(name), here, here, "claim", 1, 1, owner=owner)
        answer, _ = registry.ask(asked)
        assert answer is not None
        return answer.problem

    assert claim("a0", "ann") == claim("a1", "ann") == ""
    assert claim("a2", "ann") == "'ann' has 2 names of subscriptions, and one principal may have 2"
    assert claim("a1", "ann") == ""
    assert claim("b0", "bob") == ""
    registry.check()
