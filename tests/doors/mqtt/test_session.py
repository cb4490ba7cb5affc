"""The session without sockets: its promises in single steps, and its invariants in any order."""

from __future__ import annotations

import random

import pytest

from fuzz.mqtt import play_bytes, play_session
from gapless.doors.mqtt.mapping import MqttMessage
from gapless.doors.mqtt.packets import (
    AnswerPacket,
    ConnectPacket,
    Kind,
    PacketError,
    PublishPacket,
    Will,
    encode,
)
from gapless.doors.mqtt.session import (
    OWN,
    FinishDelivery,
    Key,
    MqttEvent,
    MqttSession,
    PersistFacts,
    SendBytes,
    StoreMessage,
    TopicSubscription,
)
from gapless.doors.mqtt.session import Testament as PublishWill  # no class of tests

T = TopicSubscription(filter="t", qos=2)
KEY = Key("mqtt", "mqtt/0", 7)


def event(qos: int) -> MqttEvent:
    return MqttEvent(KEY, MqttMessage("t", b"x", qos), {}, OWN)


def connected(expiry_s: int = 100) -> MqttSession:
    session = MqttSession("c")
    session.subscriptions["t"] = T
    packet = ConnectPacket(5, "c", True, 0, properties={"session_expiry": expiry_s})
    session.connect(packet, 0.0, present=False)
    return session


@pytest.mark.parametrize("seed", range(300))
def test_a_session_keeps_its_invariants_in_any_order(seed: int) -> None:
    play_session(random.Random(seed))


def test_changed_packets_are_packets_or_errors() -> None:
    for seed in range(20_000):
        play_bytes(random.Random(seed))


def test_nothing_of_qos_2_leaves_before_its_number_is_written() -> None:
    session = connected()
    [write] = session.deliver(event(2), None, 0.0)
    assert isinstance(write, PersistFacts)
    assert isinstance(write.then[0], SendBytes)
    [release] = session.receive(AnswerPacket(Kind.PUBREC, 1), 0.0)
    assert isinstance(release, PersistFacts)
    assert release.then == (SendBytes(encode(AnswerPacket(Kind.PUBREL, 1), 5)),)


def test_a_released_event_is_not_sent_again_after_a_restart() -> None:
    session = connected()
    session.recover(KEY, 9, is_released=True)
    assert session.deliver(event(2), None, 0.0) == []
    done = session.receive(AnswerPacket(Kind.PUBCOMP, 9), 0.0)
    assert done == [FinishDelivery(KEY, OWN)]
    assert session.deliver(event(2), None, 0.0) == [FinishDelivery(KEY, OWN)]


def test_an_event_that_was_sent_goes_out_under_its_number_after_a_restart() -> None:
    session = connected()
    session.recover(KEY, 9, is_released=False)
    [sent] = session.deliver(event(2), None, 0.0)
    assert sent == SendBytes(encode(PublishPacket("t", b"x", 2, False, True, 9), 5))


def reconnect(session: MqttSession, window: int) -> list[SendBytes]:
    given = {"session_expiry": 100, "receive_maximum": window}
    packet = ConnectPacket(5, "c", False, 0, properties=given)
    actions = session.connect(packet, 0.0, present=True)
    session.check()
    return [each for each in actions[1:] if isinstance(each, SendBytes)]


def test_what_is_sent_again_keeps_to_the_receive_maximum_of_the_new_connection() -> None:
    session = connected()
    for tick in range(1, 4):
        key = Key("mqtt", "mqtt/0", tick)
        session.deliver(MqttEvent(key, MqttMessage("t", b"x", 1), {}, OWN), None, 0.0)
    session.lose(0.0)
    assert len(reconnect(session, 1)) == 1
    for packet in (1, 2):
        more = session.receive(AnswerPacket(Kind.PUBACK, packet), 0.0)
        assert sum(isinstance(each, SendBytes) for each in more) == 1
        session.check()
    session.receive(AnswerPacket(Kind.PUBACK, 3), 0.0)
    assert session.room == 1


def test_records_of_an_earlier_life_leave_room_for_their_events() -> None:
    session = MqttSession("c")
    session.subscriptions["t"] = T
    for packet in (8, 9):
        session.recover(Key("mqtt", "mqtt/0", packet), packet, is_released=False)
    assert reconnect(session, 1) == []
    assert session.room == 1  # or the events that free it would never be read
    sent = session.deliver(event(2)._replace(key=Key("mqtt", "mqtt/0", 8)), None, 0.0)
    assert len(sent) == 1
    assert session.room == 0


def test_a_repeat_of_qos_2_waits_until_the_first_is_stored() -> None:
    session = connected()
    packet = PublishPacket("t", b"x", 2, False, False, 5)
    [store] = session.receive(packet, 0.0)
    assert isinstance(store, StoreMessage)
    assert session.receive(packet, 0.0) == []
    answer = SendBytes(encode(AnswerPacket(Kind.PUBREC, 5), 5))
    assert session.stored(store) == [answer]
    assert session.receive(packet, 0.0) == [answer]


def test_an_answer_goes_to_the_connection_that_asked() -> None:
    session = connected()
    [store] = session.receive(PublishPacket("t", b"x", 1, False, False, 5), 0.0)
    assert isinstance(store, StoreMessage)
    session.lose(0.0)
    packet = ConnectPacket(5, "c", False, 0, properties={"session_expiry": 100})
    session.connect(packet, 0.0, present=True)
    assert session.stored(store) == []


def test_a_will_waits_for_its_delay_or_for_the_end_of_its_session() -> None:
    for expiry_s, due_s in ((100, 9.0), (5, 5.0)):
        session = MqttSession("c")
        will = Will("w", b"x", 1, False, {"will_delay": 9})
        given = {"session_expiry": expiry_s}
        packet = ConnectPacket(5, "c", True, 0, will=will, properties=given)
        session.connect(packet, 0.0, present=False)
        assert session.lose(0.0) == []
        assert session.fire(due_s - 0.1) == []
        first, *_ = session.fire(due_s)
        assert isinstance(first, PublishWill)
        assert first.message.payload == b"x"


def test_a_will_that_waits_is_dropped_when_its_client_returns() -> None:
    session = MqttSession("c")
    will = Will("w", b"x", 1, False, {"will_delay": 9})
    given = {"session_expiry": 100}
    packet = ConnectPacket(5, "c", True, 0, will=will, properties=given)
    session.connect(packet, 0.0, present=False)
    session.lose(0.0)
    session.connect(ConnectPacket(5, "c", False, 0, properties=given), 8.0, present=True)
    session.lose(8.5)
    assert session.fire(99.0) == []


def test_answers_of_the_wrong_kind_end_the_connection() -> None:
    session = connected(0)
    session.deliver(event(1), T, 0.0)
    with pytest.raises(PacketError):
        session.receive(AnswerPacket(Kind.PUBREC, 1), 0.0)


def test_a_session_that_comes_back_may_send_all_that_waited_and_others_may_not() -> None:
    """paho does so with what it was given while it was away."""
    for present in (True, False):
        session = connected()
        session.lose(1.0)
        back = ConnectPacket(5, "c", False, 0, properties={"session_expiry": 9})
        session.connect(back, 2.0, present=present)
        sent = [PublishPacket("t", b"x", 1, packet=number) for number in range(1, 41)]
        if not present:
            with pytest.raises(PacketError, match="receive maximum"):
                [session.receive(each, 2.0) for each in sent]
            continue
        items = [session.receive(each, 2.0)[0] for each in sent]
        for item in items:
            assert isinstance(item, StoreMessage)
            session.stored(item)
        with pytest.raises(PacketError, match="receive maximum"):  # all was answered: now it counts
            [session.receive(each, 2.0) for each in sent]
