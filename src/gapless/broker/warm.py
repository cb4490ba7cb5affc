"""Warm: compile all that a broker may load, once for this machine. Run it as a module.

    python -m gapless.broker.warm

Some 45 s of CPU the first time, two when there is nothing to do. A broker that needs compiled code
and finds none runs this beside itself (`broker.reader`), and goes on without until it is done.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from numba import float64, int64, uint8

from gapless import machine_code
from gapless.filters.matching import kernels
from gapless.filters.matching.kernels import FIXED_BYTES, WORDS, EntryPoint
from gapless.wire import parse

if TYPE_CHECKING:
    from collections.abc import Iterator

PLACES = int64[:, ::1]
READING = (
    EntryPoint(parse.is_plain, (FIXED_BYTES, WORDS, int64, int64)),
    EntryPoint(
        parse.locate,
        (FIXED_BYTES, WORDS, FIXED_BYTES, WORDS, uint8[:, ::1], float64[:, ::1], PLACES, PLACES),
    ),
)
"""As `wire.attribute_rows` calls them."""


def missing() -> Iterator[EntryPoint]:
    """What is not compiled yet."""
    return (entry for entry in (*kernels.ENTRIES, *READING) if not entry.is_ready())


def main() -> None:
    if problem := machine_code.complaint():
        sys.exit(f"gapless: {problem}")
    lacking = list(missing())
    if lacking:
        print("Compiling what a broker needs; this takes less than a minute, once.", flush=True)
    for entry in lacking:
        entry.compile()
    print("All is compiled." if lacking else "All is compiled already.")


if __name__ == "__main__":
    main()
