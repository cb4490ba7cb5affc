"""Figure 7: two of three relays crash and come back; the books see what was lost or came twice."""

from __future__ import annotations

from gapless.core.identity import BrokerName
from gapless_lab.experiments.propagation.failure import (
    CELLS,
    CENTRE,
    LATE,
    RELAYS,
    SOURCE,
    TOPICS,
    Book,
    Group,
    failure_network,
    make_event,
    topic_of,
)
from gapless_lab.experiments.propagation.setting import PROPAGATION, Crowd, Setting
from gapless_lab.experiments.propagation.ways import carrier
from tests.lab.experiments.propagation.tiny import tiny_results


def test_every_subject_comes_once_in_a_hundred_events_on_its_topic() -> None:
    events = [make_event(number) for number in range(100)]
    assert {attributes["subject"] for _, attributes in events} == set(range(100))
    assert all(topic == topic_of(int(str(a["subject"]))) for topic, a in events)


def test_streams_share_the_relays_evenly_also_without_the_first() -> None:
    for down in ((), RELAYS[:1]):
        chosen = [carrier(CELLS, SOURCE, CENTRE, topic, down) for topic in TOPICS]
        alive = [relay for relay in RELAYS if relay not in down]
        assert {chosen.count(relay) for relay in alive} == {len(TOPICS) // len(alive)}


def test_nothing_is_lost_and_relays_carry_what_the_others_cannot() -> None:
    line = tiny_results().time_line
    assert line is not None
    assert (line.lost, line.duplicated, line.out_of_order) == (0, 0, 0)
    assert line.published == 20 * 40
    assert line.expected == 3 * 800 // 2 * 2 + sum(line.delivered[LATE])
    assert line.carried["ib1"][9:29] == [0] * 20
    assert sum(line.carried["ib3"][12:16]) == 4 * 10  # half of 20 a second is wanted
    assert sum(line.carried["ib3"][18:28]) == 10 * 20
    assert min(line.delivered["group 1"]) > 0
    assert sum(line.filtered) > 0
    assert 16.5 < line.late_start_s < 17


def test_the_books_find_an_event_that_did_not_come_and_one_that_came_twice() -> None:
    setting = Setting(failure_network(), PROPAGATION, seed=1)
    group = Group(setting, "group 1", 1)
    group.subscribe()
    setting.play(1)
    crowd = Crowd(setting, BrokerName("pb"), make_event)
    origin = setting.world.now
    crowd.publish(200)
    setting.play(2)
    crowd.publish(0)
    setting.play(1)
    arrivals = group.listener.arrivals
    whole = Book(crowd, group, origin)
    assert (whole.expected, whole.lost, whole.duplicated) == (200, 0, 0)
    arrivals.append(arrivals[20])
    assert Book(crowd, group, origin).duplicated == 1
    assert Book(crowd, group, origin).out_of_order == 1
    del arrivals[20], arrivals[-1]
    assert Book(crowd, group, origin).lost == 1
