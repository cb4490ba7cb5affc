"""Messages and events that the tests of this package share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from gapless.core.events import EventBatch
from gapless.core.identity import BrokerName, PublisherName
from gapless.core.messages import Goodbye, Hello, Message, Ping, Pong
from gapless.core.ticks import Span
from gapless.wire.codec import Codec
from gapless.wire.events import INTEGER_MAX, INTEGER_MIN, encode_event

if TYPE_CHECKING:
    from gapless.core.events import Attributes


class Cargo(Message, frozen=True):
    """A stand-in for the messages of the protocols: nested, checked, with a batch."""

    span: Span
    events: EventBatch
    ticks: tuple[int, ...] = ()
    vector: dict[str, int] | None = None
    urgent: bool = False

    def __post_init__(self) -> None:
        if len(self.ticks) > len(self.events):
            raise ValueError("more ticks than events")


PLAIN = encode_event({})
TRADE = encode_event(
    {"symbol": "IBM", "price": 92.5, "volume": 300, "halted": False},
    b"body",
    PublisherName("feed-1"),
    7,
)
EXTREMES = encode_event(
    {"low": INTEGER_MIN, "high": INTEGER_MAX, "inf": float("inf"), "text": "Łódź 🦉"}
)

EVENTS: dict[str, bytes] = {"plain": PLAIN, "trade": TRADE, "extremes": EXTREMES}

LINK_MESSAGES: dict[str, Message] = {
    "hello of a client": Hello(version=1, version_min=1),
    "hello of a broker": Hello(3, 2, BrokerName("broker-1"), "gapless 1.2"),
    "goodbye": Goodbye(),
    "goodbye with a reason": Goodbye("the link is idle", "Connect again."),
    "ping": Ping(),
    "pong": Pong(1 << 40),
}

MESSAGES: dict[str, Message] = LINK_MESSAGES | {
    "cargo": Cargo(Span(10, 20), EventBatch.join([PLAIN, TRADE]), (10, 19), {"b": 2}, urgent=True),
}

CODEC = Codec(Hello, Goodbye, Ping, Pong, Cargo)

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)
values = (
    st.booleans()
    | st.integers(INTEGER_MIN, INTEGER_MAX)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
)
attributes: st.SearchStrategy[Attributes] = st.dictionaries(names, values, max_size=6)

messages = st.one_of(
    st.builds(Ping, st.integers(-(1 << 63), (1 << 64) - 1)),
    st.builds(Goodbye, names, names),
    st.builds(
        Cargo,
        st.builds(Span, st.integers(0, 9), st.integers(10, 1 << 62)),
        st.lists(st.binary(max_size=30), max_size=5).map(EventBatch.join),
        st.just(()),
        st.none() | st.dictionaries(names, st.integers(0, 9), max_size=3),
        st.booleans(),
    ),
)
