"""Traces over a real broker, with the SDK of OpenTelemetry; a process without it loads nothing."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from gapless import sync, together
from gapless.client import publisher, telemetry
from gapless.core.errors import EventError
from tests.broker.stage import connected, make_broker, run
from tests.doors.http.caller import Caller

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """What was traced; the provider of a process is set once, so ours stands beside it."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    memory, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    for module in (telemetry, publisher):
        monkeypatch.setattr(module, "find_tracer", lambda: provider.get_tracer("gapless"))
    yield memory
    provider.shutdown()


def by_name(exporter: InMemorySpanExporter) -> dict[str, Any]:
    return {span.name: span for span in exporter.get_finished_spans()}


def test_one_trace_leads_from_publishing_over_the_commit_to_the_delivery(
    tmp_path: Path, exporter: InMemorySpanExporter
) -> None:
    async def main() -> None:
        broker = make_broker(tmp_path)
        async with broker, connected(broker) as client, client.subscribe("t") as subscription:
            receipt = await client.publish("t", {"n": 1}, b"body")
            event: Any = await anext(subscription)
            spans = by_name(exporter)
            assert sorted(spans) == ["commit t", "deliver t", "publish t"]
            root = spans["publish t"]
            context = root.get_span_context()
            place = f"00-{context.trace_id:032x}-{context.span_id:016x}-"
            assert event.attributes["traceparent"].startswith(place)
            assert event.attributes.keys() == {"n", "traceparent"}
            for name in ("commit t", "deliver t"):
                assert spans[name].parent.span_id == context.span_id
                assert spans[name].context.trace_id == context.trace_id
                assert spans[name].attributes["gapless.tick"] == receipt.tick
                assert spans[name].start_time <= spans[name].end_time

    run(main())


def test_a_named_publisher_traces_too_and_the_context_of_the_application_counts(
    tmp_path: Path, exporter: InMemorySpanExporter
) -> None:
    given = f"00-{5:032x}-{7:016x}-01"

    async def main() -> None:
        broker = make_broker(tmp_path)
        async with broker, connected(broker) as client, client.subscribe("t") as subscription:
            async with client.publisher("t", name="feed") as feed:
                await feed.send_many([({"n": 0, "traceparent": given}, b""), ({"n": 1}, b"")])
            first: Any = await anext(subscription)
            second: Any = await anext(subscription)
            context = by_name(exporter)["publish t"].get_span_context()
            assert first.attributes["traceparent"] == given
            assert f"-{context.span_id:016x}-" in second.attributes["traceparent"]
            delivered = [each for each in exporter.get_finished_spans() if "deliver" in each.name]
            assert [each.parent.span_id for each in delivered if each.parent] == [
                7,
                context.span_id,
            ]
            with pytest.raises(EventError):
                await client.publish_many("t", [5])  # type: ignore[list-item]
            failed = exporter.get_finished_spans()[-1]
            assert not failed.status.is_ok

    run(main())


def test_a_trace_context_that_is_none_is_an_attribute_like_others(
    tmp_path: Path, exporter: InMemorySpanExporter
) -> None:
    async def main() -> None:
        broker = make_broker(tmp_path)
        async with broker, connected(broker) as client, client.subscribe("t") as subscription:
            await client.publish("t", {"traceparent": 5, "tracestate": True})
            event: Any = await anext(subscription)
            assert event.attributes == {"traceparent": 5, "tracestate": True}
            assert sorted(by_name(exporter)) == ["publish t"]

    run(main())


def spans_of(exporter: InMemorySpanExporter, name: str) -> list[Any]:
    return [each for each in exporter.get_finished_spans() if each.name == name]


def counted(span: Any) -> int:
    """How many events a span is about."""
    return int(span.attributes.get("messaging.batch.message_count", 1))


def test_events_that_are_committed_and_taken_together_share_the_spans_of_their_trace(
    tmp_path: Path, exporter: InMemorySpanExporter
) -> None:
    async def main() -> None:
        broker = make_broker(tmp_path)
        async with broker, connected(broker) as client, client.subscribe("t") as subscription:
            receipts = await client.publish_many("t", [({"n": n}, b"") for n in range(20)])
            taken = 0
            while taken < 20:
                taken += len(await subscription.take())
            [commit] = spans_of(exporter, "commit t")
            assert (counted(commit), commit.attributes["gapless.tick"]) == (20, receipts[0].tick)
            assert sum(map(counted, spans_of(exporter, "deliver t"))) == 20

    run(main())


def test_a_table_is_one_trace_from_its_columns_to_those_of_the_reader(
    tmp_path: Path, exporter: InMemorySpanExporter
) -> None:
    pa = pytest.importorskip("pyarrow")

    async def main() -> None:
        broker = make_broker(tmp_path)
        async with broker, connected(broker) as client, client.subscribe("two") as subscription:
            async with client.publisher("two", name="feed") as feed:
                await feed.send_table(pa.table({"n": list(range(3_000))}))
            batches = subscription.arrow_batches()
            rows = (await anext(batches)).to_pylist()
            while len(rows) < 3_000:
                rows += (await anext(batches)).to_pylist()
            [published] = spans_of(exporter, "publish two")
            own = published.get_span_context().span_id
            for row in rows:
                assert f"-{own:016x}-" in dict(row["attributes"])["traceparent"]["text"]
            for name in ("commit two", "deliver two"):
                spans = spans_of(exporter, name)
                assert {each.parent.span_id for each in spans} == {own}
                assert sum(map(counted, spans)) == 3_000
                assert len(spans) < 300, "no span for each row"
            # What was received is sent as it was: it stays in its trace.
            exporter.clear()
            async with client.publisher("two", name="other") as feed:
                await feed.send_table(pa.RecordBatch.from_pylist(rows[:5], subscription_schema()))
            assert {each.parent.span_id for each in spans_of(exporter, "commit two")} == {own}

    run(main())


def subscription_schema() -> Any:
    from gapless.client.columns import SCHEMA

    return SCHEMA


def test_columns_of_the_application_keep_their_context_and_others_have_no_spans(
    tmp_path: Path, exporter: InMemorySpanExporter
) -> None:
    pa = pytest.importorskip("pyarrow")
    given = f"00-{5:032x}-{7:016x}-01"

    async def main() -> None:
        broker = make_broker(tmp_path)
        async with broker, connected(broker) as client, client.subscribe("t") as subscription:
            async with client.publisher("t", name="feed") as feed:
                await feed.send_table(pa.table({"n": [1, 2], "traceparent": [given, None]}))
            batches, found = subscription.arrow_batches(), list[Any]()
            while len(found) < 2:
                found += (await anext(batches)).to_pylist()
            assert [dict(each["attributes"]).keys() for each in found] == [
                {"n", "traceparent"},
                {"n"},
            ]
            for name in ("commit t", "deliver t"):
                assert [each.parent.span_id for each in spans_of(exporter, name)] == [7]

    run(main())


def test_a_transaction_is_traced_over_its_commit(
    tmp_path: Path, exporter: InMemorySpanExporter
) -> None:
    async def main() -> None:
        broker = make_broker(tmp_path)
        async with broker, connected(broker) as client, client.subscribe("t") as subscription:
            async with client.transaction("t", producer="job", id=1) as transaction:
                await transaction.send({"n": 1})
                await transaction.flush()
                assert spans_of(exporter, "commit t") == [], "it is staged, and not committed"
            event: Any = await anext(subscription)
            [published] = spans_of(exporter, "publish t")
            own = published.get_span_context().span_id
            assert f"-{own:016x}-" in event.attributes["traceparent"]
            for name in ("commit t", "deliver t"):
                [span] = spans_of(exporter, name)
                assert span.parent.span_id == own
                assert span.attributes["gapless.tick"] == event.tick

    run(main())


def test_a_member_of_a_group_traces_what_it_takes(
    tmp_path: Path, exporter: InMemorySpanExporter
) -> None:
    async def main() -> None:
        broker = make_broker(tmp_path)
        async with (
            broker,
            connected(broker) as client,
            client.subscribe("t", name="crew", share_by="n") as member,
        ):
            await client.publish_many("t", [({"n": n}, b"") for n in range(3)])
            first: Any = await anext(member)
            [span] = spans_of(exporter, "deliver t")
            assert span.attributes["gapless.tick"] == first.tick, "the others are not taken yet"
            await anext(member)
            await anext(member)
            assert len(spans_of(exporter, "deliver t")) == 3

    run(main())


def test_subscriptions_that_are_read_together_trace_what_each_takes(
    tmp_path: Path, exporter: InMemorySpanExporter
) -> None:
    async def main() -> None:
        broker = make_broker(tmp_path)
        async with (
            broker,
            connected(broker) as client,
            client.subscribe("t") as one,
            client.subscribe("t", "n >= 5") as two,
        ):
            taken = 0
            batches = aiter(together([one, two]).batches())
            for n in range(10):  # after the first they share a backlog
                await client.publish("t", {"n": n})
                wanted = n + 1 + max(0, n - 4)
                while taken < wanted:
                    taken += len(await anext(batches))
            assert sum(map(counted, spans_of(exporter, "deliver t"))) == taken == 15

    run(main())


def test_the_blocking_client_goes_on_with_the_trace_of_its_caller(
    tmp_path: Path, exporter: InMemorySpanExporter
) -> None:
    import asyncio

    def publish(url: str) -> int:
        tracer = telemetry.find_tracer()
        assert tracer is not None
        with sync.connect(url) as client, tracer.start_as_current_span("order") as order:
            client.publish("t", {"n": 1})
            return int(order.get_span_context().span_id)

    async def main() -> None:
        async with make_broker(tmp_path) as broker:
            own = await asyncio.to_thread(publish, f"gapless://{broker.address}")
            [span] = spans_of(exporter, "publish t")
            assert span.parent.span_id == own

    run(main())


def test_a_request_to_the_http_door_goes_on_with_the_trace_of_its_headers(
    tmp_path: Path, exporter: InMemorySpanExporter
) -> None:
    given = {"traceparent": f"00-{5:032x}-{7:016x}-01", "tracestate": "shop=1"}

    async def main() -> None:
        broker = make_broker(tmp_path, http="127.0.0.1:0")
        async with broker, connected(broker) as client, client.subscribe("t") as subscription:
            caller = Caller.of(broker)
            numbered = {"Gapless-Publisher": "feed", "Gapless-Sequence": "0"}
            for headers in ({}, numbered):
                assert (await caller.publish("t", {"n": 1}, **given, **headers)).status == 200
                event: Any = await anext(subscription)
                span = spans_of(exporter, "publish t")[-1]
                assert (span.parent.span_id, span.context.trace_id) == (7, 5)
                own = span.get_span_context().span_id
                assert event.attributes["traceparent"] == f"00-{5:032x}-{own:016x}-01"
                assert event.attributes["tracestate"] == "shop=1"
            await caller.publish("t", {"n": 1})
            assert spans_of(exporter, "publish t")[-1].parent is None
            await caller.publish("t", {"n": 1}, traceparent="nonsense")
            assert spans_of(exporter, "publish t")[-1].parent is None

    run(main())


def test_a_micro_batch_of_spark_is_a_span_from_its_plan_to_its_commit(
    tmp_path: Path, exporter: InMemorySpanExporter
) -> None:
    pytest.importorskip("pyspark")
    from gapless.spark.data_source import GaplessSource
    from gapless.spark.stream_reader import StreamReader

    async def serve() -> None:
        import asyncio

        async with make_broker(tmp_path) as broker:
            await asyncio.to_thread(read, f"gapless://{broker.address}")

    def read(url: str) -> None:
        options = {"url": url, "topic": "t", "subscription": "query", "longPollMs": "0"}
        reader = StreamReader(options, GaplessSource(options).schema())
        start = reader.initialOffset()
        with sync.connect(url) as client:
            client.publish("t", {"n": 1})
        end = start
        while end == start:
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
        reader.partitions(start, end)
        assert "batch t" not in by_name(exporter)
        reader.latestOffset(end, reader.getDefaultReadLimit())
        span = by_name(exporter)["batch t"]
        assert span.attributes["messaging.consumer.group.name"] == "query"

    run(serve())


def test_without_opentelemetry_nothing_is_loaded_and_events_stay_as_they_are() -> None:
    code = (
        "import sys; from gapless.client import telemetry; import gapless.client.client\n"
        "events = [({'n': 1}, b'')]\n"
        "with telemetry.publishing('t'): assert telemetry.with_context(events) is events\n"
        "assert not any(name.startswith('opentelemetry') for name in sys.modules)\n"
        "import opentelemetry.trace\n"
        "with telemetry.publishing('t'): assert telemetry.with_context(events) is events\n"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
