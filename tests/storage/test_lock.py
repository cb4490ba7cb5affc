"""One process at a time has a volume open, whatever happens to the files in its folder."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from gapless.core.effects import Append
from gapless.core.errors import StorageError
from gapless.storage.disk import DiskVolume
from tests.children import child, rest, told
from tests.storage.labs import small

if TYPE_CHECKING:
    from pathlib import Path

HOLDER = """
import os, sys
from gapless.core.effects import Append
from gapless.storage.disk import DiskVolume

volume = DiskVolume(sys.argv[1])
volume.commit([Append("a", (1,), (b"first",))])
print(os.getpid(), flush=True)
sys.stdin.readline()
volume.commit([Append("a", (2,), (b"second",))])
volume.close()
print("closed", flush=True)
"""


@pytest.mark.parametrize("removed", [(), ("lock",)], ids=["all there", "no lock file"])
def test_a_second_process_is_refused_though_the_lock_file_was_removed(
    tmp_path: Path, removed: tuple[str, ...]
) -> None:
    """Both would write the same segment, and give receipts for what the other overwrites."""
    with child([sys.executable, "-c", HOLDER, str(tmp_path)], stdin=-1) as holder:
        number = told(holder).strip()
        for name in removed:
            (tmp_path / name).unlink()
        for _ in range(2):  # being refused changes nothing
            with pytest.raises(StorageError, match="is open in process") as refused:
                DiskVolume(tmp_path)
        assert removed or f"process {number}" in str(refused.value)
        assert holder.stdin is not None
        holder.stdin.write("\n")
        holder.stdin.flush()
        assert rest(holder) == "closed\n"
    volume = small(tmp_path)
    assert volume.scan("a", 0, 10).records == [b"first", b"second"]
    volume.close()


def test_a_killed_holder_locks_nobody_out(tmp_path: Path) -> None:
    with child([sys.executable, "-c", HOLDER, str(tmp_path)], stdin=-1) as holder:
        told(holder)
        holder.kill()
        holder.wait()
    volume = small(tmp_path)
    volume.commit([Append("a", (2,), (b"other",))])
    volume.close()
