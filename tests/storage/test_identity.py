"""A folder is told from copies of it, whatever else happens to it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from gapless.storage.identity import renew_seal

if TYPE_CHECKING:
    from pathlib import Path


def test_a_folder_had_the_seal_that_was_written_down(tmp_path: Path) -> None:
    first, had = renew_seal(tmp_path, None)
    assert had == ()
    second, had = renew_seal(tmp_path, first)
    assert first in had
    assert second != first
    third, had = renew_seal(tmp_path, first)  # a crash came before the second was written down
    assert first in had
    assert third not in (first, second)


def test_a_copy_never_had_it(tmp_path: Path) -> None:
    folder, copy = tmp_path / "data", tmp_path / "copy"
    folder.mkdir()
    written, _ = renew_seal(folder, None)
    shutil.copytree(folder, copy)
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)
    assert written not in renew_seal(folder, written)[1]


def test_a_folder_that_is_moved_or_given_to_another_owner_is_the_same(tmp_path: Path) -> None:
    folder, moved = tmp_path / "data", tmp_path / "moved"
    folder.mkdir()
    written, _ = renew_seal(folder, None)
    (folder / "seal.next").chmod(0o640)
    folder.rename(moved)
    assert written in renew_seal(moved, written)[1]


def test_without_its_seal_a_folder_counts_as_a_copy(tmp_path: Path) -> None:
    written, _ = renew_seal(tmp_path, None)
    (tmp_path / "seal.next").unlink()
    assert written not in renew_seal(tmp_path, written)[1]
