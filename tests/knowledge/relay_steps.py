"""What a test does with a relay, in the notation; its invariants are checked after each step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.identity import CellName, Instant
from tests.knowledge.notation import CONFIG, ack, knowledge, nack, show_out

if TYPE_CHECKING:
    from gapless.knowledge.relay import Relay


def tell(machine: Relay, text: str, now: int = 0) -> list[str]:
    out = machine.receive_knowledge(knowledge(text), Instant(now))
    machine.check()
    return show_out(out)


def ask(machine: Relay, cell: str | None, text: str, now: int = 0, asker: str = "") -> list[str]:
    name = CellName(cell) if cell else None
    out = machine.receive_nack(asker or f"{cell}1", name, nack(text), Instant(now))
    machine.check()
    return show_out(out)


def acked(machine: Relay, cell: str, delivered: int, now: int = 0) -> list[str]:
    """Take an acknowledgement in; what the relay sends once it has gathered them."""
    machine.receive_ack(ack(cell, delivered), Instant(now))
    machine.check()
    return show_out(machine.fire(Instant(now + CONFIG.ack_delay)))
