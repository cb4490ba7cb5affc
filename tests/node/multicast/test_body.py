"""A batch of events as one body, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.errors import ProtocolError
from gapless.node.multicast.body import pack, unpack


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_what_was_packed_is_unpacked_the_same(events: list[bytes]) -> None:
    assert unpack(pack(events)) == events


@pytest.mark.parametrize("cut", [1, 3, 5, 8])
def test_a_body_that_ends_within_an_event_is_refused(cut: int) -> None:
    with pytest.raises(ProtocolError):
        unpack(pack([b"event"])[:cut])
