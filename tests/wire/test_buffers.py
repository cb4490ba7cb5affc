"""Buffers that were freed are used again."""

from __future__ import annotations

import subprocess
import sys


def test_large_buffers_are_not_taken_from_the_system_each_time() -> None:
    """In a process of its own, for it stays so."""
    code = (
        "import resource\n"
        "from gapless.wire.buffers import keep_buffers\n"
        "keep_buffers()\n"
        "def faults():\n"
        "    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "    for _ in range(20):\n"
        "        some = [bytearray(b'x') * (2 << 20) for _ in range(4)]\n"
        "        del some\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before\n"
        "faults()\n"
        "print(faults())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert int(done.stdout) < 1_000  # or it is some 40,000
