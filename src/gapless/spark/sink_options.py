"""Options of the sink: what a writer may be told, checked before anything is written.

Whatever is unknown, out of place or in contradiction with another is refused by name. Names are
those of Spark's Kafka sink (`topic`) and of Delta (`txnAppId`, `txnVersion`) where meanings agree.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING

from gapless.core.errors import UsageError
from gapless.spark.options import lowered, parse_rename

if TYPE_CHECKING:
    from collections.abc import Mapping

CREDENTIALS = ("token", "ca", "certificate", "key")
NAMES = (
    "url",
    "topic",
    "attributes",
    "rename",
    "spreadBy",
    "body",
    "txnAppId",
    "txnVersion",
    "patienceSeconds",
)
SPARKS_OWN = ("checkpointlocation", "path", "queryname")
"""What Spark itself puts among the options: of `start("path")` and `queryName` nothing is used."""

PATIENCE_S = 60.0
"""How long a broker may be away before a task or a commit fails."""


@dataclass(frozen=True, kw_only=True)
class SinkOptions:
    """Where rows go, and what of them. `attributes` of None: all columns that are nothing else.

    `rename`: by column the attribute that it becomes.
    """

    url: str
    topic: str = ""
    attributes: tuple[str, ...] | None = None
    rename: dict[str, str] = field(default_factory=dict)
    spread_by: str = ""
    is_json: bool = False
    producer: str = ""
    transaction: int | None = None
    patience_s: float = PATIENCE_S
    credentials: dict[str, str] = field(default_factory=dict, repr=False)


def parse_sink_options(
    given: Mapping[str, str], *, is_stream: bool, overwrite: bool = False
) -> SinkOptions:
    """`UsageError` names what is unknown, missing, out of place, or of no sense."""
    if overwrite:
        raise UsageError(
            "published events cannot be overwritten",
            'Use outputMode("append"), or foreachBatch.' if is_stream else 'Use mode("append").',
        )
    options = lowered(given)
    _check_names(options)
    if not options.get("url"):
        raise UsageError("the option url is missing", 'Add .option("url", "gapless://host:7117").')
    _check_transaction(options, is_stream=is_stream)
    attributes, version = options.get("attributes"), options.get("txnversion")
    body = options.get("body")
    if body not in (None, "json"):
        raise UsageError(
            f"body={body!r} is no choice",
            'Give "json" for an object of all columns, or leave it out and name a column body.',
        )
    return SinkOptions(
        url=options["url"],
        topic=options.get("topic", ""),
        attributes=None if attributes is None else _listed(attributes),
        rename={column: name for name, column in parse_rename(options.get("rename", "")).items()},
        spread_by=options.get("spreadby", ""),
        is_json=body == "json",
        producer=options.get("txnappid", ""),
        transaction=None if version is None else _whole("txnVersion", version, 0),
        patience_s=float(_whole("patienceSeconds", options.get("patienceseconds", "60"), 1)),
        credentials={name: options[name] for name in CREDENTIALS if options.get(name)},
    )


def _check_names(options: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in (*NAMES, *CREDENTIALS)}
    for key in options:
        if key not in known and key not in SPARKS_OWN:
            close = get_close_matches(key, known, 1)
            hint = f"Did you mean {known[close[0]]}?" if close else f"There are {', '.join(NAMES)}."
            raise UsageError(f"the sink has no option {key!r}", hint)


def _check_transaction(options: Mapping[str, str], *, is_stream: bool) -> None:
    if is_stream:
        if "txnversion" in options:
            raise UsageError(
                "option txnVersion is for batch writes: a stream numbers its batches itself",
                "Leave it out.",
            )
    elif bool(options.get("txnappid")) != bool(options.get("txnversion")):
        raise UsageError(
            "txnAppId and txnVersion go together in a batch write",
            "Give both to have a repeated job ignored, or neither.",
        )


def _listed(text: str) -> tuple[str, ...]:
    """Names with commas between; none at all is fine: no attributes."""
    names = tuple(filter(None, (part.strip() for part in text.split(","))))
    if len(set(names)) < len(names):
        raise UsageError(f"attributes={text!r} names a column twice", "Give a,b,c.")
    return names


def _whole(name: str, text: str, least: int) -> int:
    if not text.strip().isdecimal() or not least <= int(text) < 1 << 63:
        raise UsageError(f"{name}={text!r} is no whole number from {least} on", "Correct it.")
    return int(text)
