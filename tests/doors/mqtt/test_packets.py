"""Packets: what a client sends is read back as it was, and hostile bytes are refused."""

from __future__ import annotations

import random  # noqa: TC003 - hypothesis reads it
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.doors.mqtt import packets
from gapless.doors.mqtt.packets import (
    AnswerPacket,
    ConnectError,
    ConnectPacket,
    DisconnectPacket,
    Kind,
    PacketError,
    PingPacket,
    PublishPacket,
    Splitter,
    SubscribePacket,
    TopicFilter,
    UnsubscribePacket,
    Will,
    decode,
    encode,
)

TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc", "Cn")), max_size=12)
NAME = TEXT.filter(lambda text: text and not set(text) & set("+#") and text[0] != "$")
PACKET = st.integers(1, 0xFFFF)
PAIRS = st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=3)
CONTENT = st.fixed_dictionaries(
    {},
    optional={
        "payload_format": st.integers(0, 1),
        "message_expiry": st.integers(0, 0xFFFFFFFF),
        "content_type": TEXT,
        "response_topic": NAME,
        "correlation_data": st.binary(max_size=20),
        "user": PAIRS,
    },
)
PUBLISH = st.builds(
    lambda topic, payload, qos, retain, dup, packet, properties: PublishPacket(
        topic, payload, qos, retain, dup and qos > 0, packet if qos else 0, properties
    ),
    NAME,
    st.binary(max_size=300),
    st.integers(0, 2),
    st.booleans(),
    st.booleans(),
    PACKET,
    CONTENT,
)
WILLS = st.builds(Will, NAME, st.binary(max_size=30), st.integers(0, 2), st.booleans(), CONTENT)
CONNECT = st.builds(
    ConnectPacket,
    st.just(5),
    TEXT,
    st.booleans(),
    st.integers(0, 0xFFFF),
    st.none() | WILLS,
    st.none() | TEXT,
    st.none() | st.binary(max_size=20),
    st.fixed_dictionaries(
        {},
        optional={
            "session_expiry": st.integers(0, 0xFFFFFFFF),
            "receive_maximum": st.integers(1, 0xFFFF),
            "maximum_packet": st.integers(1, 0xFFFFFFFF),
            "topic_alias_maximum": st.integers(0, 0xFFFF),
            "user": PAIRS,
        },
    ),
)
FILTERS = st.lists(
    st.builds(
        TopicFilter,
        NAME | st.sampled_from(["#", "+/a", "a/+/#", "+"]),
        st.integers(0, 2),
        st.booleans(),
        st.booleans(),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=3,
).map(tuple)
ANSWER = st.builds(
    lambda kind, packet, code: AnswerPacket(
        kind, packet, code if code in packets.CODES[kind] else 0
    ),
    st.sampled_from([Kind.PUBACK, Kind.PUBREC, Kind.PUBREL, Kind.PUBCOMP]),
    PACKET,
    st.sampled_from([0, 0x10, 0x87, 0x92]),
)
ANY = (
    PUBLISH
    | CONNECT
    | ANSWER
    | st.builds(SubscribePacket, PACKET, FILTERS, st.just({}))
    | st.builds(
        UnsubscribePacket, PACKET, st.lists(NAME, min_size=1, max_size=3).map(tuple), st.just({})
    )
    | st.just(PingPacket())
    | st.builds(DisconnectPacket, st.sampled_from([0, 4]), st.just({}))
)


def read(data: bytes, version: int) -> None:
    for first, body in Splitter().feed(data):
        decode(first, body, version)


@given(ANY)
def test_what_a_client_sends_is_read_back(packet: packets.Packet) -> None:
    [(first, body)] = Splitter().feed(encode(packet, 5))
    assert decode(first, body, 5) == packet


@given(st.lists(PUBLISH, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_a_stream_may_be_cut_anywhere(sent: list[PublishPacket], dice: random.Random) -> None:
    data = b"".join(encode(each, 5) for each in sent)
    splitter, found, at = Splitter(), [], 0
    while at < len(data):
        size = dice.randint(1, 7)
        found += [decode(first, body, 5) for first, body in splitter.feed(data[at : at + size])]
        at += size
    assert found == sent


@given(st.binary(max_size=60), st.sampled_from([0, 3, 4, 5]))
def test_any_bytes_are_a_packet_or_an_error(data: bytes, version: int) -> None:
    with suppress(PacketError):
        read(data, version)


@given(ANY, st.randoms(use_true_random=False))
def test_a_changed_packet_is_a_packet_or_an_error(
    packet: packets.Packet, dice: random.Random
) -> None:
    data = bytearray(encode(packet, 5))
    for _ in range(dice.randint(1, 3)):
        data[dice.randrange(len(data))] = dice.randrange(256)
    with suppress(PacketError):
        read(bytes(data), 5)


def refused(data: str, version: int = 5) -> int:
    with pytest.raises(PacketError) as caught:
        read(bytes.fromhex(data), version)
    return caught.value.code


def test_an_error_has_the_reason_code_of_the_standard() -> None:
    assert refused("36 0F 0005 746F706963 00 7061796C6F6164") == 0x81  # QoS 3
    assert refused("32 11 0005 746F706963 0000 00 7061796C6F6164") == 0x82  # identifier 0
    assert refused("30 0F 0005 2B6F706963 00 7061796C6F6164") == 0x81  # a wildcard
    assert refused("30 0F 0005 746FEDA080 00 7061796C6F6164") == 0x81  # a surrogate
    assert refused("32 15 0005 746F706963 1234 04 0101 0101 7061796C6F6164") == 0x82  # twice
    assert refused("20 02 0000") == 0x82  # a client sends no CONNACK
    assert refused("82 07 1234 00 0001 70 03") == 0x81
    assert refused("10 FFFFFFFF7F") == 0  # five bytes of length: the connection just ends
    assert refused("82 07 0000 00 0001 70 00") == 0x81  # packet identifier 0
    assert refused("D1 00") == 0x81
    assert refused("30 0B 0005 746F706963 03 080000") == 0x82  # an empty response topic
    assert refused("30 FFFFFF7F") == 0x95


@pytest.mark.parametrize(
    ("packet", "code"),
    [
        ("0004 4D515454 06 02 000A 0000", 0x84),  # no such version
        ("0006 4D5149736470 02 02 000A 0001 70", 0x84),
        ("0004 4D515454 05 02 000A 06 21000A 21000A 0001 70", 0x82),  # a property twice
        ("0004 4D515454 05 02 000A 00 0001 01", 0x85),  # a client identifier that is no text
    ],
)
def test_a_connect_that_breaks_a_rule_is_answered(packet: str, code: int) -> None:
    with pytest.raises(ConnectError) as caught:
        decode(0x10, bytes.fromhex(packet), 0)
    assert caught.value.code == code


def test_a_filter_has_wildcards_in_their_places_only() -> None:
    good = ["a", "/", "+", "#", "a/#", "+/+/#", "$share/g/a/#", "a//b"]
    bad = ["", "a#", "#/a", "a+/b", "$share/g", "$share//a", "$share/+/a", "$share/g/"]
    assert [packets.is_filter(each) for each in good] == [True] * len(good)
    assert [packets.is_filter(each) for each in bad] == [False] * len(bad)
