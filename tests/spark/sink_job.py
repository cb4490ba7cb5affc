"""A job for tests of the streaming sink: files of numbers, a query, and what it has published."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tests.spark.hooked_sink import start_query

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.spark.conftest import Desk

FILE_ROWS = 20


class Job:
    """A query over files of ascending numbers, its checkpoint, and what it has published."""

    def __init__(self, desk: Desk, name: str, folder: Path) -> None:
        self.desk = desk
        self.topic = name
        self.folder = folder
        self.flag = folder / "flag"
        self.files = 0
        (folder / "files").mkdir()
        with desk.client() as client:
            client.create_topic(name)
            with client.subscribe(name, name=f"keep {name}"):
                pass

    def feed(self, files: int) -> None:
        for number in range(self.files, self.files + files):
            rows = range(number * FILE_ROWS, (number + 1) * FILE_ROWS)
            path = self.folder / "files" / f"{number:03}.txt"
            path.write_text("".join(f"{i}\n" for i in rows), encoding="utf-8")
            os.utime(path, (number, number))  # files are taken in the order of their times
        self.files += files

    def arguments(self, partitions: int, **hooks: str) -> tuple[Any, ...]:
        options = {"url": self.desk.url, "topic": self.topic, **hooks}
        return (str(self.folder / "files"), str(self.folder / "checkpoint"), partitions, options)

    def run(self, spark: SparkSession, partitions: int = 2, **hooks: str) -> None:
        """Until all files are published, or it fails."""
        query = start_query(spark, *self.arguments(partitions, **hooks))
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def published(self) -> list[int]:
        """By an independent read of the log."""
        with self.desk.client() as client:
            events = [event for batch in client.read(self.topic) for event in batch.events()]  # type: ignore[union-attr]
        assert all(event.body == str(event.attributes["i"]).encode() for event in events)
        return [int(event.attributes["i"]) for event in events]

    def rows(self) -> list[int]:
        """What should be published when all files are."""
        return list(range(self.files * FILE_ROWS))
