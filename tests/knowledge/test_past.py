"""A pubend's earlier lives: what it knows of them, and what it takes for lost."""

from __future__ import annotations

from gapless.core.broker_messages import Nack, Purpose
from gapless.core.client_messages import Publish, PublisherPosition, PublisherQuery, Refused
from gapless.core.effects import Append, Effect, Persist, Put, Send, Tell
from gapless.core.events import EventBatch
from gapless.core.identity import (
    ClientName,
    Instant,
    ProducerName,
    PubendName,
    PublisherName,
    TopicName,
)
from gapless.core.ticks import PUBEND_BITS, Span
from gapless.core.transaction_messages import ProducerQuery
from gapless.knowledge.past import SAME_DISK, DiskHistory
from gapless.knowledge.pubend import PROMISES, Persisted, Pubend
from gapless.knowledge.receipts import UNHEARD_OF
from gapless.node.config import Config
from gapless.testing.memory_volume import MemoryVolume

NAME = PubendName("t/0")
TOPIC = TopicName("t")
ANN = ClientName("ann")
NOW = Instant(10_000_000)
COPY = DiskHistory(is_copy=True, is_hearing=False)
HEARING = DiskHistory(is_copy=False, is_hearing=True)


def make(volume: MemoryVolume, disk: DiskHistory = COPY, now: Instant = NOW) -> Pubend:
    return Pubend(NAME, 0, volume, Config(), now, disk=disk)


def write(pubend: Pubend, volume: MemoryVolume, effects: list[Effect]) -> list[Effect]:
    """What follows once everything is durable."""
    sent: list[Effect] = []
    for effect in effects:
        if isinstance(effect, Persist):
            volume.commit(effect.writes)
            for then in effect.then:
                if isinstance(then, Send):
                    sent.append(then)
                    continue
                assert isinstance(then, Tell)
                assert isinstance(then.message, Persisted)
                sent += write(pubend, volume, pubend.persisted(then.message, NOW)[0])
        else:
            sent.append(effect)
    return sent


def old_volume() -> MemoryVolume:
    volume = MemoryVolume()
    volume.commit([Append("log/t/0", (5 << PUBEND_BITS,), (b"x",))])
    return volume


def test_what_was_before_its_birth_is_lost_to_every_broker_that_asks_for_it() -> None:
    pubend = make(MemoryVolume())
    born = NOW << PUBEND_BITS
    for purpose in Purpose:
        [answer] = pubend.receive_nack(Nack(NAME, (Span(9, born),), purpose=purpose), NOW)[1][:1]
        assert answer.lost_below == born
        assert not answer.final_below


def test_between_the_end_of_a_copy_and_its_new_life_everything_is_lost() -> None:
    pubend = make(old_volume())
    end = (5 << PUBEND_BITS) + 1
    assert pubend.past.lost_spans == [Span(end, NOW << PUBEND_BITS)]
    nack = Nack(NAME, (Span(5 << PUBEND_BITS, NOW << PUBEND_BITS),))
    answers = pubend.receive_nack(nack, NOW)[1]
    assert answers[0].ticks == (5 << PUBEND_BITS,)
    assert answers[0].more


def test_what_a_lost_life_wrote_beyond_an_old_promise_is_lost_too() -> None:
    """It began right after the copy was made, before its clock had reached the promise."""
    volume = old_volume()
    promise = (NOW + 500_000) << PUBEND_BITS
    volume.commit([Put(PROMISES, NAME, promise.to_bytes(8, "little"))])
    copy = MemoryVolume()
    copy.commit([Append("log/t/0", (5 << PUBEND_BITS,), (b"x",))])
    copy.commit([Put(PROMISES, NAME, promise.to_bytes(8, "little"))])
    lost_life = make(volume, SAME_DISK)
    write(lost_life, volume, lost_life.publish(ANN, Publish(TOPIC, 1, EventBatch((b"y",))), NOW))
    lost_tick = volume.scan("log/t/0", 0, 1 << 62)[0][-1]
    assert lost_tick >= promise
    pubend = make(copy, COPY, Instant(NOW + 1000))
    assert any(lost_tick in span for span in pubend.past.lost_spans)
    write(pubend, copy, pubend.publish(ANN, Publish(TOPIC, 2, EventBatch((b"z",))), NOW))
    assert copy.scan("log/t/0", 0, 1 << 62)[0][-1] > lost_tick


def test_nothing_is_said_of_a_doubtful_span_until_the_other_brokers_are_heard() -> None:
    pubend = make(old_volume(), HEARING)
    nack = Nack(NAME, (Span((5 << PUBEND_BITS) + 1, NOW << PUBEND_BITS),))
    assert pubend.receive_nack(nack, NOW)[1] == []
    assert pubend.recall(NOW << PUBEND_BITS, NOW), "it had promised more than the disk knows"
    pubend.end_hearing()
    [answer] = pubend.receive_nack(nack, NOW)[1]
    assert answer.damaged


def test_after_a_loss_a_publisher_gets_numbers_that_were_never_used() -> None:
    volume = old_volume()
    pubend = make(volume)
    query = PublisherQuery(1, TOPIC, PublisherName("feed"), 7)
    [answer] = write(pubend, volume, pubend.position(ANN, query, NOW))
    assert isinstance(answer, Send)
    assert isinstance(answer.message, PublisherPosition)
    assert answer.message.sequence >= NOW


def test_after_a_loss_a_name_must_be_opened_in_later_lives_too() -> None:
    volume = old_volume()
    pubend = make(volume)
    write(pubend, volume, pubend.publish(ANN, Publish(TOPIC, 1, EventBatch((b"y",))), NOW))
    for life in (pubend, make(volume, SAME_DISK)):
        late = Publish(TOPIC, 2, EventBatch((b"z",)), PublisherName("feed"), 2)
        [answer] = life.publish(ANN, late, NOW)
        assert isinstance(answer, Send)
        assert isinstance(answer.message, Refused)
        assert answer.message.remedy == UNHEARD_OF


def test_after_a_loss_a_producer_is_refused_until_its_name_is_removed() -> None:
    volume = old_volume()
    pubend = make(volume)
    query = ProducerQuery(TOPIC, 1, ProducerName("job"))
    [answer] = pubend.transactions.position(ANN, query)
    assert isinstance(answer, Send)
    assert isinstance(answer.message, Refused)
    assert not answer.message.retry
    writes = pubend.transactions.strike(ProducerName("job"))
    assert writes
    volume.commit(writes)
    [answer] = pubend.transactions.position(ANN, query)
    assert isinstance(answer, Send)
    assert not isinstance(answer.message, Refused)
