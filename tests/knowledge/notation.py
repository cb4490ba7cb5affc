"""The notation of tests and scenarios: `[0,5) D2 D4` is all there is to know of ticks 0 to 4.

`D2` is an event at tick 2, `D2:red` one that says "red"; every other tick of the span is silence.
`lost<3` says that ticks below 3 are lost, `final<3` that nobody needs them, `asked` that this is
the answer to a nack, `more` that there is more to be asked for, `scattered` that nothing is said of
ticks without events.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gapless.core.broker_messages import Ack, AckExpected, Knowledge, Nack, Purpose
from gapless.core.events import EventBatch
from gapless.core.identity import BrokerName, CellName, PubendName
from gapless.core.outgoing import ToCell
from gapless.core.ticks import Span
from gapless.knowledge.neighbours import Edge, Outgoing
from gapless.knowledge.relay import Relay, RelayPlace
from gapless.knowledge.subend import Subend
from gapless.node.config import MILLISECOND, Config
from gapless.testing.lattice import StrictStream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.messages import Message
    from gapless.core.spans import SpanSet

PUBEND = PubendName("news/0")
BROKER = BrokerName("relay")
UPSTREAM, HERE = CellName("above"), CellName("here")
CONFIG = Config()


def event(tick: int) -> bytes:
    """What `D<tick>` stands for."""
    return f"e{tick}".encode()


def span(text: str) -> Span:
    start, end = re.fullmatch(r"\[(\d+),(\d+)\)", text).groups()  # type: ignore[union-attr]
    return Span(int(start), int(end))


def spans(text: str) -> list[Span]:
    return [span(each) for each in text.split()]


def knowledge(text: str, pubend: PubendName = PUBEND) -> Knowledge:
    """`[0,5) D2 D4:red final<1 lost<2 asked`."""
    where, *words = text.split()
    ticks, events, below = list[int](), list[bytes](), {"final": 0, "lost": 0}
    for word in words:
        if word.startswith("D"):
            tick, _, said = word[1:].partition(":")
            ticks.append(int(tick))
            events.append(said.encode() or event(int(tick)))
        elif "<" in word:
            what, _, tick = word.partition("<")
            below[what] = int(tick)
        else:
            assert word in ("asked", "more", "scattered", *PURPOSES), word
    return Knowledge(
        pubend,
        span(where),
        tuple(ticks),
        EventBatch.join(events),
        final_below=below["final"],
        lost_below=below["lost"],
        requested="asked" in words,
        more="more" in words,
        scattered="scattered" in words,
        purpose=next((PURPOSES[word] for word in words if word in PURPOSES), Purpose.DELIVERY),
    )


PURPOSES = {"catching-up": Purpose.CATCH_UP, "whole": Purpose.WHOLE}


def nack(text: str, pubend: PubendName = PUBEND) -> Nack:
    *where, last = text.split()
    if last in PURPOSES:
        return Nack(pubend, tuple(spans(" ".join(where))), purpose=PURPOSES[last])
    return Nack(pubend, tuple(spans(text)))


def ack(cell: str, delivered: int, released: int | None = None) -> Ack:
    return Ack(PUBEND, CellName(cell), delivered, delivered if released is None else released)


def show(message: Message) -> str:
    """The other way round, for knowledge, nacks and acknowledgements."""
    match message:
        case Knowledge():
            pairs = zip(message.ticks, message.events, strict=True)
            words = [f"D{t}" + (f":{e.decode()}" if e != event(t) else "") for t, e in pairs]
            words += [f"final<{message.final_below}"] if message.final_below else []
            words += [f"lost<{message.lost_below}"] if message.lost_below else []
            words += ["asked"] if message.requested else []
            words += ["more"] if message.more else []
            words += ["scattered"] if message.scattered else []
            words += [word for word, purpose in PURPOSES.items() if purpose == message.purpose]
            return " ".join([str(message.span), *words])
        case Nack():
            words = [word for word, purpose in PURPOSES.items() if purpose == message.purpose]
            return " ".join(["nack", *map(str, message.spans), *words])
        case Ack():
            return f"ack {message.delivered}"
        case AckExpected():
            return f"ack expected {message.tick}"
        case _:
            raise AssertionError(message)


def show_out(outgoing: list[Outgoing]) -> list[str]:
    """What a relay wants sent: `red: [0,5) D2`; with an asterisk where one broker is meant."""
    return [
        f"{out.cell}: {show(out.message)}"
        if isinstance(out, ToCell)
        else f"*{out.broker}: {show(out.message)}"
        for out in outgoing
    ]


class Colours(Edge):
    """A filter edge for tests: to cell `red` pass the events that say "red"; to `all`, all."""

    def select(
        self, pubend: PubendName, cell: CellName, digest: int, events: Sequence[bytes]
    ) -> list[int]:
        assert isinstance(events, list | tuple)
        return [i for i, each in enumerate(events) if cell == "all" or each == cell.encode()]


def ms(count: int) -> int:
    return count * MILLISECOND


def ticks_of(some: SpanSet) -> set[int]:
    return {tick for each in some for tick in range(each.start, each.end)}


def make_relay(*below: str, **limits: Any) -> Relay:
    """A relay with these cells below, behind `Colours`."""
    cells, config = tuple(map(CellName, below)), replace(CONFIG, **limits)
    relay = Relay(PUBEND, RelayPlace(BROKER, HERE, UPSTREAM, cells), config, Colours())
    relay.stream = StrictStream()
    return relay


def make_subend(start: int = 0, pubend: PubendName = PUBEND, **limits: Any) -> Subend:
    subend = Subend(pubend, start, replace(CONFIG, **limits))
    subend.stream = StrictStream(start)
    return subend
