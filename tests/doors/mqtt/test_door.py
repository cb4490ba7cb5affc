"""The door as its clients see it: packet by packet, against a broker with a real log."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from gapless.client.delivery import Gap
from gapless.core.events import Event
from gapless.core.identity import PubendName, TopicName
from gapless.core.ticks import Span, Tick
from gapless.doors.mqtt.packets import (
    AnswerPacket,
    ConnectPacket,
    DisconnectPacket,
    Kind,
    PingPacket,
    PublishPacket,
    SubscribePacket,
    TopicFilter,
    Will,
    encode,
)
from tests.broker.stage import run, wait_until
from tests.children import PATIENCE_S
from tests.doors.mqtt.stage import QUIET_S, Peer, place

if TYPE_CHECKING:
    from pathlib import Path

BOTH = pytest.mark.parametrize("version", [4, 5])
FOREVER = 0xFFFFFFFF


# --- messages ------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_reaches_a_subscriber(tmp_path: Path, version: int, qos: int) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            a = await stage.join("a", version)
            assert (await a.subscribe("sensors/+/t")).body == b"\x02"
            await a.publish("sensors/kitchen/t", b"21", qos)
            got = await a.receive()
            assert (got.topic, got.payload, got.qos) == ("sensors/kitchen/t", b"21", qos)
            assert not got.dup
            assert not got.retain
            await a.leave()

    run(main())


def test_the_lower_qos_counts(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            a, b = await stage.join("a"), await stage.join("b")
            await a.subscribe("t", qos=1)
            await b.publish("t", b"two", 2)
            assert (await a.receive()).qos == 1

    run(main())


def test_wildcards_take_what_the_standard_says_and_no_dollar_topics(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            a = await stage.join("a")
            await a.subscribe("#", qos=0)
            await a.subscribe("+/+", qos=0)
            await a.publish("$other/x", b"hidden")
            await a.publish("x/y", b"seen")
            assert (await a.receive()).payload == b"seen"
            await a.quiet()

    run(main())


def test_a_publisher_may_not_use_topics_of_the_door(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            a = await stage.join("a")
            for topic in ("$SYS/x", "$gapless/gap", "$share/g/t"):
                answer = await a.publish(topic)
                assert answer is not None
                assert answer.code == 0x87
                assert "not allowed" in answer.properties["reason"]

    run(main())


def test_properties_go_with_a_message(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            a = await stage.join("a")
            await a.subscribe("t")
            sent: dict[str, Any] = {
                "payload_format": 1,
                "content_type": "text/plain",
                "response_topic": "answers/a",
                "correlation_data": b"\x00\xff",
                "user": [("a", "2"), ("a", "3"), ("price:number", "1.50")],
            }
            for qos in (0, 1, 2):
                await a.publish("t", b"x", qos, **sent)
                assert (await a.receive()).properties == sent

    run(main())


def test_a_message_expires(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            a = await stage.join("a", session_expiry=100)
            await a.subscribe("t")
            await a.leave()
            b = await stage.join("b")
            await b.publish("t", b"gone", 1, message_expiry=1)
            await b.publish("t", b"kept", 2, message_expiry=600)
            await asyncio.sleep(1.1)  # an interval of MQTT has whole seconds
            a = await stage.join("a", clean=False)
            got = await a.receive()
            assert got.payload == b"kept"
            assert 600 - PATIENCE_S < got.properties["message_expiry"] < 600

    run(main())


def test_overlapping_subscriptions_bring_a_message_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            for expiry in (0, 100):
                a = await stage.join("a", session_expiry=expiry)
                await a.subscribe("o/#", qos=2, subscription_identifier=2)
                await a.subscribe("o/t", qos=1, subscription_identifier=3)
                await a.publish("o/t", b"once", 2)
                got = await a.receive()
                assert got.qos == 2
                assert sorted(got.properties["identifiers"]) == [2, 3]
                await a.quiet()
                await a.leave()

    run(main())


def test_no_local_keeps_own_messages_away(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            a, b = await stage.join("a"), await stage.join("b")
            await a.subscribe(TopicFilter("t", 1, no_local=True))
            await a.publish("t", b"own")
            await b.publish("t", b"other")
            assert (await a.receive()).payload == b"other"
            await a.quiet()

    run(main())


def test_request_and_response_find_each_other(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            a, b = await stage.join("a"), await stage.join("b")
            await a.subscribe("answers/a")
            await b.subscribe("requests")
            await a.publish("requests", b"?", response_topic="answers/a", correlation_data=b"334")
            asked = (await b.receive()).properties
            await b.publish(
                asked["response_topic"], b"!", correlation_data=asked["correlation_data"]
            )
            got = await a.receive()
            assert (got.payload, got.properties["correlation_data"]) == (b"!", b"334")

    run(main())


# --- conditions, and native clients --------------------------------------------------------------


def test_a_condition_comes_with_subscribe(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            a = await stage.join("a")
            await a.subscribe("trades/#", user=[("where", "price > 90 AND symbol = 'IBM'")])
            for symbol, price in (("IBM", "92.5"), ("IBM", "80"), ("SAP", "99")):
                user = [("symbol", symbol), ("price:number", price)]
                await a.publish("trades/x", price.encode(), user=user)
            assert (await a.receive()).payload == b"92.5"
            await a.quiet()

    run(main())


def test_a_bad_condition_is_refused_with_its_place(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            a = await stage.join("a")
            answer = await a.subscribe("t", user=[("where", "price >")])
            assert answer.body == b"\x83"
            assert "character" in answer.properties["reason"]
            a.send(PingPacket())
            await a.expect(Kind.PINGRESP)

    run(main())


def test_members_of_json_payloads_are_attributes_where_the_door_reads_them(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path, json_payload=True) as stage:
            a = await stage.join("a")
            await a.subscribe("t", user=[("where", "price > 90")])
            await a.publish("t", b'{"price": 10}')
            await a.publish("t", b'{"price": 100}')
            assert (await a.receive()).payload == b'{"price": 100}'

    run(main())


def test_native_and_mqtt_clients_meet_in_a_gapless_topic(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path, "trades") as stage, stage.native() as client:
            a = await stage.join("a")
            await a.subscribe("trades/#", user=[("where", "price > 90")])
            async with client.subscribe("trades", "level2 = 'IBM'") as subscription:
                await client.publish("trades", {"price": 95}, b"native")
                got = await a.receive()
                assert (got.topic, got.payload) == ("trades", b"native")
                assert got.properties["user"] == [("price:number", "95")]
                await a.publish("trades/IBM", b"mqtt", user=[("price:number", "80")])
                event = await anext(subscription)
                assert isinstance(event, Event)
                assert event.body == b"mqtt"
                assert event.attributes["price"] == 80

    run(main())


# --- sessions ------------------------------------------------------------------------------------


@BOTH
def test_a_session_keeps_messages_for_a_client_that_is_away(tmp_path: Path, version: int) -> None:
    async def main() -> None:
        more = {"session_expiry": 100} if version == 5 else {}
        async with place(tmp_path) as stage:
            a = await stage.join("a", version, clean=False, **more)
            assert a.connack.body[0] == 0
            await a.subscribe("q/+")
            await a.leave()
            b = await stage.join("b")
            for qos in (1, 2):
                await b.publish(f"q/{qos}", str(qos).encode(), qos)
            a = await stage.join("a", version, clean=False, **more)
            assert a.connack.body[0] == 1
            assert {(await a.receive()).payload for _ in range(2)} == {b"1", b"2"}
            await a.leave()
            a = await stage.join("a", version, clean=True)
            assert a.connack.body[0] == 0
            await b.publish("q/1", b"no subscription any more")
            await a.quiet()

    run(main())


def test_what_was_not_answered_comes_again_under_its_number(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            a = await stage.join("a", session_expiry=100)
            await a.subscribe("t")
            await a.publish("t", b"one", 1)
            await a.publish("t", b"two", 2)
            first, second = await a.expect(Kind.PUBLISH), await a.expect(Kind.PUBLISH)
            a.cut()
            a = await stage.join("a", clean=False, session_expiry=100)
            again = [await a.expect(Kind.PUBLISH) for _ in range(2)]
            assert [(each.packet, each.payload) for each in again] == [
                (first.packet, first.payload),
                (second.packet, second.payload),
            ]
            assert all(each.dup for each in again)
            a.send(AnswerPacket(Kind.PUBACK, first.packet))
            a.send(AnswerPacket(Kind.PUBREC, second.packet))
            assert (await a.expect(Kind.PUBREL)).packet == second.packet
            a.cut()
            a = await stage.join("a", clean=False, session_expiry=100)
            assert (await a.expect(Kind.PUBREL)).packet == second.packet
            a.send(AnswerPacket(Kind.PUBCOMP, second.packet))
            await a.quiet()

    run(main())


def test_a_session_ends_when_it_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            a = await stage.join("a", session_expiry=0)
            await a.subscribe("t")
            await a.leave()
            a = await stage.join("a", clean=False, session_expiry=1)
            assert a.connack.body[0] == 0
            await a.subscribe("t")
            await a.leave(session_expiry=100)
            a = await stage.join("a", clean=False, session_expiry=100)
            assert a.connack.body[0] == 1
            await a.leave(session_expiry=0)
            a = await stage.join("a", clean=False, session_expiry=1)
            assert a.connack.body[0] == 0
            await a.leave()
            while "a" in stage.door._hosts:  # noqa: ASYNC110 - a second of the session's own
                await asyncio.sleep(0.05)
            a = await stage.join("a", clean=False)
            assert a.connack.body[0] == 0
            assert stage.broker.subscriptions()[0]["name"] == "mqtt-retained@serve"
            assert len(stage.broker.subscriptions()) == 1

    run(main())


def test_a_session_that_ends_with_its_connection_is_not_prolonged(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            a = await stage.join("a")
            a.send(DisconnectPacket(0, {"session_expiry": 10}))
            assert await a.ended() == 0x82

    run(main())


@BOTH
def test_a_second_connection_takes_the_session_over(tmp_path: Path, version: int) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            first = await stage.join("a", version)
            second = await stage.join("a", version)
            assert await first.ended() == (0x8E if version == 5 else -1)
            second.send(PingPacket())
            await second.expect(Kind.PINGRESP)

    run(main())


def test_an_empty_client_identifier_is_assigned_or_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            assert (await stage.join("")).connack.properties["client"].startswith("auto-")
            assert (await stage.join("", 4)).connack.code == 0
            assert (await stage.join("", 4, clean=False)).connack.code == 2
            long = await stage.join("x" * 800)
            assert long.connack.code == 0x85
            assert "at most" in long.connack.properties["reason"]

    run(main())


def test_a_silent_client_loses_its_connection(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            a = await stage.join("a", keep_alive=1)
            assert await a.ended() == 0x8D
            b = await stage.join("b", keep_alive=120)
            assert b.connack.properties["keep_alive"] == 60

    run(main())


# --- flow control and limits ---------------------------------------------------------------------


def test_no_more_than_the_receive_maximum_is_on_its_way(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            for expiry in (0, 100):
                a = await stage.join("a", receive_maximum=2, session_expiry=expiry)
                await a.subscribe("t")
                for number in range(4):
                    await a.publish("t", str(number).encode(), 1)
                got = [await a.expect(Kind.PUBLISH) for _ in range(2)]
                await a.quiet()
                a.send(AnswerPacket(Kind.PUBACK, got[0].packet))
                got.append(await a.expect(Kind.PUBLISH))
                await a.quiet()
                assert [each.payload for each in got] == [b"0", b"1", b"2"]
                await a.leave(session_expiry=0)

    run(main())


def test_a_client_that_exceeds_the_receive_maximum_is_sent_away(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            a = await stage.join("a")
            allowed = a.connack.properties["receive_maximum"]
            for packet in range(1, allowed + 2):
                a.send(PublishPacket("t", b"", 2, False, False, packet))
            assert await a.ended() == 0x93

    run(main())


def test_aliases_stand_for_topics_both_ways(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            a = await stage.join("a", topic_alias_maximum=1)
            assert a.connack.properties["alias_maximum"] == 10
            await a.subscribe("t")
            a.send(PublishPacket("t", b"1", properties={"topic_alias": 1}))
            a.send(PublishPacket("", b"2", properties={"topic_alias": 1}))
            first, second = await a.receive(), await a.receive()
            assert (first.topic, first.properties["alias"]) == ("t", 1)
            assert (second.topic, second.properties["alias"]) == ("", 1)

    run(main())


@pytest.mark.parametrize(("alias", "code"), [(0, 0x94), (11, 0x94), (3, 0x82)])
def test_an_alias_that_stands_for_nothing_is_refused(tmp_path: Path, alias: int, code: int) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            a = await stage.join("a")
            a.send(PublishPacket("", b"", properties={"topic_alias": alias}))
            assert await a.ended() == code

    run(main())


def test_a_message_too_long_for_a_client_is_left_out(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            a = await stage.join("a", maximum_packet=64)
            await a.subscribe("t")
            await a.publish("t", b"." * 64, 1)
            await a.publish("t", b"." * 32, 1)
            assert len((await a.receive()).payload) == 32

    run(main())


def test_a_message_too_long_for_the_log_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            a = await stage.join("a")
            answer = await a.publish("t", b"." * (1 << 20), 1)
            assert answer is not None
            assert answer.code == 0x97
            await a.publish("t", b"short", 1)

    run(main())


def test_a_packet_too_long_to_read_ends_the_connection(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            a = await stage.join("a")
            a.send(b"\x30\xff\xff\xff\x7f")
            assert await a.ended() == 0x95

    run(main())


# --- subscribing ---------------------------------------------------------------------------------


def test_a_filter_that_is_no_longer_wanted_brings_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            for expiry in (0, 100):
                a = await stage.join("a", session_expiry=expiry)
                await a.subscribe("t/0", "t/1")
                assert (await a.unsubscribe("t/0", "never")).body == b"\x00\x11"
                await a.publish("t/0", b"no")
                await a.publish("t/1", b"yes")
                assert (await a.receive()).payload == b"yes"
                await a.quiet()
                await a.leave(session_expiry=0)

    run(main())


def test_a_message_before_a_subscription_is_not_delivered(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            a, b = await stage.join("a"), await stage.join("b")
            await b.subscribe("t")
            await b.publish("t", b"before")
            await a.subscribe("t")
            await b.publish("t", b"after")
            assert (await a.receive()).payload == b"after"

    run(main())


def test_a_group_shares_messages(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            members = [await stage.join(name) for name in "ab"]
            for each in members:
                await each.subscribe("$share/workers/jobs/#", qos=1)
            c = await stage.join("c")
            for number in range(6):
                await c.publish("jobs/x", str(number).encode())
            got = [sorted([(await each.receive()).payload for _ in range(3)]) for each in members]
            assert sorted([*got[0], *got[1]]) == [str(each).encode() for each in range(6)]
            for each in members:
                await each.quiet()

    run(main())


def test_what_a_member_of_a_group_did_not_answer_goes_to_another(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            a = await stage.join("a")
            await a.subscribe("$share/g/t", qos=1)
            c = await stage.join("c")
            await c.publish("t", b"job")
            assert (await a.expect(Kind.PUBLISH)).payload == b"job"
            b = await stage.join("b")
            await b.subscribe("$share/g/t", qos=1)
            a.cut()
            assert (await b.receive()).payload == b"job"

    run(main())


@pytest.mark.parametrize("goes", ["unsubscribe", "disconnect"])
def test_what_nobody_of_a_group_was_there_for_is_not_delivered_later(
    tmp_path: Path, goes: str
) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            a = await stage.join("a")
            await a.subscribe("$share/g/t", qos=1)
            if goes == "unsubscribe":
                await a.unsubscribe("$share/g/t")
            else:
                await a.leave()
                await asyncio.sleep(QUIET_S)  # the door ends the session behind its back
            c = await stage.join("c")
            await c.publish("t", b"for nobody")
            b = await stage.join("b")
            await b.subscribe("$share/g/t", qos=1)
            await b.quiet()
            await c.publish("t", b"for b")
            assert (await b.receive()).payload == b"for b"

    run(main())


# --- retained messages ---------------------------------------------------------------------------


@BOTH
def test_a_retained_message_waits_for_subscribers(tmp_path: Path, version: int) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            a = await stage.join("a", version)
            for qos in range(3):
                await a.publish(f"r/{qos}", str(qos).encode(), qos, retain=True)
            await a.subscribe("r/+")
            got = [await a.receive() for _ in range(3)]
            assert {(each.payload, each.qos) for each in got} == {(b"0", 0), (b"1", 1), (b"2", 2)}
            assert all(each.retain for each in got)
            await a.publish("r/1", b"", retain=True)
            await a.receive()
            b = await stage.join("b", version)
            await b.subscribe("r/1")
            await b.quiet()

    run(main())


def test_retained_messages_outlive_the_broker(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            a = await stage.join("a")
            await a.publish("r", b"kept", 2, retain=True, content_type="x", user=[("k", "v")])
            await a.publish("gone", b"x", 1, retain=True)
            await a.publish("gone", b"", 1, retain=True)
        async with place(tmp_path) as stage:
            a = await stage.join("a")
            await a.subscribe("#")
            got = await a.receive()
            assert (got.topic, got.payload, got.qos) == ("r", b"kept", 2)
            assert got.properties == {"content_type": "x", "user": [("k", "v")]}
            await a.quiet()

    run(main())


def test_a_condition_counts_for_retained_messages_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            a = await stage.join("a")
            for price in ("80", "95"):
                user = [("price:number", price)]
                await a.publish(f"r/{price}", price.encode(), retain=True, user=user)
            await a.subscribe("r/#", user=[("where", "price > 90")])
            assert (await a.receive()).payload == b"95"
            await a.quiet()

    run(main())


def test_retain_handling_and_retain_as_published(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            a = await stage.join("a")
            await a.publish("r", b"kept", retain=True)
            await a.subscribe(TopicFilter("r", 1, handling=2))
            await a.quiet()
            await a.subscribe(TopicFilter("r", 1, handling=1))
            await a.quiet()  # it exists
            await a.subscribe(TopicFilter("r", 1, as_published=True))
            assert (await a.receive()).retain
            await a.publish("r", b"live", retain=True)
            assert (await a.receive()).retain
            await a.publish("r", b"plain")
            assert not (await a.receive()).retain
            await a.subscribe(TopicFilter("r", 1, handling=1))
            await a.publish("r", b"live", retain=True)
            assert not (await a.receive()).retain

    run(main())


# --- wills ---------------------------------------------------------------------------------------


@BOTH
def test_a_will_is_published_when_the_client_goes_without_a_word(
    tmp_path: Path, version: int
) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            b = await stage.join("b", version)
            await b.subscribe("w")
            will = Will("w", b"gone", 1, False, {})
            a = await stage.join("a", version, will=will)
            await a.leave()
            await b.quiet()
            a = await stage.join("a", version, will=will)
            a.cut()
            assert (await b.receive()).payload == b"gone"

    run(main())


def test_a_will_has_properties_and_may_be_asked_for(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            b = await stage.join("b")
            await b.subscribe("w")
            will = Will("w", b"x", 1, False, {"content_type": "t", "message_expiry": 600})
            a = await stage.join("a", will=will)
            await a.leave(0x04)
            properties = (await b.receive()).properties
            assert 600 - PATIENCE_S < properties.pop("message_expiry") <= 600
            assert properties == {"content_type": "t"}

    run(main())


def test_a_delayed_will_comes_and_is_dropped_when_the_client_returns(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            b = await stage.join("b")
            await b.subscribe("w")
            far = Will("w", b"dropped", 1, False, {"will_delay": 600})
            a = await stage.join("a", will=far, session_expiry=600)
            a.cut()
            a = await stage.join("a", clean=False, session_expiry=600)
            await a.leave()
            a = await stage.join("a")  # the session ends: a will that is put off would come now
            await a.publish("w", b"next", 1)
            assert (await b.receive()).payload == b"next"
            await a.leave()
            for delay_s, expiry_s in ((1, 600), (600, 0)):  # or the session ends first
                late = Will("w", b"late", 1, False, {"will_delay": delay_s})
                a = await stage.join("a", will=late, session_expiry=expiry_s)
                a.cut()
                assert (await b.receive()).payload == b"late"

    run(main())


# --- the rest ------------------------------------------------------------------------------------


def test_the_first_packet_is_a_connect_and_the_only_one(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            a = await stage.dial()
            a.send(PingPacket())
            assert await a.ended() == -1
            b = await stage.join("b")
            b.send(ConnectPacket(5, "b", True, 0))
            assert await b.ended() == 0x82
            c = await stage.join("c", authentication_method="magic")
            assert c.connack.code == 0x8C

    run(main())


def test_packets_right_behind_connect_are_taken(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            a = await stage.dial()
            a.send(ConnectPacket(5, "a", True, 0))
            a.send(SubscribePacket(1, (TopicFilter("t", 1),)))
            a.send(PublishPacket("t", b"early", 1, False, False, 2))
            await a.expect(Kind.CONNACK)
            await a.expect(Kind.SUBACK)
            assert (await a.receive()).payload == b"early"

    run(main())


def test_figures_of_the_door_are_there_to_read(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            a = await stage.join("a")
            await a.subscribe("$SYS/broker/clients/connected", "$SYS/broker/version", qos=0)
            got = {(await a.receive()).payload for _ in range(2)}
            assert b"1" in got
            await a.quiet()

    run(main())


def test_a_gap_is_told(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            a = await stage.join("a")
            await a.subscribe("t")
            span = Span(Tick(5), Tick(9))
            stage.door._hosts["a"].tell_gap(Gap(TopicName("mqtt"), PubendName("mqtt/0"), span))
            got = await a.receive()
            assert got.topic == "$gapless/gap"
            assert json.loads(got.payload)["gap"] == {"start": 5, "end": 9}

    run(main())


# --- QoS 2 where something fails -----------------------------------------------------------------


def lasting(client: str) -> dict[str, Any]:
    return {"client": client, "clean": False, "session_expiry": FOREVER}


async def taken(peer: Peer, count: int) -> list[bytes]:
    """This many messages, and no more."""
    got = [(await peer.receive()).payload for _ in range(count)]
    await peer.quiet()
    return got


TOO_LONG = b"." * (1 << 20)


def test_a_refused_message_of_qos_2_does_not_bring_its_neighbours_twice(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            reader = await stage.join("reader")
            await reader.subscribe("t")
            sender = await stage.join(**lasting("sender"))
            payloads = {11: b"1", 12: b"2", 13: TOO_LONG, 14: b"4", 15: b"5"}
            packets: list[Any] = [SubscribePacket(1, (TopicFilter("u", 0),))]  # the others wait
            for packet, payload in payloads.items():
                packets.append(PublishPacket("t", payload, 2, False, False, packet))
            sender.send(b"".join(encode(each, 5) for each in packets))
            answers = [await sender.expect(Kind.PUBREC) for _ in payloads]
            codes = {each.packet: each.code for each in answers}
            assert codes == {11: 0, 12: 0, 13: 0x97, 14: 0, 15: 0}
            assert sorted(await taken(reader, 4)) == [b"1", b"2", b"4", b"5"]

    run(main())


def test_the_packet_of_a_refused_message_of_qos_2_is_free_after_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            sender = await stage.join(**lasting("sender"))
            sender.send(PublishPacket("before", TOO_LONG, 2, False, False, 7))
            assert (await sender.expect(Kind.PUBREC)).code == 0x97
            for packet in (8, 9):  # the number of the refused one is used by another
                sender.send(PublishPacket("before", b"1", 2, False, False, packet))
                await sender.expect(Kind.PUBREC)
                sender.send(AnswerPacket(Kind.PUBREL, packet))
                await sender.expect(Kind.PUBCOMP)
        async with place(tmp_path) as stage:
            reader = await stage.join("reader")
            await reader.subscribe("t")
            sender = await stage.join(**lasting("sender"))
            sender.send(PublishPacket("t", b"2", 2, False, False, 7))
            assert (await sender.expect(Kind.PUBREC)).code == 0
            assert await taken(reader, 1) == [b"2"]

    run(main())


def test_a_client_may_subscribe_again_as_soon_as_its_session_is_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage:
            for number in range(10):  # as mosquitto_sub does
                peer = await stage.join(**lasting("c"))
                await peer.subscribe("t")
                await peer.publish("t", b"%d" % number, 2)
                assert (await peer.receive()).payload == b"%d" % number
                peer.cut()

    run(main())


def test_a_client_that_is_back_at_once_goes_on(tmp_path: Path) -> None:
    """What its last connection leaves behind ends before the next begins."""

    async def main() -> None:
        async with place(tmp_path) as stage:
            peer = await stage.join(**lasting("c"))
            await peer.subscribe("t")
            for number in range(20):
                answer = await peer.publish("t", b"%d" % number, 2)
                assert answer is not None
                assert answer.code == 0
                assert (await peer.receive()).payload == b"%d" % number
                peer.cut()
                await wait_until(lambda: stage.door._hosts["c"].session.connection is None)
                peer = await stage.join(**lasting("c"))
            await peer.quiet()

    run(main())
