"""What a step does is counted: each record that it looks at, and all that leaves."""

from __future__ import annotations

from gapless.core.broker_messages import Knowledge, Nack
from gapless.core.client_messages import Deliveries
from gapless.core.effects import Append, Effect, Persist, Put, Send
from gapless.core.events import EventBatch
from gapless.core.identity import ClientName, PubendName, TopicName
from gapless.core.messages import Ping
from gapless.core.ticks import Span
from gapless.testing.effort import CountedStore, effort
from gapless.testing.memory_volume import MemoryVolume

P, T = PubendName("t/0"), TopicName("t")


def test_each_record_counts_however_it_is_looked_at_and_facts_do_not() -> None:
    volume = MemoryVolume()
    volume.commit([Append("log", (1, 2, 3), (b"a", b"b", b"c")), Put("table", "key", b"fact")])
    store = CountedStore(volume)
    assert store.read("log", 1) == b"a"
    assert store.read_near("log", 2)[2] == b"b"
    assert store.take() == 2
    assert store.scan("log", 0, 9)[0] == [1, 2, 3]
    assert store.take() == 4
    assert sum(len(run.indices) for run in store.scan_runs("log", 2, 9, bytes_max=100)) == 2
    assert store.take() == 3
    assert store.bounds("log") == volume.bounds("log")
    assert store.get("table", "key") == b"fact"
    assert store.items("table") == {"key": b"fact"}
    assert store.take() == 0


def test_messages_count_with_the_events_and_spans_in_them() -> None:
    to, batch = ClientName("c"), EventBatch.join([b"x", b"y"])
    effects: list[Effect] = [
        Send(to, Ping(1)),
        Send(to, Deliveries(T, 9, P, (1, 2), batch, ((1,), (1,)))),
        Send(to, Knowledge(P, Span(0, 9), (1, 2), batch)),
        Send(to, Nack(P, (Span(1, 2), Span(3, 4), Span(5, 6)))),
        Persist(()),
    ]
    assert effort(effects) == 5 + 2 + 2 + 3
