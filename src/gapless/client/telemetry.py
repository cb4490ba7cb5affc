"""Traces by OpenTelemetry: W3C trace context travels as attributes of events.

Theory of operation
    This module never imports OpenTelemetry. An application that traces has imported it (so does
    `opentelemetry-instrument`, also for a broker); a process without it pays one look into
    `sys.modules` for each call. Where the API is there and no SDK, spans are not valid, and events
    stay as they are.
    A span `publish` puts its context into the attributes `traceparent` and `tracestate` of the
    events, unless the application has. Its children begin at the event's tick, by the broker's
    clock: `commit` ends when the event is durable, `deliver` when the application takes the event.
    Events without these attributes have no such spans.

Cost: a broker that traces decodes the attributes of what it commits once more.
"""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from gapless.core.effects import Append
from gapless.core.events import EventBatch
from gapless.core.ticks import Tick, instant_of
from gapless.version import __version__
from gapless.wire.events import decode_attributes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from opentelemetry.trace import Span, Tracer

    from gapless.core.effects import Write
    from gapless.core.events import Event, Value

TRACE_PARENT = "traceparent"
LOG = "log/"
"""How the streams of pubends' logs begin."""

NO_SPAN: AbstractContextManager[object] = nullcontext()


def find_tracer() -> Tracer | None:
    """None where OpenTelemetry is not loaded."""
    api = sys.modules.get("opentelemetry.trace")
    return api.get_tracer("gapless", __version__) if api is not None else None


def about(topic: str, operation: str) -> dict[str, str]:
    """The attributes of a span, by OpenTelemetry's conventions for messaging."""
    place = {"messaging.system": "gapless", "messaging.destination.name": topic}
    return {**place, "messaging.operation.name": operation}


def publishing(topic: str) -> AbstractContextManager[object]:
    """A span around a publication; nothing where nobody traces."""
    tracer = find_tracer()
    if tracer is None:
        return NO_SPAN
    from opentelemetry.trace import SpanKind

    return tracer.start_as_current_span(
        f"publish {topic}", kind=SpanKind.PRODUCER, attributes=about(topic, "publish")
    )


def with_context(
    events: Iterable[tuple[Mapping[str, Value], Any]],
) -> Iterable[tuple[Mapping[str, Value], Any]]:
    """The same events with the context of the current span, if somebody traces."""
    if find_tracer() is None:
        return events
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context: dict[str, Value] = {}
    TraceContextTextMapPropagator().inject(context)

    def merge(event: tuple[Mapping[str, Value], Any]) -> tuple[Mapping[str, Value], Any]:
        try:
            attributes, body = event
            return {**context, **attributes}, body
        except (TypeError, ValueError):
            return event  # the encoder says what is wrong with it

    return map(merge, events) if context else events


def trace_step(
    operation: str, topic: str, pubend: str, tick: int, event: Mapping[str, Any]
) -> None:
    """A span that ends now, for an event with trace context."""
    tracer = find_tracer()
    if tracer is None or not isinstance(event.get(TRACE_PARENT), str):
        return
    from opentelemetry.trace import SpanKind
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {key: each for key, each in event.items() if isinstance(each, str)}
    now_ns = time.time_ns()
    tracer.start_span(
        f"{operation} {topic}",
        TraceContextTextMapPropagator().extract(carrier),
        SpanKind.CONSUMER if operation == "deliver" else SpanKind.INTERNAL,
        {**about(topic, operation), "gapless.pubend": pubend, "gapless.tick": tick},
        start_time=min(now_ns, instant_of(Tick(tick)) * 1_000),
    ).end(now_ns)


def trace_commit(writes: Sequence[Write]) -> None:
    """Spans for the events of a write that is durable."""
    if find_tracer() is None:
        return
    for write in writes:
        if isinstance(write, Append) and write.stream.startswith(LOG):
            pubend = write.stream.removeprefix(LOG)
            topic = pubend.rpartition("/")[0]
            found = decode_attributes(EventBatch(tuple(write.records)))
            for tick, attributes in zip(write.indices, found, strict=True):
                trace_step("commit", topic, pubend, tick, attributes)


def trace_delivery(events: Iterable[Event]) -> None:
    """Spans for events that the application takes."""
    if find_tracer() is not None:
        for event in events:
            trace_step("deliver", event.topic, event.pubend, event.tick, event.attributes)


def start_batch(topic: str, subscription: str) -> Span | None:
    """A span for a micro-batch of Spark; the caller ends it."""
    tracer = find_tracer()
    more = {**about(topic, "batch"), "messaging.consumer.group.name": subscription}
    return tracer.start_span(f"batch {topic}", attributes=more) if tracer is not None else None
