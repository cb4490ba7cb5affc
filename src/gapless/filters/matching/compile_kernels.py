"""Compile the matcher's kernels once for this machine. Run it as a module.

    python -m gapless.filters.matching.compile_kernels

About half a minute of CPU the first time, a second when there is nothing to do. Brokers and jobs
that start later load the compiled code instead of staying on the Python engine.
"""

from __future__ import annotations

import sys

from gapless import machine_code
from gapless.filters.matching import kernels


def main() -> None:
    if problem := machine_code.complaint():
        sys.exit(f"gapless: {problem}")
    if kernels.are_ready():
        print("The matcher's kernels are compiled already.")
        return
    print("Compiling the matcher's kernels; this takes about half a minute, once.", flush=True)
    kernels.prepare()
    print("Done.")


if __name__ == "__main__":
    main()
