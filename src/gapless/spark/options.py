"""Options: what a user of the source may say, checked before any broker is asked.

Theory of operation
    Spark hands options over as texts under lower-case names. Each has one line in `KNOWN`, with the
    name as the documentation spells it and where it makes sense. Whatever is unknown, out of place
    or in contradiction with another is refused by name: an option that is misspelt and ignored is
    how data gets lost in silence. Names are those of Spark's Kafka source where meanings agree.

Invariants
    I1  every option that was given is used, or refused
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, get_args

from gapless.core.errors import UsageError
from gapless.core.token import Token
from gapless.filters.filter import Filter

if TYPE_CHECKING:
    from collections.abc import Mapping

Place = Token | int | Literal["earliest", "latest"]
"""Where to begin or end: a token, a time in microseconds, or by name."""

Gaps = Literal["fail", "skip", "rows"]
AttributesAs = Literal["json", "map", "typed", "columns"]
Mode = Literal["PERMISSIVE", "FAILFAST"]

BOTH, STREAM, BATCH = "both", "streaming", "batch"
KNOWN: dict[str, tuple[str, str]] = {
    name.lower(): (name, where)
    for where, names in {
        BOTH: "url topic topicPattern filter startingOffsets startingTimestamp failOnDataLoss gaps "
        "minPartitions mode columns columnNameOfCorruptRecord patienceSeconds "
        "attributesAs inferSchema rename token ca certificate key",
        STREAM: "subscription maxEventsPerTrigger maxOffsetsPerTrigger longPollMs idleSeconds "
        "keepLastBatch",
        BATCH: "endingOffsets endingTimestamp pubends",
    }.items()
    for name in names.split()
}
CREDENTIALS = ("token", "ca", "certificate", "key")

ONE_OF = (
    ("topic", "topicPattern"),
    ("startingOffsets", "startingTimestamp"),
    ("endingOffsets", "endingTimestamp"),
    ("maxEventsPerTrigger", "maxOffsetsPerTrigger"),
)

LONG_POLL_MS, LONG_POLL_MS_MAX = 200, 10_000
IDLE_S = 60
"""A stream in which nothing matches moves its offset this often, so that brokers can let go of what
lies behind it."""

PATIENCE_S = 60.0
"""How long a broker may be away before a read fails."""

PARTITIONS_MAX = 10_000


@dataclass(frozen=True, kw_only=True)
class ShapeOptions:
    """What decides which columns there are: Spark asks before it says what kind of read it is.

    `rename`: by attribute the column that it is read into.
    """

    url: str
    topics: tuple[str, ...] = ()
    topic_pattern: str = ""
    condition: str = ""
    columns: tuple[str, ...] | None = None
    attributes_as: AttributesAs = "json"
    rename: dict[str, str] = field(default_factory=dict)
    gaps: Gaps = "fail"
    corrupt_column: str = "_corrupt_record"
    credentials: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def topic(self) -> str:
        """What is read, as the user has said it."""
        return self.topic_pattern or ",".join(self.topics)


@dataclass(frozen=True, kw_only=True)
class ReadOptions(ShapeOptions):
    """What is to be read, and how. `start` of None: where the subscription stands, or latest."""

    subscription: str = ""
    pubends: tuple[str, ...] | None = None
    start: Place | None = None
    end: Place = "latest"
    mode: Mode = "PERMISSIVE"
    events_max: int | None = None
    partitions_min: int = 1
    long_poll_ms: int = LONG_POLL_MS
    idle_s: int = IDLE_S
    keeps_last_batch: bool = True
    patience_s: float = PATIENCE_S


ENVIRONMENT = {"url": "GAPLESS_URL"}
"""Options that the environment of a process may give: tables of Spark's catalogue give none."""


def lowered(given: Mapping[str, str]) -> dict[str, str]:
    """The options under lower-case names, with what the environment gives. When a table is made,
    Spark gives its properties (provider, owner, …), and among them the options."""
    known = {name: os.environ[each] for name, each in ENVIRONMENT.items() if os.environ.get(each)}
    options = {key.lower(): value for key, value in given.items()}
    if is_table(options):
        options = {
            name.removeprefix(OPTION): value
            for name, value in options.items()
            if name.startswith(OPTION)
        }
    return {**known, **options}


OPTION = "option."


def is_table(given: Mapping[str, str]) -> bool:
    """Are these the properties of a table that is being made?"""
    return "provider" in given


def parse_options(given: Mapping[str, str], *, is_stream: bool) -> ReadOptions:
    """`UsageError` names what is unknown, missing, out of place, or of no sense."""
    options = lowered(given)
    _check_names(options, STREAM if is_stream else BATCH)
    _check_needed(options, *(["subscription"] if is_stream else []))
    events_max = options.get("maxeventspertrigger", options.get("maxoffsetspertrigger"))
    pubends = options.get("pubends")
    return ReadOptions(
        **_shape(options),
        subscription=options.get("subscription", ""),
        pubends=None if pubends is None else _listed("pubends", pubends),
        start=_place(options, "starting"),
        end=_place(options, "ending") or "latest",
        mode=_mode(options.get("mode", "PERMISSIVE")),
        events_max=None if events_max is None else _whole("maxEventsPerTrigger", events_max, 1),
        partitions_min=_whole(
            "minPartitions", options.get("minpartitions", "1"), 1, PARTITIONS_MAX
        ),
        long_poll_ms=_whole(
            "longPollMs", options.get("longpollms", str(LONG_POLL_MS)), 0, LONG_POLL_MS_MAX
        ),
        idle_s=_whole("idleSeconds", options.get("idleseconds", str(IDLE_S)), 0),
        keeps_last_batch=_flag(options, "keepLastBatch", default=True),
        patience_s=float(
            _whole("patienceSeconds", options.get("patienceseconds", str(int(PATIENCE_S))), 1)
        ),
    )


def parse_shape(given: Mapping[str, str]) -> ShapeOptions:
    """All that can be checked when a query is made, whether it will be a batch or a stream."""
    options = lowered(given)
    _check_names(options, None)
    _check_needed(options)
    return ShapeOptions(**_shape(options))


def _check_needed(options: Mapping[str, str], *more: str) -> None:
    topic = "topicPattern" if "topicpattern" in options else "topic"
    for name in ("url", topic, *more):
        if not options.get(name.lower()):
            raise UsageError(_missing(name), f'Add .option("{name}", …).')


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        problem = f"topicPattern={text!r} is no regular expression: {error}"
        raise UsageError(problem, "Give one such as orders\\..*") from None
    return text


def _shape(options: Mapping[str, str]) -> dict[str, Any]:
    """The options of `ShapeOptions`. The condition is parsed, so that it is refused here."""
    condition, columns = options.get("filter", ""), options.get("columns")
    Filter.parse(condition)
    return {
        "url": options["url"],
        "topics": _listed("topic", options["topic"]) if "topic" in options else (),
        "topic_pattern": _pattern(options.get("topicpattern", "")),
        "condition": condition,
        "columns": None if columns is None else _listed("columns", columns),
        "attributes_as": _attributes_as(options),
        "rename": parse_rename(options.get("rename", "")),
        "gaps": _gaps(options),
        "corrupt_column": options.get("columnnameofcorruptrecord", "_corrupt_record"),
        "credentials": {name: options[name] for name in CREDENTIALS if options.get(name)},
    }


def _attributes_as(options: Mapping[str, str]) -> AttributesAs:
    infers = _flag(options, "inferSchema", default=False)
    given = options.get("attributesas", "columns" if infers else "json").lower()
    for each in get_args(AttributesAs):
        if given == each and (each == "columns" or not infers):
            return each  # type: ignore[no-any-return]
    if infers:
        problem = f"inferSchema=true and attributesAs={given} contradict each other"
        raise UsageError(problem, "Leave one of them out.")
    problem = f"attributesAs={given!r} is no choice"
    raise UsageError(problem, f"Give one of {', '.join(get_args(AttributesAs))}.")


def parse_rename(text: str) -> dict[str, str]:
    """From `attribute=column,…`: by attribute its column."""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    names = {attribute.strip(): column.strip() for attribute, _, column in pairs}
    if len(names) < len(pairs) or len(set(names.values())) < len(pairs) or not all(names.values()):
        problem = f"rename={text!r} does not give each attribute a column of its own"
        raise UsageError(problem, "Give attribute=column,attribute=column.")
    return names


def _check_names(options: Mapping[str, str], here: str | None) -> None:
    for key in options:
        if key not in KNOWN:
            close = get_close_matches(key, KNOWN, 1)
            hint = (
                f"Did you mean {KNOWN[close[0]][0]}?" if close else "See docs/reference/spark.md."
            )
            raise UsageError(f"there is no option {key!r}", hint)
        name, where = KNOWN[key]
        if here is not None and where not in (BOTH, here):
            raise UsageError(
                f"option {name} is for {where} reads, and this is a {here} read", "Leave it out."
            )
    for names in ONE_OF:
        both = [name for name in names if name.lower() in options]
        if len(both) > 1:
            raise UsageError(f"{both[0]} and {both[1]} say the same thing", "Give one of them.")


def _missing(name: str) -> str:
    if name == "subscription":
        return (
            "a streaming read needs the name of a durable subscription, which keeps what the "
            "query has not read yet"
        )
    return f"the option {name} is missing"


def _place(options: Mapping[str, str], side: str) -> Place | None:
    """A token, earliest, latest, or a time."""
    offsets, time = options.get(f"{side}offsets"), options.get(f"{side}timestamp")
    if time is not None:
        return _instant(f"{side}Timestamp", time)
    if offsets is None:
        return None
    text = offsets.strip()
    if text == "latest":
        return "latest"
    if text == "earliest":
        return "earliest"
    if not text.startswith("{"):
        raise UsageError(
            f"{side}Offsets={offsets!r} is no place in a log",
            'Give earliest, latest, or a token such as {"trades/0":1234}.',
        )
    return Token.from_json(text)


def _instant(name: str, text: str) -> int:
    """Microseconds, of milliseconds as Kafka's source has them, or of a time with its zone."""
    try:
        if text.strip().isdigit():
            return int(text) * 1_000
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise UsageError(
            f"{name}={text!r} is no time",
            "Give milliseconds since 1970, or a time with its zone: 2026-01-31T12:00:00+00:00.",
        )
    return int(time.timestamp() * 1_000_000)


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name.lower(), str(default)).lower()
    if text not in ("true", "false"):
        raise UsageError(f"{name}={text!r} is neither true nor false", "Give one of them.")
    return text == "true"


def _gaps(options: Mapping[str, str]) -> Gaps:
    fails, given = _flag(options, "failOnDataLoss", default=True), options.get("gaps")
    if given is None:
        return "fail" if fails else "skip"
    if given != "rows":
        raise UsageError(f"gaps={given!r} is no choice", 'Give "rows", or leave it out.')
    if fails and "failondataloss" in options:
        raise UsageError(
            "failOnDataLoss=true and gaps=rows contradict each other", "Leave one of them out."
        )
    return "rows"


def _mode(text: str) -> Mode:
    if text.upper() == "PERMISSIVE":
        return "PERMISSIVE"
    if text.upper() == "FAILFAST":
        return "FAILFAST"
    raise UsageError(f"mode={text!r} is no choice", "Give PERMISSIVE or FAILFAST.")


def _listed(name: str, text: str) -> tuple[str, ...]:
    found = tuple(filter(None, (part.strip() for part in text.split(","))))
    if not found or len(set(found)) < len(found):
        raise UsageError(f"{name}={text!r} names nothing, or a thing twice", "Give a,b,c.")
    return found


def _whole(name: str, text: str, least: int, most: int = 1 << 62) -> int:
    if not text.strip().isdigit() or not least <= int(text) <= most:
        raise UsageError(
            f"{name}={text!r} is no whole number from {least} on",
            f"Give one up to {most}." if most < 1 << 62 else "Correct it.",
        )
    return int(text)
