"""Whatever a client's message says, a broker takes it, refuses it, or ends that client's link.

Messages are made of extremes: numbers at the ends of 64 bits, names that are empty, long or of
something else. One that raises anything but a `ProtocolError`, asks the disk for what that refuses,
or cannot be sent on, would stop the broker, for everybody.
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import pytest

from gapless.core import client_messages as client
from gapless.core import group_messages as groups
from gapless.core import range_messages as ranges
from gapless.core import topic_messages as topics
from gapless.core import transaction_messages as transactions
from gapless.core.client_messages import Refused, Subscribe
from gapless.core.errors import ProtocolError
from gapless.core.events import EventBatch
from gapless.core.identity import PublisherName, SubscriptionName, TopicName
from gapless.core.ticks import Span
from gapless.wire.events import encode_event
from gapless.wire.kinds import codec
from tests.node.town import ALONE, ANN, CHAIN, NEWS, TOWN, Town

if TYPE_CHECKING:
    from gapless.core.messages import Message

KINDS: tuple[type[Message], ...] = (
    client.Publish, client.PublisherQuery, client.Subscribe, client.Unsubscribe, client.Acknowledge,
    client.Forget, client.Consumed, client.AlterSubscription, client.AlterationNoted,
    topics.CreateTopic, topics.AlterTopic, topics.DeleteTopic, topics.TopicsQuery,
    transactions.Stage, transactions.Commit, transactions.Abort, transactions.ProducerQuery,
    ranges.ReadRange, ranges.PositionsQuery, groups.Finish, groups.Reject,
)  # fmt: skip
POSITIVE = (1, 2, 1_000, 1 << 20, 1 << 31, 1 << 62, (1 << 63) - 1, 1 << 63)
NUMBERS = (0, *POSITIVE, (1 << 64) - 1, *(-each for each in POSITIVE))
TEXTS = (
    "news", "news/0", "news/1", "sport", "desk", "colour = 'red'", "colour >", "", "\0", "a\nb",
    "n" * 255, "n" * 256, "n" * 600, "n" * 2_000, "é" * 128, "@", "once/x", *"hlsrtf", "m1",
)  # fmt: skip
EVENTS = (
    encode_event({"colour": "red"}),
    encode_event({}, b"x" * 100),
    encode_event({}, b"", PublisherName("feed"), 3),
    b"\xc1",
    b"",
)
PLACES = {
    "alone": ("h", ALONE),
    "edge": ("l", TOWN),
    "host": ("s", TOWN),
    "relay": ("m1", TOWN),
    "host of a chain": ("t", CHAIN),
    "middle of a chain": ("h", CHAIN),
}
SEEDS, STEPS = 8, 80


def draw(kind: Any, dice: random.Random) -> Any:
    """A value of this type."""
    options = get_args(kind)
    if kind is int and dice.random() < 0.6:
        return dice.randrange(9)
    if kind in (int, bool, str):
        return dice.choice({int: NUMBERS, bool: (True, False), str: TEXTS}[kind])
    if kind is EventBatch:
        return EventBatch(tuple(dice.choices(EVENTS, k=dice.choice((0, 1, 1, 2)))))
    if kind is client.Sharing:
        attempts = dice.choice((0, 0, 1, 3))
        topic = TopicName(dice.choice(("sport", "news", "nowhere"))) if attempts else None
        return client.Sharing(dice.choice(("colour", "n" * 255, "é")), attempts, topic)
    if kind is client.Former:
        return client.Former(dice.choice(TEXTS), draw(client.TokenMap, dice))
    if kind is Span:
        return Span(dice.choice(NUMBERS), dice.choice(NUMBERS))
    if hasattr(kind, "__supertype__"):
        return draw(kind.__supertype__, dice)
    if get_origin(kind) is Annotated:
        return draw(options[0], dice)
    if get_origin(kind) is Literal:
        return dice.choice(options)
    if get_origin(kind) is dict:
        key, value = options
        return {draw(key, dice): draw(value, dice) for _ in range(dice.choice((0, 1, 2)))}
    if get_origin(kind) is tuple:
        return tuple(draw(options[0], dice) for _ in range(dice.choice((0, 1, 2, 3))))
    return None if kind is type(None) else draw(dice.choice(options), dice)


def message(dice: random.Random) -> Message | None:
    """None where it would not even be taken from the wire."""
    kind = dice.choice(KINDS)
    hints = get_type_hints(kind)
    given = [each for each in msgspec.structs.fields(kind) if each.required or dice.random() < 0.5]
    try:
        fields = {each.name: draw(hints[each.name], dice) for each in given}
        if "topic" in fields and dice.random() < 0.85:
            fields["topic"] = NEWS
        return kind(**fields)
    except ValueError:
        return None


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("propagates", [False, True])
def test_no_message_of_a_client_stops_a_broker(place: str, propagates: bool) -> None:
    for seed in range(SEEDS):
        dice = random.Random(f"{seed} {place} {propagates}")
        town = Town(*PLACES[place], propagates=propagates)
        town.connect()
        for _ in range(STEPS):
            said = message(dice)
            if said is None:
                continue
            with suppress(ProtocolError):
                for _, sent in town.receive(ANN, said) + town.wait(dice.choice((0, 0, 100_000))):
                    codec().encode(sent)
            town.node.check()


@pytest.mark.parametrize("name", ["", "n" * 513, "n" * 2_000, "é" * 257, "a\nb", "a\0"])
def test_what_is_no_name_is_refused_before_anybody_notes_it(name: str) -> None:
    for place in (("h", ALONE), ("f", CHAIN)):
        town = Town(*place)
        town.connect()
        town.flush()
        [(to, answer)] = town.receive(ANN, Subscribe(NEWS, 5, 1, name=SubscriptionName(name)))
        assert isinstance(answer, Refused)
        assert (to, answer.request, answer.retry) == (ANN, 5, False)
        assert "is no name of a subscription" in answer.problem
        assert len(answer.problem) < 200
