"""The first bytes of a message tell what it is; whatever they are, reading them fails nobody."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless.core.client_messages import Publish
from gapless.core.events import EventBatch
from gapless.core.identity import TopicName
from gapless.wire.head import read_head
from gapless.wire.kinds import codec


@given(st.text(min_size=1, max_size=300), st.integers(0, 1 << 62))
def test_kind_topic_and_number_of_a_publication_are_read(topic: str, request: int) -> None:
    message = Publish(TopicName(topic), request, EventBatch((b"x" * 10_000,)))
    found = read_head(codec().encode(message)[:2_000])
    wanted = {"kind": "publish", "topic": topic, "request": request}
    assert {key: found[key] for key in wanted} == wanted


@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_an_error(begin: bytes) -> None:
    assert all(isinstance(key, str) for key in read_head(begin))


@given(st.integers(0, 60))
def test_what_is_not_whole_is_left_out(size: int) -> None:
    message = Publish(TopicName("topic"), 70_000, EventBatch((b"x",)))
    payload = codec().encode(message)
    whole, found = read_head(payload), read_head(payload[:size])
    assert found.items() <= whole.items()
