"""Every message has its place in the list of kinds, and its bytes are kept."""

from __future__ import annotations

import inspect

from gapless.core import (
    broker_messages,
    client_messages,
    group_messages,
    messages,
    name_messages,
    range_messages,
    roster_messages,
    topic_messages,
    transaction_messages,
)
from gapless.core.messages import Message, Told
from gapless.scribe import messages as scribe_messages
from gapless.scribe.messages import Ringed, Routed
from gapless.wire.kinds import KINDS, codec
from tests.wire.multicast_samples import INNER
from tests.wire.samples import PROTOCOL_MESSAGES

MODULES = (
    messages,
    broker_messages,
    client_messages,
    topic_messages,
    transaction_messages,
    range_messages,
    name_messages,
    roster_messages,
    group_messages,
)


def test_every_message_of_the_core_is_in_the_list_once() -> None:
    found = {
        each
        for module in MODULES
        for _, each in inspect.getmembers(module, inspect.isclass)
        if issubclass(each, Message) and each.__module__ == module.__name__
    } - {Message, Told}
    assert found == set(KINDS)
    assert len(found) == len(KINDS)


def test_every_kind_has_a_sample_whose_bytes_are_kept() -> None:
    assert {type(message) for message in PROTOCOL_MESSAGES.values()} == set(KINDS)


def test_every_sample_survives_the_wire() -> None:
    for name, message in PROTOCOL_MESSAGES.items():
        assert codec().decode(codec().encode(message)) == message, name


def test_every_message_of_the_multicast_service_has_a_sample() -> None:
    found = {
        each
        for _, each in inspect.getmembers(scribe_messages, inspect.isclass)
        if issubclass(each, Message) and each not in (Message, Ringed)
    }
    payloads = {type(each.payload) for each in INNER if isinstance(each, Routed)}
    assert {type(each) for each in INNER} | payloads == found
