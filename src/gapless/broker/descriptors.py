"""Descriptors: how many files a broker's process may have open, and how many are for links.

Every connection takes one, and so does every file of the log. If connections could take them all,
whoever opens enough would stop the disk. So a broker asks for as many as the system lets it have
without being asked twice, and keeps `KEPT` of them from its links.
"""

from __future__ import annotations

from contextlib import suppress

KEPT = 128
"""For what are no links: twice the files that a volume has open for reading."""


def open_files_max() -> int | None:
    """Of this process, now; None where there is no such limit, or nobody says."""
    try:
        import resource
    except ImportError:  # not POSIX
        return None
    found = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if found == resource.RLIM_INFINITY else found


def ask_for_more() -> None:
    """Up to what the system grants without further rights."""
    try:
        import resource
    except ImportError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # some systems say more than they grant
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def links_max(connections_max: int) -> int:
    """So many of the connections that are allowed may be open at once; half of few descriptors."""
    limit = open_files_max()
    if limit is None:
        return connections_max
    return min(connections_max, max(limit - KEPT, limit // 2))
