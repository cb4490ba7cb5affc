"""The error tree. One `except GaplessError` catches all that gapless raises on purpose.

    GaplessError
    ├── UsageError        a call, an option or a file asks for what cannot be
    ├── FilterError       a condition was refused: says where, and what was expected
    ├── EventError        an event to publish was refused: says which attribute, and why
    ├── WireError         bytes from a peer are not a message; the link is dropped
    ├── ProtocolError     a message contradicts what we know; the link is dropped, nothing changes
    │   ├── AccessError   the peer has not proved that it may connect, or do this
    │   └── RequestError  a client's request failed inside the broker; its state is dropped whole
    └── StorageError      the disk did not do what was asked; nothing was acknowledged
        ├── StorageRefusedError  a write breaks a rule; nothing of its commit was written
        ├── StorageMissingError  no such record: never written, or chopped
        ├── StorageFullError     no room: nothing of the commit was written
        │   └── StorageFilesError    no room, because no further file may be open
        └── StorageCorruptError  a record that was once acknowledged does not read back
            └── StorageDamagedError  records of one stream do not; everything else does

Every error says what is wrong (`problem`) and what to do next (`remedy`); its text is both.
A broken invariant of our own is an `AssertionError`, never one of these: it stops the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Collection

CONTEXT_WIDTH = 72
"""How much of a long condition is shown around the place of an error."""

QUOTE_WIDTH = 80
"""How many characters of a peer's text an error quotes."""


def quoted(text: str | None) -> str:
    """A peer's text as an error quotes it: printable, and at most one line."""
    shown = repr(text and text[: QUOTE_WIDTH + 1])
    if len(shown) <= QUOTE_WIDTH:
        return shown
    return f"{shown[: QUOTE_WIDTH - 2]}…{shown[0]}"


def listed(names: Collection[str], shown_max: int = 8) -> str:
    """Names for an error: the first of them, and how many more there are."""
    shown = ", ".join(quoted(each)[1:-1] for each in list(names)[:shown_max])
    more = len(names) - shown_max
    return f"{shown} and {more} more" if more > 0 else shown


class GaplessError(Exception):
    """Base of all errors raised on purpose: what is wrong, and what to do next."""

    default_remedy: ClassVar[str] = "See the message above; nothing was changed."

    def __init__(self, problem: str, remedy: str = "") -> None:
        # Both go to `args`, so that an error survives pickling between processes.
        super().__init__(problem, remedy or self.default_remedy)

    @property
    def problem(self) -> str:
        return str(self.args[0])

    @property
    def remedy(self) -> str:
        return str(self.args[1])

    def __str__(self) -> str:
        return f"{self.problem}. {self.remedy}"


class UsageError(GaplessError, ValueError):
    """A call, an option or a configuration file asks for what cannot be."""

    default_remedy = "Correct it and try again; nothing was changed."


class FilterError(GaplessError, ValueError):
    """A condition was refused. Shows the text with a caret under the place."""

    default_remedy = "Correct the condition; docs/reference/filter-language.md has the grammar."

    def __init__(self, problem: str, remedy: str = "", text: str = "", position: int = 0) -> None:
        super().__init__(problem, remedy)
        self.args = (problem, remedy or self.default_remedy, text, position)

    @property
    def text(self) -> str:
        return str(self.args[2])

    @property
    def position(self) -> int:
        """Where in `text`, counted in characters from 0."""
        return int(self.args[3])

    def __str__(self) -> str:
        if not self.text:
            return super().__str__()
        return f"{self.problem}, at character {self.position + 1}. {self.remedy}\n{self.caret()}"

    def caret(self) -> str:
        """Two lines: the part of the condition around the place, and a caret under it."""
        low = max(0, min(self.position - CONTEXT_WIDTH // 2, len(self.text) - CONTEXT_WIDTH))
        high = min(len(self.text), low + CONTEXT_WIDTH)
        before = "…" if low else ""
        after = "…" if high < len(self.text) else ""
        # One cell per character, so that the caret stands under the right one.
        shown = "".join(c if c.isprintable() else "·" for c in self.text[low:high])
        return f"  {before}{shown}{after}\n  {' ' * (len(before) + self.position - low)}^"


class EventError(GaplessError, ValueError):
    """An event that an application wants to publish cannot be encoded. Nothing was sent."""

    default_remedy = "Correct the event; docs/reference/wire-format.md has the limits."


class WireError(GaplessError):
    """Bytes from a peer are not a message."""

    default_remedy = "The link is dropped. Check that both ends speak gapless and their versions."


class ProtocolError(GaplessError):
    """A well-formed message contradicts what the receiver knows. Its state is untouched."""

    default_remedy = "The link is dropped and set up anew; if it repeats, report it with the trace."


class AccessError(ProtocolError):
    """Who is at the other end did not prove that it may be here. It learns nothing else."""

    default_remedy = "Give a valid token, or a certificate of the broker's authority."


class RequestError(ProtocolError):
    """A client's request failed inside the broker: a fault of ours. What the client had here is
    dropped, everybody else's is as it was. Its cause says where."""

    default_remedy = "Connect again; if it repeats, report it with the broker's log."


class StorageError(GaplessError):
    """The disk did not do what was asked. Nothing of the failed commit is acknowledged."""

    default_remedy = "Check the disk and the permissions of the data folder, then open it again."


class StorageRefusedError(StorageError, ValueError):
    """A write breaks a rule of the volume: nothing of its commit was written, all is as before."""

    default_remedy = "Correct the write; the volume is fine and takes other commits."


class StorageMissingError(StorageError, KeyError):
    """There is no such record: it was never written, or it was chopped."""

    default_remedy = "Ask `bounds` which indices are kept, and `scan` which of them exist."


class StorageFullError(StorageError):
    """No room is left: nothing of the commit was written, all before it is intact."""

    default_remedy = "Free space on the disk or raise the volume's limit; then commit again."


class StorageFilesError(StorageFullError):
    """The process may have no more files open: nothing of the commit was written."""

    default_remedy = (
        "Raise the limit on open files (`ulimit -n`) of its process, or have fewer connections."
    )


class StorageCorruptError(StorageError):
    """A record that was once acknowledged does not read back as it was written."""

    default_remedy = "Restore the data folder from a copy; this disk should not be trusted."


class StorageDamagedError(StorageCorruptError):
    """Records of one stream do not read back: all that it has from `start` up to, but without,
    `end`. Everything else does. They stand, or stood, at byte `offset` of `file`."""

    default_remedy = (
        "Read on behind it; `gapless check` names all that is damaged in a data folder."
    )

    def __init__(
        self,
        problem: str,
        remedy: str = "",
        stream: str = "",
        start: int = 0,
        end: int = 0,
        place: tuple[str, int] = ("", 0),
    ) -> None:
        super().__init__(problem, remedy)
        self.args = (problem, remedy or self.default_remedy, stream, start, end, place)

    @property
    def stream(self) -> str:
        return str(self.args[2])

    @property
    def start(self) -> int:
        return int(self.args[3])

    @property
    def end(self) -> int:
        return int(self.args[4])

    @property
    def file(self) -> str:
        return str(self.args[5][0])

    @property
    def offset(self) -> int:
        return int(self.args[5][1])
