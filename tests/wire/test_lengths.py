"""No text of a peer is longer than its field allows: the decoder refuses it, wherever it stands."""

from __future__ import annotations

import types
from contextlib import suppress
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
import pytest

from gapless.core.client_messages import Acknowledge, Subscribe
from gapless.core.errors import WireError
from gapless.core.events import Value
from gapless.core.identity import SubscriptionName, TopicName
from gapless.core.lengths import (
    ADDRESS_MAX,
    CONDITION_BYTES_MAX,
    LONG_NAME_MAX,
    NAME_BYTES_MAX,
    PROSE_MAX,
    SECRET_MAX,
)
from gapless.core.ticks import PUBEND_COUNT_MAX
from gapless.core.topic_messages import CreateTopic
from gapless.node.dispatch import KINDS as SERVICE_KINDS
from gapless.wire.kinds import KINDS, codec

if TYPE_CHECKING:
    from collections.abc import Iterator

LENGTHS = {
    NAME_BYTES_MAX, LONG_NAME_MAX, CONDITION_BYTES_MAX, PROSE_MAX, ADDRESS_MAX, SECRET_MAX,
}  # fmt: skip
ALL = (*KINDS, *SERVICE_KINDS)
X = SubscriptionName("x")
CODEC = codec(*SERVICE_KINDS)
CONTENT = frozenset(get_args(Value))
"""What an attribute of an event holds, which is as long as an event may be."""


def texts(kind: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], int | None]]:
    """Every place of a text in a type: the way there, and how long it may be."""
    limit = None
    while get_origin(kind) is Annotated or hasattr(kind, "__supertype__"):
        if hasattr(kind, "__supertype__"):
            kind = kind.__supertype__
            continue
        kind, *metas = get_args(kind)
        limit = next((each.max_length for each in metas if each.max_length is not None), limit)
    origin, options = get_origin(kind), get_args(kind)
    if kind is str:
        yield way, limit
    elif origin in (Union, types.UnionType):
        if frozenset(options) == CONTENT:
            return
        for option in options:
            yield from texts(option, way)
    elif origin is dict:
        yield from texts(options[0], (*way, "a key"))
        yield from texts(options[1], (*way, "a value"))
    elif origin is tuple:
        count = 1 if Ellipsis in options else len(options)
        for option in options[:count]:
            yield from texts(option, (*way, count))
    elif origin is not Literal and isinstance(kind, type) and is_record(kind):
        for name, hint in get_type_hints(kind, include_extras=True).items():
            if name in fields_of(kind):
                yield from texts(hint, (*way, kind, name))


def is_record(kind: type) -> bool:
    return issubclass(kind, msgspec.Struct) or hasattr(kind, "_fields")


def fields_of(kind: Any) -> tuple[str, ...]:
    names: tuple[str, ...] = getattr(kind, "__struct_fields__", None) or kind._fields
    return names


def show(way: tuple[Any, ...]) -> str:
    return ".".join(getattr(each, "__name__", str(each)) for each in way)


@pytest.mark.parametrize("kind", ALL, ids=lambda each: each.__struct_config__.tag)
def test_every_text_of_a_message_has_a_bound(kind: type) -> None:
    """A new field is `Name`, `LongName`, `Condition`, `Prose`…, and not `str`: `core.lengths`."""
    for way, limit in texts(kind):
        assert limit in LENGTHS, f"{show(way)} is a text without a bound"


def payload(way: tuple[Any, ...], text: str) -> Any:
    """What has this text there, and nothing else that need not be."""
    if not way:
        return text
    step, rest = way[0], way[1:]
    if isinstance(step, type) and is_record(step):
        tag = step.__struct_config__.tag  # type: ignore[attr-defined]
        return {**({"kind": tag} if tag else {}), rest[0]: payload(rest[1:], text)}
    if step == "a key":
        return {text: 0}
    if step == "a value":
        return {"k": payload(rest, text)}
    assert isinstance(step, int), step
    return [payload(rest, text)] * step


def is_plain(way: tuple[Any, ...]) -> bool:
    """Not in a named tuple, whose other places would have to be good; they have the same types."""
    return not any(isinstance(each, type) and hasattr(each, "_fields") for each in way)


PLACES = [found for kind in ALL for found in texts(kind) if is_plain(found[0])]


@pytest.mark.parametrize(
    ("way", "limit"), PLACES, ids=lambda each: show(each) if isinstance(each, tuple) else ""
)
def test_a_text_beyond_its_bound_is_refused_when_it_is_decoded(
    way: tuple[Any, ...], limit: int
) -> None:
    with pytest.raises(WireError) as caught:
        CODEC.decode(msgspec.msgpack.encode(payload(way, "n" * (limit + 1))))
    assert f"length <= {limit}" in str(caught.value)
    assert len(str(caught.value)) < 500
    with suppress(WireError):  # something else is missing
        CODEC.decode(msgspec.msgpack.encode(payload(way, "n" * limit)))
        return
    with pytest.raises(WireError) as caught:
        CODEC.decode(msgspec.msgpack.encode(payload(way, "n" * limit)))
    assert "length <=" not in str(caught.value)


def test_tokens_and_hosts_are_no_more_than_a_topic_has_pubends() -> None:
    few = {f"t/{number}": 1 for number in range(PUBEND_COUNT_MAX)}
    many = few | {"one more": 1}
    topic = TopicName("t")
    for good, bad in (
        (Subscribe(topic, 1, 1, name=X, token=few), Subscribe(topic, 1, 1, name=X, token=many)),
        (Acknowledge(1, few), Acknowledge(1, many)),
        (CreateTopic(1, topic, hosts=tuple(few)), CreateTopic(1, topic, hosts=tuple(many))),  # type: ignore[arg-type]
    ):
        assert CODEC.decode(CODEC.encode(good)) == good
        with pytest.raises(WireError, match=f"length <= {PUBEND_COUNT_MAX}"):
            CODEC.decode(CODEC.encode(bad))


def test_nothing_is_checked_where_a_message_is_made() -> None:
    """A broker makes some for itself; what it made of what it has taken must not end it."""
    assert Subscribe(TopicName("n" * 1_000), 1, 1, "c" * (CONDITION_BYTES_MAX + 1)).request == 1
