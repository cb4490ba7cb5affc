"""Messages and events, filters and conditions: nothing is lost on the way, and both agree."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless.doors.mqtt.mapping import (
    MqttMessage,
    attributes_of,
    condition_of,
    gapless_topic,
    matches,
    message_of,
)
from gapless.filters import Filter

LEVEL = st.sampled_from(["a", "b", "", "$x", "it's", "a%"])
TOPIC = st.lists(LEVEL, min_size=1, max_size=4).map("/".join).filter(bool)
FILTER = (
    st.tuples(st.lists(LEVEL | st.just("+"), min_size=0, max_size=3), st.sampled_from([[], ["#"]]))
    .map(lambda parts: "/".join([*parts[0], *parts[1]]))
    .filter(bool)
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NAMES = TEXT | st.sampled_from(
    ["price:number", "hot:boolean", "level1", "mqtt_qos", "a", "", "x" * 300, "content_type"]
)
VALUES = TEXT | st.sampled_from(["1", "01", "2.50", "nan", "1e999", "true", "False", "9" * 30])


@given(FILTER, TOPIC)
def test_a_filter_and_its_condition_take_the_same_topics(filter_text: str, topic: str) -> None:
    condition = Filter.parse(condition_of(filter_text))
    taken = condition.matches(attributes_of(MqttMessage(topic, b"")))
    assert taken == matches(filter_text.split("/"), topic)


@given(
    TOPIC,
    st.binary(max_size=20),
    st.integers(0, 2),
    st.booleans(),
    st.lists(st.tuples(NAMES, VALUES), max_size=4),
    st.none() | st.binary(max_size=10),
    st.booleans(),
)
def test_a_message_is_the_same_after_its_time_as_an_event(
    topic: str,
    payload: bytes,
    qos: int,
    retain: bool,
    user: list[tuple[str, str]],
    correlation: bytes | None,
    reads_json: bool,
) -> None:
    properties: dict[str, object] = {"content_type": "x", "response_topic": "r"}
    if user:
        properties["user"] = user
    if correlation is not None:
        properties["correlation_data"] = correlation
    sent = MqttMessage(topic, payload, qos, retain, properties, 5.5, "client")
    got = message_of(attributes_of(sent, json_payload=reads_json), payload, "mqtt")
    assert got == sent


def test_user_properties_are_attributes_with_types() -> None:
    user = [("symbol", "IBM"), ("price:number", "92.5"), ("hot:boolean", "true")]
    attributes = attributes_of(MqttMessage("trades/IBM", b"", properties={"user": user}))
    assert attributes["symbol"] == "IBM"
    assert attributes["price"] == 92.5
    assert attributes["hot"] is True
    assert Filter.parse("price > 90 AND hot").matches(attributes)
    assert "mqtt_user" not in attributes


def test_json_payloads_are_attributes_where_that_is_wanted() -> None:
    payload = b'{"price": 7, "deep": {"x": 1}, "level1": "no", "big": 1e400}'
    message = MqttMessage("a", payload)
    assert attributes_of(message, json_payload=True)["price"] == 7
    assert "price" not in attributes_of(message)
    assert attributes_of(message, json_payload=True)["level1"] == "a"
    assert message_of(attributes_of(message, json_payload=True), payload, "mqtt") == message


def test_an_event_of_a_native_publisher_is_on_the_topic_itself() -> None:
    message = message_of({"symbol": "IBM", "price": 92.5}, b"body", "trades")
    assert (message.topic, message.payload, message.qos) == ("trades", b"body", 2)
    assert message.properties["user"] == [("symbol", "IBM"), ("price:number", "92.5")]
    for taken in ("trades", "trades/#"):
        assert Filter.parse(condition_of(taken, "", "trades")).matches({"symbol": "IBM"})
    assert not Filter.parse(condition_of("trades/+", "", "trades")).matches({"symbol": "IBM"})


def test_a_gapless_topic_claims_the_mqtt_topics_below_its_name() -> None:
    claims = {"trades"}
    assert gapless_topic("trades/IBM", claims) == "trades"
    assert gapless_topic("tradesmen/IBM", claims) == "mqtt"
    assert gapless_topic("+/IBM", claims) == "mqtt"
