"""Faults of the registrars of names, which the simulator must find."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.effects import Persist
from gapless.node.directory.registry import Registry
from gapless.node.parts import Parts

if TYPE_CHECKING:
    from gapless.core.effects import Effect
    from gapless.core.name_messages import NameAnswer, NameEntry, NameQuestion


class NotesInMemory(Registry):
    """Says that a name is noted when it is not durable, nor ever will be."""

    def note(self, question: NameQuestion, entry: NameEntry | None) -> list[Effect]:
        return [
            Persist((), each.then, each.otherwise) if isinstance(each, Persist) else each
            for each in super().note(question, entry)
        ]


class GrantsWhatIsTaken(Registry):
    """Gives every name to whoever claims it."""

    def receive(self, question: NameQuestion) -> tuple[NameAnswer | None, list[Effect]]:
        if question.want == "claim":
            self.entries.pop(question.name, None)
        return super().receive(question)


PLANTED_NAMES: dict[str, Parts] = {
    "notes-in-memory": Parts(registry=NotesInMemory),
    "grants-what-is-taken": Parts(registry=GrantsWhatIsTaken),
}
