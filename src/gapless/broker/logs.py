"""Structured logs: one line per happening, as `key=value` pairs or as JSON.

`logger.info("link up", extra={"peer": …})` gives
`2026-01-31T12:00:00.123456Z INFO link up peer=b2`, or the same as a JSON object.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

logger = logging.getLogger("gapless.broker")

_KNOWN = {*vars(logging.LogRecord("", 0, "", 0, "", (), None)), "message", "asctime", "taskName"}


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """What was given as `extra`, and the error if there is one."""
    found = {name: value for name, value in vars(record).items() if name not in _KNOWN}
    if record.exc_info and record.exc_info[1] is not None:
        found["error"] = logging.Formatter().formatException(record.exc_info)
    return found


def instant_of(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class PlainFormatter(logging.Formatter):
    """For people."""

    def format(self, record: logging.LogRecord) -> str:
        fields = fields_of(record)
        error = fields.pop("error", None)
        pairs = "".join(f" {name}={plain(value)}" for name, value in fields.items())
        line = f"{instant_of(record)} {record.levelname} {record.getMessage()}{pairs}"
        return f"{line}\n{error}" if error else line


class JsonFormatter(logging.Formatter):
    """For programs."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(
            {
                "time": instant_of(record),
                "level": record.levelname,
                "message": record.getMessage(),
                **fields_of(record),
            },
            default=str,
        )


def plain(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and " " not in text and text else json.dumps(text)


def set_up(*, as_json: bool, level: str = "INFO") -> None:
    """Send this process's logs to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else PlainFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
