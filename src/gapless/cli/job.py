"""What the jobs of `gapless pipeline` share: options, where to read, a session, where to write."""

from __future__ import annotations

import re
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gapless.cli.connection import check_unused, credentials
from gapless.cli.terminal import say, visible
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from gapless.core.token import Token
    from gapless.pipelines.replay import Replay
    from gapless.pipelines.topic_log import TopicLog

Topic = Annotated[str, typer.Argument(help="The topic.")]
LakeOption = Annotated[
    Path | None, typer.Option("--lake", metavar="FOLDER", help="The lake; without: the log alone.")
]
NoLog = Annotated[bool, typer.Option("--no-log", help="Ask no broker: the lake alone.")]
Start = Annotated[
    str, typer.Option("--from", metavar="TOKEN", help="Everything below was had before.")
]
End = Annotated[str, typer.Option("--to", metavar="TOKEN", help="Up to there; else up to now.")]
Master = Annotated[
    str, typer.Option(metavar="URL", help="Where Spark runs: local[*], spark://…, yarn, sc://….")
]
SkipLost = Annotated[
    bool, typer.Option("--skip-lost", help="Leave out what is lost, instead of an error.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
MASTER = "local[*]"
WORKER_ERROR = re.compile(r"gapless\.[a-z.]+\.(?P<kind>[A-Za-z]+Error): (?P<text>.+)")


def log_of(url: str, topic: str) -> TopicLog:
    from gapless.client.address import is_tls
    from gapless.pipelines.topic_log import TopicLog

    if is_tls(url):
        return TopicLog(url, topic, credentials.get())
    check_unused("gapless+tls:// in the address")
    return TopicLog(url, topic)


def replay_of(
    topic: str, condition: str, lake: Path | None, url: str, *, no_log: bool, skip_lost: bool
) -> Replay:
    from gapless.pipelines.lake import Lake
    from gapless.pipelines.replay import Replay

    if no_log and lake is None:
        raise UsageError("there is nothing to read", "Give --lake, or leave out --no-log.")
    if no_log and lake is not None and not Lake(lake, topic).folder.is_dir():
        problem = f"{lake} has nothing of the topic {topic!r}"
        raise UsageError(problem, "Check both; `gapless pipeline archive` makes a lake.")
    return Replay(
        None if lake is None else Lake(lake, topic),
        None if no_log else log_of(url, topic),
        condition,
        "skip" if skip_lost else "raise",
    )


def token_of(text: str) -> Token | None:
    from gapless.core.token import Token

    return Token.from_json(text) if text else None


@contextmanager
def session(master: str) -> Iterator[SparkSession]:
    """A session of our own, or the one that this process has, which goes on."""
    from gapless.pipelines.session import has_session, make_session

    is_ours = not has_session()
    spark = make_session(master)
    from pyspark.errors import PySparkException

    try:
        yield spark
    except PySparkException as error:
        raise told_by(error) from None
    finally:
        if is_ours:
            spark.stop()


def told_by(error: Exception) -> Exception:
    """What a worker failed of, if it is something that gapless says; else what Spark says."""
    from gapless.core import errors

    for line in reversed(str(error).splitlines()):
        if found := WORKER_ERROR.match(line.strip()):
            kind = getattr(errors, found["kind"], errors.GaplessError)
            problem, _, remedy = found["text"].partition(". ")
            return kind(problem, remedy)
    return error


@contextmanager
def progress_bar(log: TopicLog, done: Token) -> Iterator[Callable[[int], None]]:
    """On a terminal, a bar of the events that are ahead of a place in the log: call it with how
    many were done. Spark's jobs have a bar of Spark's own."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    from gapless.core.token import Token

    with log.connect() as client:
        ahead = {
            name: max(done.get(name), low) for name, (low, _) in client.positions(log.topic).items()
        }
        counts = client.count(log.topic, start=Token(ahead))
        total = sum(getattr(each, "count", 0) for each in counts)
    with Progress(console=Console(stderr=True), transient=True) as shown:
        bar = shown.add_task(escape(visible(log.topic)), total=total)
        yield lambda count: shown.advance(bar, count)


class Stopwatch:
    """How long a command takes, for its last line."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()

    def __str__(self) -> str:
        return f"{time.monotonic() - self._began_s:.1f} s"


def tell(text: str) -> None:
    """What goes on, beside the result."""
    say(text, err=True)


def new_folder(path: Path) -> str:
    """Where a job may write: what a killed one left there is written anew."""
    if path.exists() and (not path.is_dir() or (path / "_SUCCESS").exists()):
        raise UsageError(f"{path} is there already", "Give a new folder, or remove this one.")
    return str(path.absolute())
