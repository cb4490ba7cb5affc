"""Session: a Spark session on this machine or a cluster, with the settings that our jobs want."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gapless.core.extras import missing_extra

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

CHECKPOINTS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)

QUICK = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.metricsEnabled": "false",
}
"""Settings for short jobs, which should start soon: demos and tests."""

UNCHECKED = {
    "ARROW_ENABLE_UNSAFE_MEMORY_ACCESS": "true",
    "ARROW_ENABLE_NULL_CHECK_FOR_GET": "false",
}
"""Settings of the virtual machines. Spark checks bounds and nulls before it asks Arrow for a value;
Arrow's own checks would make lists of numbers half as dear again."""


def make_session(master: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """`master` as Spark has it: local[*], spark://…, yarn, or sc://… for Spark Connect."""
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise missing_extra("pyspark", "this job") or error from None
    builder = SparkSession.builder.appName("gapless")
    if master.startswith("sc://"):
        return builder.remote(master).getOrCreate()
    given = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
        "spark.log.level": "WARN",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINTS,
        **{f"spark.executorEnv.{key}": value for key, value in UNCHECKED.items()},
    }
    if master.startswith("local"):
        # The workers are this Python, and nobody else needs to reach the driver.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        for key, value in UNCHECKED.items():
            os.environ.setdefault(key, value)
        given |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "1g",
        }
    builder = builder.master(master)
    for key, value in (given | dict(settings or {})).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def make_home(folder: Path) -> Path:
    """A SPARK_HOME of links to the installed pyspark, which Spark's Python workers need not unpack.

    In the package it is a zip file, which Python compiles anew in each process.
    """
    import pyspark

    installed = Path(pyspark.__file__).parent
    lib = folder / "python" / "lib"
    lib.mkdir(parents=True)
    for each in installed.iterdir():
        if each.name != "python":
            (folder / each.name).symlink_to(each)
    for each in (installed / "python" / "lib").iterdir():
        if each.name != "pyspark.zip":
            (lib / each.name).symlink_to(each)
    (lib / "pyspark.zip").mkdir()
    (lib / "pyspark.zip" / "pyspark").symlink_to(installed)
    return folder


def has_session() -> bool:
    """Is there one in this process?"""
    if "pyspark" not in sys.modules:
        return False
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None
