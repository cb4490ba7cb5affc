"""What a session in total order holds back, and what it lets go."""

from __future__ import annotations

from dataclasses import replace

from gapless.core.identity import PubendName
from gapless.core.ticks import Span
from gapless.node.config import Config
from gapless.node.delivery.total_order import Run, TotalOrder

A, B = PubendName("t/0"), PubendName("t/1")
MANY = 1_000
CONFIG = Config()


def an_order(config: Config = CONFIG) -> TotalOrder:
    return TotalOrder({A: 1, B: 1}, config)


def shown(runs: list[Run]) -> list[tuple[str, list[int], int]]:
    return [(run.pubend, run.ticks, run.through) for run in runs]


def waiting(order: TotalOrder) -> tuple[bool, int]:
    return order.is_expected, order.latest


def test_events_leave_in_the_order_of_ticks_below_the_least_position() -> None:
    order = an_order()
    assert order.add(A, [10, 30, 50], [b"a"] * 3)
    assert order.add(B, [20, 40], [b"b"] * 2)
    runs = order.take({A: 60, B: 41}, MANY)
    assert shown(runs) == [
        (A, [10], 11),
        (B, [20], 21),
        (A, [30], 41),
        (B, [40], 41),
    ]
    order.check()
    assert shown(order.take({A: 60, B: 60}, MANY)) == [(A, [50], 60)]
    assert shown(order.take_silence()) == [(B, [], 60)]
    assert order.latest == 0


def test_a_pubend_that_lags_holds_all_others_back() -> None:
    order = an_order()
    order.add(A, [10, 30], [b"a"] * 2)
    assert order.take({A: 60, B: 10}, MANY) == []
    assert order.latest == 30


def test_a_client_that_waits_for_a_tick_is_told_how_far_all_has_come() -> None:
    order = an_order()
    assert waiting(order) == (False, 0)
    order.expect(40)
    assert waiting(order) == (True, 39)
    assert order.take({A: 60, B: 30}, MANY) == []
    assert shown(order.take_silence()) == [(A, [], 30), (B, [], 30)]
    assert waiting(order) == (True, 39), "not all below 40 has come"
    assert order.take({A: 60, B: 45}, MANY) == []
    assert shown(order.take_silence()) == [(A, [], 45), (B, [], 45)]
    assert waiting(order) == (False, 0)
    order.check()


def test_no_more_leaves_than_the_client_has_credit_for() -> None:
    order = an_order()
    order.add(A, [10, 30], [b"a"] * 2)
    order.add(B, [20], [b"b"])
    assert shown(order.take({A: 60, B: 60}, 1)) == [(A, [10], 21)]
    assert shown(order.take({A: 60, B: 60}, 0)) == []
    assert order.sent == {A: 21, B: 1}
    assert shown(order.take({A: 60, B: 60}, 2)) == [(B, [20], 60), (A, [30], 60)]


def test_pubends_of_several_topics_that_share_a_tick_are_ordered_by_name() -> None:
    order = an_order()
    order.add(B, [10], [b"b"])
    order.add(A, [10], [b"a"])
    [run] = order.take({A: 60, B: 60}, 1)
    assert (run.pubend, run.ticks, run.through) == (A, [10], 11)  # of A all below 11 is sent
    assert order.sent[B] == 1
    assert shown(order.take({A: 60, B: 60}, 1)) == [(B, [10], 60)]


def test_a_loss_is_told_in_its_place_and_takes_no_credit() -> None:
    order = an_order()
    order.add(A, [10], [b"a"])
    order.add(B, [5], [b"b"])
    order.lose(B, Span(8, 20))
    runs = order.take({A: 15, B: 20}, 2)
    assert [(run.pubend, run.lost, run.through) for run in runs] == [
        (B, None, 6),
        (B, Span(8, 20), 20),
        (A, None, 15),
    ]
    order.check()


def test_a_pubend_that_is_ahead_leaves_room_for_one_that_lags() -> None:
    order = an_order(replace(CONFIG, client_queue_max=4))
    assert order.add(A, [10, 20], [b"a"] * 2)
    assert order.room(A) == 0
    assert not order.add(A, [30], [b"a"])
    assert order.room(B) == 2
    assert order.add(B, [1, 2, 3], [b"b"] * 3), "one batch always fits"
    order.check()


def test_bytes_are_bounded_too() -> None:
    order = an_order(replace(CONFIG, client_queue_bytes_max=8))
    assert order.add(A, [10], [b"1234"])
    assert order.room(A) == 0
    order.take({A: 60, B: 60}, MANY)
    assert order.room(A) > 0


def test_a_loss_takes_no_room_from_the_events_after_it() -> None:
    order = an_order(replace(CONFIG, client_queue_max=2))
    assert order.room(A) == 1
    order.lose(A, Span(1, 5))
    assert order.room(A) == 1
    assert order.add(A, [10], [b"a"])
    order.check()
    runs = order.take({A: 20, B: 20}, MANY)
    assert [(run.ticks, run.lost) for run in runs] == [([], Span(1, 5)), ([10], None)]


def test_what_a_catch_up_has_read_is_held_however_many_bytes_it_has() -> None:
    order = an_order(replace(CONFIG, client_queue_bytes_max=2))
    order.hold(A, [10], [b"long"])
    order.hold(A, [12], [b"long"])
    order.check()
    assert shown(order.take({A: 20, B: 20}, MANY)) == [(A, [10, 12], 20)]
