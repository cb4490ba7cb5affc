"""Traces by OpenTelemetry: W3C trace context travels as attributes of events.

Theory of operation
    This module never imports OpenTelemetry. An application that traces has imported it (so does
    `opentelemetry-instrument`, also for a broker); a process without it pays one look into
    `sys.modules` for each call. Where the API is there and no SDK, spans are not valid, and events
    stay as they are.
    A span `publish` puts its context into the attributes `traceparent` and `tracestate` of the
    events, unless the application has. Its children begin at the event's tick, by the broker's
    clock: `commit` ends when the event is durable, `deliver` when the application takes the event.
    Events of one pubend with the same context that are committed or taken together share a span,
    which counts them. Events without these attributes have no such spans.

Cost: a broker that traces decodes the attributes of what it commits once more, and a reader of
columns the events that it takes; both only where a trace context is among the bytes.
"""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import groupby, repeat
from typing import TYPE_CHECKING, Any

from gapless.core.effects import Append
from gapless.core.events import EventBatch
from gapless.core.ticks import Tick, instant_of
from gapless.version import __version__
from gapless.wire.events import decode_attributes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from opentelemetry.trace import Span, Tracer

    from gapless.client.delivered_events import DeliveredEvents
    from gapless.core.effects import Write
    from gapless.core.events import Event, Value
    from gapless.wire.framing import Bytes

    Place = tuple[str, int, Mapping[str, Any]]
    """An event to trace: its pubend, its tick, its attributes."""

TRACE_PARENT, TRACE_STATE = "traceparent", "tracestate"
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


def current_context() -> dict[str, Value]:
    """The attributes that carry the context of the current span; none where nobody traces."""
    context: dict[str, Value] = {}
    if find_tracer() is not None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        TraceContextTextMapPropagator().inject(context)
    return context


def with_context(
    events: Iterable[tuple[Mapping[str, Value], Any]],
) -> Iterable[tuple[Mapping[str, Value], Any]]:
    """The same events with the context of the current span, if somebody traces."""
    context = current_context()

    def merge(event: tuple[Mapping[str, Value], Any]) -> tuple[Mapping[str, Value], Any]:
        try:
            attributes, body = event
            return {**context, **attributes}, body
        except (TypeError, ValueError):
            return event  # the encoder says what is wrong with it

    return map(merge, events) if context else events


def continuing(headers: Mapping[str, str]) -> AbstractContextManager[object]:
    """Spans inside are children of what the headers of a request name, if they name a span."""
    if find_tracer() is None or TRACE_PARENT not in headers:
        return NO_SPAN
    return _attached({name: headers.get(name, "") for name in (TRACE_PARENT, TRACE_STATE)})


@contextmanager
def _attached(carrier: Mapping[str, str]) -> Iterator[None]:
    from opentelemetry import context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    before = context.attach(TraceContextTextMapPropagator().extract(carrier))
    try:
        yield
    finally:
        context.detach(before)


def trace_steps(operation: str, topic: str, places: Iterable[Place]) -> None:
    """Spans that end now: one for each pubend and trace context of these events."""
    tracer = find_tracer()
    if tracer is None:
        return
    from opentelemetry.trace import SpanKind
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    steps: dict[tuple[str, str, str], list[int]] = {}
    for pubend, tick, attributes in places:
        parent, state = attributes.get(TRACE_PARENT), attributes.get(TRACE_STATE)
        if isinstance(parent, str):
            shown = state if isinstance(state, str) else ""
            steps.setdefault((pubend, parent, shown), []).append(tick)
    now_ns = time.time_ns()
    for (pubend, parent, state), ticks in steps.items():
        more: dict[str, Any] = {"gapless.pubend": pubend, "gapless.tick": ticks[0]}
        if len(ticks) > 1:
            more["messaging.batch.message_count"] = len(ticks)
        carrier = {TRACE_PARENT: parent, TRACE_STATE: state}
        tracer.start_span(
            f"{operation} {topic}",
            TraceContextTextMapPropagator().extract(carrier),
            SpanKind.CONSUMER if operation == "deliver" else SpanKind.INTERNAL,
            {**about(topic, operation), **more},
            start_time=min(now_ns, instant_of(Tick(ticks[0])) * 1_000),
        ).end(now_ns)


def trace_commit(writes: Sequence[Write]) -> None:
    """Spans for the events of a write that is durable."""
    if find_tracer() is None:
        return
    for write in writes:
        if isinstance(write, Append) and write.stream.startswith(LOG) and carries(write.records):
            pubend = write.stream.removeprefix(LOG)
            found = decode_attributes(EventBatch(tuple(write.records)))
            places = zip(repeat(pubend), write.indices, found, strict=False)
            trace_steps("commit", pubend.rpartition("/")[0], places)


def trace_delivery(events: Iterable[Event]) -> None:
    """Spans for events that the application takes."""
    if find_tracer() is not None:
        for topic, some in groupby(events, lambda event: event.topic):
            places = ((event.pubend, event.tick, event.attributes) for event in some)
            trace_steps("deliver", topic, places)


def trace_columns(events: DeliveredEvents) -> None:
    """Spans for events that the application takes as columns."""
    if find_tracer() is not None and carries(events.encoded):
        trace_delivery(events)


def carries(encoded: Iterable[Bytes]) -> bool:
    """Whether an encoded event may carry a trace context: its name is among the bytes."""
    name = TRACE_PARENT.encode()
    return any(name in bytes(each) for each in encoded)


def start_batch(topic: str, subscription: str) -> Span | None:
    """A span for a micro-batch of Spark; the caller ends it."""
    tracer = find_tracer()
    more = {**about(topic, "batch"), "messaging.consumer.group.name": subscription}
    return tracer.start_span(f"batch {topic}", attributes=more) if tracer is not None else None
