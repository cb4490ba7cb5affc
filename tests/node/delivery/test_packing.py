"""Parcels: each connection gets each event once, with all who want it, however it was found."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless.core.identity import PubendName, TopicName
from gapless.knowledge.subend import Settled
from gapless.node.delivery.packing import Packing, Parcel

COUNT, LIMITS, THROUGH = 8, (3, 1_000), 99
EVENTS = [b"%d" % index * (index + 1) for index in range(COUNT)]
SETTLED = Settled([10 + 2 * index for index in range(COUNT)], EVENTS, [])
INDICES = st.lists(st.integers(0, COUNT - 1), unique=True, max_size=COUNT).map(sorted)


def packing(limits: tuple[int, int] = LIMITS) -> Packing:
    return Packing(TopicName("t"), PubendName("t/0"), SETTLED, THROUGH, limits)


def unpacked(parcel: Parcel) -> dict[int, tuple[bytes, tuple[int, ...]]]:
    found: dict[int, tuple[bytes, tuple[int, ...]]] = {}
    for message in parcel.messages:
        for tick, event, takers in zip(message.ticks, message.events, message.takers, strict=True):
            assert tick not in found
            found[tick] = (event, takers)
    assert list(found) == sorted(found)
    return found


@given(
    shared=st.lists(INDICES.filter(bool), max_size=3),
    single=st.lists(st.tuples(st.integers(0, COUNT - 1), st.integers(11, 14)), unique=True),
)
def test_every_event_is_there_once_with_all_who_want_it(
    shared: list[list[int]], single: list[tuple[int, int]]
) -> None:
    shares = [(number, indices) for number, indices in enumerate(shared, 1)]
    if not shares and not single:
        return
    ordered = sorted(single, key=lambda pair: pair[0])  # by event, in any order of numbers
    alone = ([i for i, _ in ordered], [n for _, n in ordered]) if single else None
    wanted = {(i, n) for n, indices in shares for i in indices} | set(single)
    parcel = packing().pack(shares, alone)
    chosen = sorted({i for i, _ in wanted})
    assert unpacked(parcel) == {
        10 + 2 * i: (EVENTS[i], tuple(sorted(n for j, n in wanted if i == j))) for i in chosen
    }
    assert parcel.count == len(chosen)
    assert parcel.size == sum(len(EVENTS[i]) for i in chosen)
    assert all(len(message.events) <= LIMITS[0] for message in parcel.messages)


def test_each_message_says_up_to_where_all_is_said() -> None:
    parcel = packing().pack([], ([0, 1, 2, 5, 6], [1] * 5))
    assert [message.through for message in parcel.messages] == [10 + 2 * 5, THROUGH]


def test_connections_that_want_the_same_get_the_very_same() -> None:
    some, indices = packing(), [1, 2]
    assert some.pack([(4, indices)]) is some.pack([(4, indices)])
    assert some.pack([(4, indices)]) is not some.pack([(5, indices)])
    assert some.pack([(4, indices)]) is not some.pack([(4, [1, 3])])
