"""The experiment on durable subscriptions: what is played is what the paper describes."""

from __future__ import annotations

import json

import pytest

from gapless_lab.experiments.durable.absences import play_fan_in
from gapless_lab.experiments.durable.auto_acknowledge import SYNC_US, play_auto_acknowledge
from gapless_lab.experiments.durable.clients import bound_name, feeds, join
from gapless_lab.experiments.durable.processor import REAL
from gapless_lab.experiments.durable.setting import TOPIC, Setting, star, subscriber_hosts
from gapless_lab.experiments.durable.steady import ANONYMOUS, LEAVING, STAYING
from tests.lab.experiments.durable.tiny import TINY, tiny_results


def test_every_way_and_size_is_played() -> None:
    results = tiny_results()
    wanted = {(way, count) for way in (STAYING, LEAVING) for count in (0, 1, 2)}
    assert set(results.peaks) == {*wanted, (ANONYMOUS, 1)}
    assert [each.subscribers for each in results.fan_in] == [4, 8]
    assert [each.subscribers for each in results.rows] == [1, 10]


def test_data_is_plain() -> None:
    data = json.loads(json.dumps(tiny_results().plain()))
    assert data["size"]["per_host"] == TINY.per_host
    assert len(data["peaks"]) == 7
    assert data["crash"]["lost"] == data["absences"]["lost"] == 0


def test_notes_state_costs_delays_and_the_table() -> None:
    text = " ".join(tiny_results().notes())
    for words in ("20 times slower", "event_alone 75", "a write 2 ms", "10: ", "a commit"):
        assert words in text


@pytest.mark.parametrize("count", [32, 48])
def test_many_that_return_together_are_sent_each_event_once(count: int) -> None:
    found = play_fan_in(count, seed=2, away_s=4, costs=REAL)
    assert found.wanted > 5 * found.missed
    assert found.sent_again <= found.missed


def test_every_subscriber_gets_a_quarter_of_every_pubend() -> None:
    setting = Setting(star(1), seed=5)
    subscribers = join(setting, subscriber_hosts(1), 4)
    published = feeds(setting, 80)
    setting.play(1)
    for feed in published:
        feed.stop()
    setting.play(1)
    pubends = {each.name for each in setting.network.topic[TOPIC].pubends}
    assert sum(len(feed.published) for feed in published) == pytest.approx(80, abs=4)
    assert sum(len(each.taken) for each in subscribers) == sum(len(f.published) for f in published)
    assert {each.group for each in subscribers} == {0, 1, 2, 3}
    for each in subscribers:
        assert {pubend for pubend, _ in each.taken} == pubends
        assert len(each.taken) == sum(feed.groups[each.group] for feed in published)


@pytest.mark.parametrize("number", range(4))
def test_a_feed_is_named_for_its_pubend(number: int) -> None:
    names = {bound_name(each, 4) for each in range(4)}
    assert len(names) == 4
    assert str(number) in bound_name(number, 4)


def test_a_subscriber_that_was_away_catches_up_with_all_it_missed() -> None:
    absences = tiny_results().absences
    assert absences is not None
    (only,) = absences.returns
    assert only.away_s == 5
    assert 0 < only.caught_up_s < 5
    assert absences.lost == absences.doubled == 0


def course(seed: int) -> str:
    setting = Setting(star(1), seed=seed)
    subscribers = join(setting, subscriber_hosts(1), 2)
    feeds(setting, 80)
    subscribers[0].leave(0.2)
    setting.play(1)
    return setting.trace.digest


def test_the_same_seed_takes_the_same_course_and_another_does_not() -> None:
    assert course(1) == course(1) != course(2)


def test_release_waits_for_who_is_away_and_the_stream_does_not() -> None:
    absences = tiny_results().absences
    assert absences is not None
    released = [rate for _, rate in absences.positions.rates(lambda row: row.released_ms)]
    latest = [rate for _, rate in absences.positions.rates(lambda row: row.latest_ms)]
    assert sum(not rate for rate in released) >= 3
    assert min(latest) > 500


def test_returning_together_needs_each_event_once_more_at_most() -> None:
    few, many = tiny_results().fan_in
    assert many.wanted > 1.9 * few.wanted
    assert 0 < few.sent_again <= few.missed
    assert 0 < many.sent_again <= many.missed


def test_a_crash_has_its_phases_in_order_and_all_catch_up() -> None:
    crash = tiny_results().crash
    assert crash is not None
    assert crash.begin < crash.down_s < crash.up_s < crash.recovered_s < crash.level_s < crash.end
    assert crash.up_s - crash.down_s == pytest.approx(TINY.down_s)
    assert len(crash.returns) == TINY.crash_subscribers
    assert all(each.caught_up_s > 0 for each in crash.returns)
    assert crash.lost == crash.doubled == 0
    assert sum(crash.alone) == crash.wanted > 0
    assert all(len(counts) == crash.end - crash.begin for counts in crash.machines)


def test_a_host_that_is_down_is_idle_and_delivers_nothing() -> None:
    crash = tiny_results().crash
    assert crash is not None
    inside = slice(int(crash.down_s) - crash.begin + 1, int(crash.up_s) - crash.begin)
    assert sum(crash.busy["s1"][inside]) == sum(crash.deliveries[inside]) == 0
    assert min(crash.busy["p"][inside]) > 0
    assert not any(
        row.is_up for row in crash.positions.rows if crash.down_s + 1 <= row.second < crash.up_s
    )


def test_one_acknowledger_waits_for_the_disk_and_many_share_it() -> None:
    one, many = (play_auto_acknowledge(count, seconds=0.4, seed=1) for count in (1, 8))
    assert one.events_per_s <= 1e6 / SYNC_US
    assert one.events_per_commit == pytest.approx(1, abs=0.1)
    assert many.events_per_commit > 3
    assert many.events_per_s > 4 * one.events_per_s


def test_the_filtered_log_has_at_most_eight_bytes_and_sixteen_for_each_taker() -> None:
    logging = tiny_results().logging
    assert logging is not None
    each_bytes = logging.filtered_bytes / TINY.logging_s / 800
    assert 8 + 4 * 25 < each_bytes <= 8 + 4 + 12 * 25, "few have all their takers from one event"
    assert logging.copied_bytes == TINY.logging_s * 800 * 25 * 418
