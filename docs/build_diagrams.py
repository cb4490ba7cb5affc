"""Draws the generated parts of pages: `python -m docs.build_diagrams`.

Between `<!-- generated: name -->` and `<!-- end -->` a page holds what the function of that name
returns. Nothing is drawn by hand: the lattice comes from its table, the lives of a gap and of a
publication are recorded from the machines themselves, messages and limits are read from their
definitions. A test fails if a page is stale.
"""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import msgspec

from gapless.broker import settings as settings_module
from gapless.broker.settings import Settings
from gapless.cli.configuration import PLACES
from gapless.core.broker_messages import Knowledge, Routed, Sideways
from gapless.core.client_messages import Publish
from gapless.core.effects import Chop, Persist, Tell
from gapless.core.events import EventBatch
from gapless.core.identity import ClientName, Instant, PubendName, TopicName
from gapless.core.ticks import Span
from gapless.knowledge.pubend import Persisted, Pubend
from gapless.knowledge.subend import Subend
from gapless.node import config as config_module
from gapless.node.config import MILLISECOND, SECOND, Config
from gapless.node.subscriptions.record import TRANSITIONS
from gapless.testing.lattice import ABOVE, Belief
from gapless.testing.memory_volume import MemoryVolume

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import ModuleType

    from gapless.core.broker_messages import Nack
    from gapless.core.effects import Effect

DOCS = Path(__file__).parent
NAME = PubendName("news/0")
CONFIG = Config()

Steps = list[tuple[str, str, str]]
"""Recorded transitions: state before, what happened, state after."""


def mermaid(kind: str, lines: list[str]) -> str:
    return "\n".join(["```mermaid", kind, *(f"    {line}" for line in lines), "```"])


def drawn(steps: Steps) -> str:
    """Each recorded transition once, in the order of its first occurrence."""
    lines = [f"{before} --> {after}: {label}" for before, label, after in steps]
    return mermaid("stateDiagram-v2", list(dict.fromkeys(lines)))


def beliefs() -> str:
    """The lattice, from its table."""
    boxes = [f'{each.name}["{each.name} ({each.value})"]' for each in Belief]
    arrows = [f"{low.name} --> {high.name}" for low, above in ABOVE.items() for high in above]
    return mermaid("graph BT", boxes + arrows)


# --- a gap, recorded from a subend ---------------------------------------------------------------


class Gap:
    """A subend that is led through all that may become of a gap."""

    def __init__(self) -> None:
        self.subend = Subend(NAME, 0, CONFIG)
        self.asked = False
        self.steps: Steps = []

    @property
    def state(self) -> str:
        if self.subend.horizon == self.subend.seen:
            self.asked = False
            return "NoGap"
        return "Asked" if self.asked else "Patient"

    def step(self, label: str, act: Callable[[], list[Nack]]) -> None:
        before = self.state
        nacks = act()
        self.asked = self.asked or bool(nacks)
        self.steps.append((before, label + (", nack" if nacks else ""), self.state))

    def learn(self, label: str, start: int, end: int, *, lost_below: int = 0) -> None:
        said = Knowledge(NAME, Span(start, end), lost_below=lost_below)
        self.step(label, lambda: self.subend.receive_knowledge(said, Instant(0)))

    def wake(self, label: str) -> None:
        due = self.subend.deadline
        assert due is not None
        self.step(label, lambda: self.subend.fire(due))


def gap() -> str:
    life = Gap()
    life.learn("the next ticks come", 0, 5)
    life.learn("later ticks come first", 8, 10)
    life.learn("the missing ones come", 5, 8)
    life.learn("later ticks come first", 20, 21)
    life.wake("gap_patience is over")
    life.wake("nack_repeat is over, doubled each time")
    life.learn("part of the answer comes", 10, 15)
    life.learn("the rest comes", 15, 20)
    life.step("AckExpected beyond the horizon", lambda: life.subend.expect(30, Instant(0)))
    life.learn("the pubend says it is lost", 21, 30, lost_below=30)
    return drawn([("[*]", "start", "NoGap"), *life.steps])


# --- a publication, recorded from a pubend --------------------------------------------------------


class Publication:
    """A pubend with a disk, led through all that may become of a publication."""

    def __init__(self) -> None:
        self.volume = MemoryVolume()
        self.steps: Steps = []
        self.answers: dict[int, str] = {}
        self.disk: list[Persist] = []
        self.pubend = Pubend(NAME, 0, self.volume, CONFIG, Instant(0))

    def state(self, request: int) -> str:
        pubend = self.pubend
        if request in self.answers:
            written = self.answers[request] == "Receipt"
            if not written:
                return "Refused"
            if pubend.release.next_chop_end < pubend.newest:
                return "Durable"
            return "Released" if pubend.released >= pubend.newest else "Chopping"
        if any(each.message.request == request for each in pubend.batch.requests):
            return "Writing"
        waits = any(each.message.request == request for each in pubend.pending_requests)
        return "Waiting" if waits else "[*]"

    def step(self, request: int, label: str, act: Callable[[], list[Effect]]) -> None:
        before = self.state(request)
        self._do(act())
        self.steps.append((before, label, self.state(request)))

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Persist):
                self.disk.append(effect)
            elif not isinstance(effect, Tell):
                request: int = effect.message.request  # type: ignore[attr-defined]
                self.answers[request] = type(effect.message).__name__

    def publish(self, request: int) -> list[Effect]:
        message = Publish(TopicName("news"), request, EventBatch.join([b"x"]))
        return self.pubend.publish(ClientName("client"), message, Instant(0))

    def written(self, *, full: bool = False) -> list[Effect]:
        persist = self.disk.pop(0)
        follow = persist.otherwise if full else persist.then
        if not full:
            self.volume.commit(persist.writes)
        *receipts, tell = follow
        assert isinstance(tell, Tell)
        assert isinstance(tell.message, Persisted)
        return [*receipts, *self.pubend.persisted(tell.message, Instant(0))[0]]

    def released(self) -> list[Effect]:
        self.pubend.acknowledge(self.pubend.end, Instant(0))
        return self.pubend.fire(Instant(CONFIG.release_delay))[0]


def publication() -> str:
    life = Publication()
    life.step(1, "published, the disk is free", lambda: life.publish(1))
    life.step(2, "published during a write", lambda: life.publish(2))
    life.step(2, "the write before it ends", life.written)
    life.step(2, "on disk, receipt and knowledge leave", life.written)
    life.step(3, "published, the disk is free", lambda: life.publish(3))
    life.step(4, "published during a write", lambda: life.publish(4))
    before = life.state(4)
    life.step(3, "no room on the disk", lambda: life.written(full=True))
    life.steps.append((before, "no room on the disk", life.state(4)))
    life.step(2, "acknowledged by everybody, and release_delay is over", life.released)
    chop = next(each for each in life.disk if isinstance(each.writes[0], Chop))
    life.disk = [chop]
    life.step(2, "the log is chopped, durably", life.written)
    assert {after for _, _, after in life.steps} >= {"Durable", "Refused", "Released"}
    return drawn(life.steps)


# --- messages and limits -------------------------------------------------------------------------


def messages() -> str:
    """What brokers tell each other, from the definitions."""
    lines = ["| message | fields | meaning |", "|---|---|---|"]
    for kind in (*get_args(Routed), Sideways):
        assert issubclass(kind, msgspec.Struct)
        parts = ", ".join(f"`{each}`" for each in kind.__struct_fields__)
        meaning = inspect.getdoc(kind) or ""
        lines.append(f"| `{kind.__name__}` | {parts} | {' '.join(meaning.split())} |")
    return "\n".join(lines)


COUNTS = (
    "catch_up_window", "failures_tolerated", "multicast_leaf_set_size", "principal_share_percent",
    "virtual_time_step",
)  # fmt: skip
TIMES = ("clock_skew_max", "delivery_pause_max")
"""Settings whose names do not say whether they are a number or a time."""


def show_default(name: str, value: object) -> str:
    if not isinstance(value, int | float):
        return "" if value is None else f"`{value}`"
    if isinstance(value, bool):
        return "true" if value else "false"
    if name.endswith("_s"):
        return f"{value:g}"
    if name in COUNTS or (name.endswith(("_max", "_high")) and name not in TIMES):
        return f"{value:,}"
    for unit, size in (("s", SECOND), ("ms", MILLISECOND)):
        if value >= size:
            return f"{value:,} ({value / size:g} {unit})"
    return f"{value:,} (µs)"


def rows_of(module: ModuleType, made: Config | Settings) -> dict[str, str]:
    """By name: every field of the module's one class with its default and its docstring."""
    tree = ast.parse(inspect.getsource(module))
    [body] = [node.body for node in tree.body if isinstance(node, ast.ClassDef)]
    rows: dict[str, str] = {}
    for node, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign):
            name, said = ast.unparse(node.target), "as above"
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                said = " ".join(str(following.value.value).split())
            rows[name] = f"| `{name}` | {show_default(name, getattr(made, name))} | {said} |"
    return rows


def table(rows: Iterable[str]) -> str:
    return "\n".join(["| name | default | meaning |", "|---|---|---|", *rows])


BASIC = {each.name for each in (*fields(Settings), *fields(Config)) if each.metadata}
OF_NODE = rows_of(config_module, CONFIG)
OF_PROCESS = rows_of(settings_module, Settings(data=Path("gapless-data")))


def basic() -> str:
    """The settings that most operators need."""
    rows = OF_NODE | OF_PROCESS
    return table(rows[each.name] for each in (*fields(Settings), *fields(Config)) if each.metadata)


def limits() -> str:
    """All other limits and timers with what happens there, from the configuration."""
    return table(row for name, row in OF_NODE.items() if name not in BASIC)


def process_limits() -> str:
    """Those of sockets and the process; one has its namesake's value."""
    but = {*BASIC, *PLACES, "client_queue_bytes_max"}
    return table(row for name, row in OF_PROCESS.items() if name not in but)


def named_subscription() -> str:
    """The life of a named subscription at one broker, from its table."""
    steps = [
        (phase.value, happening.value, after.value)
        for phase, row in TRANSITIONS.items()
        for happening, after in row.items()
        if after is not phase
    ]
    return drawn(steps)


PAGES = {
    DOCS / "protocols" / "exactly-once.md": (beliefs, gap, publication, messages),
    DOCS / "protocols" / "durable-subscriptions.md": (named_subscription,),
    DOCS / "reference" / "configuration.md": (basic, limits, process_limits),
}
PARTS = {part.__name__: part for parts in PAGES.values() for part in parts}


def build(text: str) -> str:
    """The page with all generated parts drawn anew."""
    return re.sub(
        r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)",
        lambda found: f"{found[1]}{PARTS[found[2]]()}\n{found[3]}",
        text,
        flags=re.DOTALL,
    )


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(build(page.read_text(encoding="utf-8")), encoding="utf-8")
