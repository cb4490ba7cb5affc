"""The files of `gapless subscribe`: the token, and the journal of what was seen.

Theory of operation
    What comes is written to the journal first. Now and then the journal is made durable, then the
    token replaces the one in its file, whole or not at all, and only then is it acknowledged: so
    nothing is released that the files do not have. Whoever is killed in between finds more in the
    journal than the token says; so the journal is read at the start, and what it has does not come
    again.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from gapless.core.errors import StorageError, UsageError
from gapless.core.token import Token

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def told(path: Path | str, what: str) -> Iterator[None]:
    """A disk that does not do as it is asked, in words."""
    try:
        yield
    except OSError as error:
        problem = f"cannot write {path}: {error.strerror}"
        raise StorageError(problem, f"Give a {what} that can be written.") from None


class DeliveryJournal:
    """JSON lines, appended. A torn last line, of a process that was killed, is cut off."""

    def __init__(self, path: Path) -> None:
        with told(path, "journal"):
            self._file = path.open("a+b")
        self._file.seek(0)
        kept = 0
        self.positions: dict[str, int] = {}
        """By pubend: the end of what it has."""
        for line in self._file:
            if not line.endswith(b"\n"):
                break
            kept += len(line)
            self._count(line)
        self._file.truncate(kept)

    def _count(self, line: bytes) -> None:
        try:
            found = json.loads(line)
            pubend, end = found["pubend"], found["gap"]["end"] if "gap" in found else found["tick"]
        except (ValueError, KeyError, TypeError):
            self.close()
            problem = f"{self._file.name} has a line that is no delivery: {line[:80]!r}"
            raise UsageError(
                problem, "Give the journal of a subscription, or a new file."
            ) from None
        self.positions[pubend] = end if "gap" in found else end + 1

    def write(self, line: str) -> None:
        with told(self._file.name, "journal"):
            self._file.write(line.encode() + b"\n")
            self._file.flush()

    def sync(self) -> None:
        with told(self._file.name, "journal"):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        with suppress(OSError):  # of a line that did not fit, and that was told
            self._file.close()


class TokenFile:
    """One token, replaced as it moves."""

    def __init__(self, path: Path) -> None:
        if not os.access(path.parent, os.W_OK):  # better told now than after the first event
            problem = f"cannot write {path}: its folder is not there, or not yours to write to"
            raise UsageError(problem, "Give a token file that can be written.")
        self._path = path
        self._kept: Token | None = None

    def read(self) -> Token | None:
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            problem = f"cannot read {self._path}: {error}"
            raise UsageError(problem, "Give a file with a token, or a new one.") from None
        try:
            self._kept = Token.from_json(text)
        except UsageError as error:
            problem = f"{self._path} has no token: {error.problem}"
            raise UsageError(problem, "Give a file with a token, or a new one.") from None
        return self._kept

    def write(self, token: Token) -> bool:
        """Whether it moved. The old one is there until the new one is durable."""
        if token == self._kept or not len(token):
            return False
        new = self._path.with_name(f"{self._path.name}.new")
        with told(self._path, "token file"):
            with new.open("w", encoding="utf-8") as file:
                file.write(token.to_json() + "\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, self._path)
        self._kept = token
        return True
