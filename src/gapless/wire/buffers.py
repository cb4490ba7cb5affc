"""Buffers: the process keeps the memory of freed messages and pieces of logs.

Such a buffer has a megabyte or more and lives for a moment. glibc may give each back to the system
and get the next one page by page, each cleared first; that depends on what else is in memory. It
took half of the time of a range read.
"""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc's

KEPT_BYTES_MAX = 64 << 20
"""Freed memory at the end of the heap; beyond it all of that is given back."""

BUFFER_BYTES_MAX = 32 << 20
"""A larger buffer is given back by itself. glibc allows no more than this."""


def keep_buffers() -> None:
    """Keep freed memory from now on. Fine to repeat; without glibc it does nothing."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, BUFFER_BYTES_MAX)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES_MAX)
