"""Traces over a real broker, with the SDK of OpenTelemetry; a process without it loads nothing."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from gapless import sync
from gapless.client import publisher, telemetry
from gapless.core.errors import EventError
from tests.broker.stage import connected, make_broker, run

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
