"""A founder that is told what is not durable, and catalogues that stay unlike, are found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest

from gapless.core.client_messages import Done
from gapless.core.effects import Put
from gapless.core.identity import BrokerName, ClientName, TopicName
from gapless.core.topic_messages import CreateTopic, DeleteTopic, TopicEntry
from gapless.node.config import Config
from gapless.node.directory.catalogue import CATALOGUE, encode
from gapless.node.network import Topic
from gapless.testing.checkers.catalogues import Catalogues, ToldIsDurable
from gapless.testing.memory_volume import MemoryVolume
from gapless.testing.record import Record, Violation
from tests.node.country import Country

if TYPE_CHECKING:
    from gapless.testing.checkers.checker import Broker

SPORT, ANN = TopicName("sport"), ClientName("ann")
THERE = TopicEntry(SPORT, 1, (BrokerName("a"),))
GONE = TopicEntry(SPORT, 2, (BrokerName("a"),), is_deleted=True)


@dataclass
class Disk:
    """A broker, as far as the checker looks."""

    name = BrokerName("a")
    store: MemoryVolume = field(default_factory=MemoryVolume)

    def put(self, entry: TopicEntry) -> None:
        self.store.commit((Put(CATALOGUE, entry.name, encode(entry)),))


@pytest.fixture
def checker() -> ToldIsDurable:
    return ToldIsDurable(Record(Country().towns["l"].network), Config())


CREATE, DELETE = CreateTopic(1, SPORT), DeleteTopic(1, SPORT)


@pytest.mark.parametrize(
    ("asked", "entry", "is_fine"),
    [
        (CREATE, THERE, True),
        (CREATE, None, False),
        (CREATE, GONE, False),
        (CreateTopic(1, SPORT, pubends=2), THERE, False),
        (DELETE, GONE, True),
        (DELETE, THERE, False),
    ],
)
def test_what_a_founder_is_told_must_be_on_the_disk(
    checker: ToldIsDurable, asked: Any, entry: TopicEntry | None, is_fine: bool
) -> None:
    disk = Disk()
    if entry is not None:
        disk.put(entry)
    checker.record.founded.ask(ANN, asked)
    broker = cast("Broker", disk)
    checker.sent(broker, ANN, Done(7))  # another request
    if is_fine:
        checker.sent(broker, ANN, Done(1))
        assert checker.record.founded.newest == {SPORT: entry}
    else:
        with pytest.raises(Violation, match="durable before its founder is told"):
            checker.sent(broker, ANN, Done(1))


def test_catalogues_that_are_alike_and_as_told_are_fine_and_others_are_not() -> None:
    country = Country()
    nodes = [town.node for town in country.towns.values()]
    record = Record(country.towns["l"].network)
    country.decide(CREATE)
    record.founded.told(country.towns["a"].node.catalogue.entries[SPORT])
    assert Catalogues(record, nodes).wrong() == []
    record.founded.told(GONE)
    assert "l has TopicEntry" in " ".join(Catalogues(record, nodes).wrong())
    country.cut.add("l")
    country.decide(DELETE, country.owner("sport"))
    [*found] = Catalogues(record, nodes).wrong()
    assert "l and a differ" in found
    country.cut.clear()
    country.wait(3)
    assert Catalogues(record, nodes).wrong() == []
    nodes[0].network.put_topic(Topic(SPORT, (BrokerName("a"),)))
    assert "a runs ['sport'], not []" in Catalogues(record, nodes).wrong()
