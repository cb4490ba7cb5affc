"""The trace: what happened, one readable line a step, and a running hash of all of it.

Theory of operation
    `12.345678 s1 <- m2 knowledge t/0 [100,220) D110 D150`: seconds since the start, who, from whom,
    what. Ticks are shown as microseconds since the start; `.1` after it is the rest of the tick
    (pubend number, or the end of a span just behind an event). Two runs took the same course
    exactly if their hashes are equal: that is how determinism is tested.

Cost: a line is made for every step, also when nobody reads it; about 5 microseconds.
"""

from __future__ import annotations

import hashlib
from collections import deque
from typing import TYPE_CHECKING, Any

from gapless.core import broker_messages as between
from gapless.core import client_messages as client
from gapless.core.events import EventBatch
from gapless.core.messages import Message, Ping, Pong
from gapless.core.ticks import PUBEND_BITS, PUBEND_COUNT_MAX, Span
from gapless.testing.clock import START

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gapless.core.identity import Instant

KEPT_LINES_MAX = 60
"""How many of the last lines a failure shows."""


class Trace:
    """Lines in, a hash out; the last lines are kept, all go to `out` if there is one."""

    def __init__(self, out: Callable[[str], object] | None = None) -> None:
        self._out = out
        self._hash = hashlib.blake2b(digest_size=8)
        self.last: deque[str] = deque(maxlen=KEPT_LINES_MAX)
        self.count = 0

    def line(self, now: Instant, text: str) -> None:
        seconds, rest = divmod(now - START, 1_000_000)
        text = f"{seconds}.{rest:06} {text}"
        self.last.append(text)
        self._hash.update(text.encode())
        self.count += 1
        if self._out is not None:
            self._out(text)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


def show_tick(tick: int) -> str:
    """Microseconds since the start; `.n` for the low bits, when there are any."""
    rest = tick & (PUBEND_COUNT_MAX - 1)
    micros = (tick >> PUBEND_BITS) - START
    if micros < -START // 2:
        return str(tick)  # small hand-made ticks, and 0
    return f"{micros}.{rest}" if rest else str(micros)


def show_span(span: Span) -> str:
    return f"[{show_tick(span.start)},{show_tick(span.end)})"


def _data(ticks: Iterable[int]) -> str:
    return "".join(f" D{show_tick(tick)}" for tick in ticks)


def _knowledge(message: between.Knowledge) -> str:
    final = f" final<{show_tick(message.final_below)}" if message.final_below else ""
    lost = f" lost<{show_tick(message.lost_below)}" if message.lost_below else ""
    asked = (
        " requested" * message.requested + " more" * message.more + " scattered" * message.scattered
    )
    asked += f" {message.purpose.name.lower()}" if message.purpose else ""
    return f"{message.pubend} {show_span(message.span)}{_data(message.ticks)}{final}{lost}{asked}"


def _ack(message: between.Ack) -> str:
    released = f" released<{show_tick(message.released)}" if message.released else ""
    return f"{message.pubend} {message.cell} delivered<{show_tick(message.delivered)}{released}"


def _deliveries(message: client.Deliveries) -> str:
    taken = "".join(
        f" D{show_tick(tick)}:{','.join(map(str, takers))}"
        for tick, takers in zip(message.ticks, message.takers, strict=True)
    )
    only = "" if message.only is None else f" only #{message.only}"
    return f"{message.pubend or message.topic}{only} through {show_tick(message.through)}{taken}"


def _subscribed(message: client.Subscribed) -> str:
    behind = f" behind at {' '.join(message.behind)}" if message.behind else ""
    return f"#{message.subscription} from {_token(message.start)}{behind}"


def _subscribe(message: client.Subscribe) -> str:
    plain = f"{message.topic} #{message.subscription} {message.order} {message.condition or 'all'}"
    if message.name is None:
        return plain
    start = " earliest" * message.earliest
    if message.token is not None:
        start = f" from {_token(message.token)}"
    elif message.instant is not None:
        start = f" from {message.instant - START}"
    return f"{plain} as {message.name}{start}"


def _token(token: dict[str, int]) -> str:
    return " ".join(f"{name}:{show_tick(tick)}" for name, tick in sorted(token.items()))


def _nack(message: between.Nack) -> str:
    purpose = f" {message.purpose.name.lower()}" if message.purpose else ""
    return f"{message.pubend} {' '.join(map(show_span, message.spans))}{purpose}"


def _publish(message: client.Publish) -> str:
    who = f" {message.publisher}:{message.sequence}" if message.publisher else ""
    return f"{message.topic} request {message.request}{who} {len(message.events)} events"


_SHOWN: dict[type[Message], Callable[[Any], str]] = {
    between.Knowledge: _knowledge,
    between.Ack: _ack,
    between.Nack: _nack,
    between.AckExpected: lambda m: f"{m.pubend} <{show_tick(m.tick)}",
    between.StartQuery: lambda m: f"{m.pubend} {m.cell} {m.number}",
    between.StartReply: lambda m: f"{m.pubend} {m.cell} {m.number} {show_tick(m.tick)}",
    between.Sideways: lambda m: f"to {m.cell}: {show(m.message)}",
    client.Publish: _publish,
    client.Receipt: lambda m: f"{m.request} {m.pubend}{_data(m.ticks)}",
    client.Deliveries: _deliveries,
    client.Subscribed: _subscribed,
    client.Subscribe: _subscribe,
    client.Acknowledge: lambda m: (
        f"#{m.name or m.subscription} {_token(m.token)} request {m.request}"
    ),
    client.Lost: lambda m: f"{m.pubend} {show_span(m.span)} {m.subscriptions}",
    client.Consumed: lambda m: str(m.count),
    Ping: lambda m: str(m.number),
    Pong: lambda m: str(m.number),
}


def show(message: Message) -> str:
    """One line about a message, as traces have it."""
    kind = type(message).__name__.lower()
    shown = _SHOWN.get(type(message))
    if shown is not None:
        return f"{kind} {shown(message)}"
    return " ".join([kind, *(_field(message, name) for name in message.__struct_fields__)])


def _field(message: Message, name: str) -> str:
    value = getattr(message, name)
    return f"{name}={len(value)} events" if isinstance(value, EventBatch) else f"{name}={value}"
