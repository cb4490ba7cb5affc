"""The log volume against a bare write + fdatasync loop, LMDB and SQLite, side by side.

Wall time is right here: waiting for the disk is what is measured. Disks are noisy, so the
contestants take turns in short rounds and a ratio is the median over rounds.
"""

from __future__ import annotations

import os
import sqlite3
import statistics
import struct
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from zlib import crc32

from benchmarks.report import Report, rate
from gapless.core.effects import Append, Chop
from gapless.storage.disk import SEGMENT_BYTES, DiskVolume
from gapless.storage.group import GroupCommit
from gapless.storage.segment import Sync

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.effects import Write

RECORD = os.urandom(418)
GROUPS = {1: 60, 64: 40, 256: 40, 1024: 20}
"""Group size, and how many commits of it make one round."""
KEPT = 20_000
TARGET = 0.6


class Contestant(Protocol):
    """Makes groups of records durable."""

    def commit(self, start: int, records: Sequence[bytes]) -> None: ...


class Bare:
    """What the disk gives: no index, no checksum, no chop."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / "bare", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)

    def commit(self, start: int, records: Sequence[bytes]) -> None:
        os.write(self._file, b"".join(records))
        os.fdatasync(self._file)


class Ours:
    """The disk volume; `chops`: as in steady state, where old segments are reused."""

    def __init__(self, folder: Path, *, chops: bool) -> None:
        self.volume = DiskVolume(folder / f"volume-{chops}")
        self._chops = chops
        self._chopped = 0

    def commit(self, start: int, records: Sequence[bytes]) -> None:
        indices = tuple(range(start, start + len(records)))
        append = Append("log", indices, tuple(records))
        writes: list[Write] = [append]
        if self._chops and start - self._chopped > 2 * KEPT:
            self._chopped = start - KEPT
            writes.append(Chop("log", self._chopped))
        self.volume.commit(writes)


class Lmdb:
    """The same records with checksums in LMDB, one transaction per group."""

    def __init__(self, folder: Path) -> None:
        import lmdb

        self.environment: Any = lmdb.open(str(folder / "lmdb"), map_size=1 << 36, max_dbs=1)
        self.log = self.environment.open_db(b"log")

    def commit(self, start: int, records: Sequence[bytes]) -> None:
        pairs = [
            (struct.pack(">Q", index), struct.pack("<I", crc32(record)) + record)
            for index, record in enumerate(records, start)
        ]
        with self.environment.begin(write=True, db=self.log) as transaction:
            transaction.cursor().putmulti(pairs, append=True)


class Sqlite:
    """The same in SQLite: write-ahead log, full sync."""

    def __init__(self, folder: Path) -> None:
        self.database = sqlite3.connect(folder / "sqlite", isolation_level=None)
        for pragma in ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL"):
            self.database.execute(f"PRAGMA {pragma}")
        self.database.execute("CREATE TABLE log (i INTEGER PRIMARY KEY, sum INT, record BLOB)")

    def commit(self, start: int, records: Sequence[bytes]) -> None:
        rows = [(index, crc32(record), record) for index, record in enumerate(records, start)]
        self.database.execute("BEGIN")
        self.database.executemany("INSERT INTO log VALUES (?, ?, ?)", rows)
        self.database.execute("COMMIT")


def appending(folder: Path, rounds: int) -> Report:
    report = Report(
        "storage-append",
        "Appending 418-byte records: share of a bare write + fdatasync loop (median over rounds)",
        ("group", "bare", "volume", "ratio", "chopped", "ratio", "LMDB", "SQLite"),
    )  # fmt: skip
    contestants: dict[str, Contestant] = {
        "bare": Bare(folder),
        "volume": Ours(folder, chops=False),
        "chopped": Ours(folder, chops=True),
        "LMDB": Lmdb(folder),
        "SQLite": Sqlite(folder),
    }
    start = 0
    worst = 9.0
    for group, commits in GROUPS.items():
        rates: dict[str, list[float]] = {name: [] for name in contestants}
        records = (RECORD,) * group
        for _ in range(rounds):
            for name, contestant in contestants.items():
                begin = time.perf_counter()
                for number in range(commits):
                    contestant.commit(start + number * group, records)
                rates[name].append(commits * group / (time.perf_counter() - begin))
            start += commits * group
        bare = rates["bare"]
        ratios = {
            name: statistics.median(a / b for a, b in zip(own, bare, strict=True))
            for name, own in rates.items()
        }
        worst = min(worst, ratios["volume"], ratios["chopped"])
        medians = {name: rate(statistics.median(own)) for name, own in rates.items()}
        report.add(
            group, medians["bare"],
            medians["volume"], f"{ratios['volume']:.2f}",
            medians["chopped"], f"{ratios['chopped']:.2f}",
            f"{ratios['LMDB']:.2f}", f"{ratios['SQLite']:.2f}",
        )  # fmt: skip
    report.notes.append(f"Target: {TARGET:.2f} at every size. Worst of ours: {worst:.2f}.")
    report.notes.append("chopped: a prefix is let go regularly, so old segments are reused.")
    report.notes.append("Above 1: the room is taken beforehand, so a sync waits for data only.")
    return report


def waiting(folder: Path, rounds: int) -> Report:
    report = Report(
        "storage-group",
        "Group commit: writers that each wait for their record to be durable",
        ("writers", "commits", "records per sync", "ratio to one writer", "sync, mean"),
    )
    volume = DiskVolume(folder / "group")
    group = GroupCommit(volume)
    alone = 0.0
    for writers in (1, 16, 64):
        each = max(20, 100 * rounds // writers)

        def work(writer: int, size: int = each, prefix: int = writers) -> None:
            stream = f"{prefix}/{writer}"
            for index in range(size):
                group.submit([Append(stream, (index,), (RECORD,))]).result()

        before = volume.statistics()
        begin = time.perf_counter()
        with ThreadPoolExecutor(writers) as pool:
            list(pool.map(work, range(writers)))
        per_second = writers * each / (time.perf_counter() - begin)
        after = volume.statistics()
        syncs = after.syncs - before.syncs
        alone = alone or per_second
        mean_us = (after.sync_us - before.sync_us) / syncs
        report.add(
            writers, rate(per_second), f"{writers * each / syncs:.1f}",
            f"{per_second / alone:.1f}", f"{mean_us:.0f} µs",
        )  # fmt: skip
    group.close()
    volume.close()
    return report


def reading(folder: Path, count: int) -> Report:
    report = Report(
        "storage-read",
        f"Reading back {count:,} records of 418 bytes, every one checked",
        ("what", "committed singly", "in groups of 256", "LMDB", "ratio to LMDB, groups"),
    )
    figures = [_reading(folder / f"read-{group}", count, group) for group in (1, 256)]
    peer = Lmdb(folder / "read-1")
    for start in range(0, count, 256):
        peer.commit(start, (RECORD,) * min(256, count - start))
    scan, point = _read_lmdb(peer, count)
    singly, grouped = figures
    for what, theirs in (("scan", scan), ("point read", point)):
        ratio = f"{grouped[what] / theirs:.2f}"
        report.add(what, rate(singly[what]), rate(grouped[what]), rate(theirs), ratio)
    lmdb_bytes = os.path.getsize(folder / "read-1" / "lmdb" / "data.mdb") / count
    for what, unit, other in (
        ("bytes per record", "", f"{lmdb_bytes:.0f}"),
        ("open after a crash", " ms", "-"),
        ("chop everything", " ms", "-"),
        ("bytes on disk after", "", "(keeps its size)"),
    ):
        report.add(what, *(f"{one[what]:.0f}{unit}" for one in figures), other, "")
    return report


def _reading(folder: Path, count: int, group: int) -> dict[str, float]:
    folder.mkdir()
    # Reading is what is measured: writing need not wait for the disk.
    volume = DiskVolume(folder / "volume", sync=Sync(file=lambda descriptor: None))
    for start in range(0, count, group):
        size = min(group, count - start)
        append = Append("log", tuple(range(start, start + size)), (RECORD,) * size)
        volume.commit([append])
    *full, last = sorted((folder / "volume").glob("*.log"))
    used = len(full) * SEGMENT_BYTES + len(last.read_bytes().rstrip(b"\0"))
    figures = {"bytes per record": used / count}
    begin = time.perf_counter()
    seen = start = 0
    while (batch := volume.scan("log", start, count)).indices:
        seen += len(batch.indices)
        start = batch.indices[-1] + 1
    assert seen == count
    figures["scan"] = count / (time.perf_counter() - begin)
    points = [index * 7919 % count for index in range(2000)]
    begin = time.perf_counter()
    for index in points:
        volume.read("log", index)
    figures["point read"] = len(points) / (time.perf_counter() - begin)
    volume.close()
    (folder / "volume" / "closed.json").unlink()
    begin = time.perf_counter()
    volume = DiskVolume(folder / "volume")
    figures["open after a crash"] = (time.perf_counter() - begin) * 1e3
    begin = time.perf_counter()
    volume.commit([Chop("log", count)])
    figures["chop everything"] = (time.perf_counter() - begin) * 1e3
    figures["bytes on disk after"] = volume.statistics().bytes_on_disk
    volume.close()
    return figures


def _read_lmdb(peer: Lmdb, count: int) -> tuple[float, float]:
    begin = time.perf_counter()
    with peer.environment.begin(db=peer.log) as transaction:
        for _, value in transaction.cursor():
            assert crc32(value[4:]) == int.from_bytes(value[:4], "little")
    scan = count / (time.perf_counter() - begin)
    points = [struct.pack(">Q", index * 7919 % count) for index in range(2000)]
    begin = time.perf_counter()
    for key in points:
        with peer.environment.begin(db=peer.log) as transaction:
            value = transaction.get(key)
            assert crc32(value[4:]) == int.from_bytes(value[:4], "little")
    return scan, len(points) / (time.perf_counter() - begin)


def run(quick: bool) -> list[Report]:
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as name:
        folder = Path(name)
        rounds = 3 if quick else 15
        return [
            appending(folder, rounds),
            waiting(folder, rounds),
            reading(folder, 20_000 if quick else 200_000),
        ]
