"""Errors as answers: `application/problem+json` (RFC 9457), with the problem and its remedy.

The status follows from the class of the error. A broker's refusal has one class and a text, so its
status follows from how the text begins; a refusal that is not listed here is a conflict (409).
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from gapless.client.errors import LinkError, LostError, RefusedError
from gapless.core.errors import EventError, FilterError, GaplessError, UsageError
from gapless.doors.clients import BusyError, NotAdmittedError

if TYPE_CHECKING:
    from collections.abc import Mapping

REFUSALS = {
    "not admitted": 401,
    "not allowed to": 403,
    "there is no topic": 404,
    "no such topic": 404,
    "there is no subscription": 404,
    "too many": 429,
}
"""By the beginning of what a broker says: the status."""

LIMIT = "which is its limit"

RETRY_S = 2
"""What `Retry-After` says where a request may succeed later."""


class HttpError(GaplessError):
    """A request that the door itself refuses."""

    def __init__(
        self, status: int, problem: str, remedy: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(problem, remedy)
        self.status = status
        self.headers = dict(headers or {})


class ProblemResponse(Response):
    """An error as `application/problem+json`."""

    media_type = "application/problem+json"

    def __init__(self, error: GaplessError) -> None:
        self.status = status_of(error)
        headers = {"Cache-Control": "no-store"}
        if isinstance(error, HttpError):
            headers |= error.headers
        if self.status == HTTPStatus.UNAUTHORIZED:
            headers["WWW-Authenticate"] = "Bearer"
        if self.status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
            headers["Retry-After"] = str(RETRY_S)
        super().__init__(json.dumps(problem_of(error)).encode(), self.status, headers)


def problem_of(error: GaplessError) -> dict[str, Any]:
    """The fields of RFC 9457, and `remedy`; of a condition that is wrong, also where."""
    status = status_of(error)
    fields: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": error.problem,
        "remedy": error.remedy,
    }
    if isinstance(error, FilterError) and error.text:
        fields |= {"position": error.position, "caret": error.caret()}
    return fields


def status_of(error: GaplessError) -> int:
    match error:
        case HttpError(status=status):
            return status
        case NotAdmittedError():
            return 401
        case BusyError() | LinkError():
            return 503
        case UsageError() | FilterError() | EventError():
            return 400
        case LostError():
            return 410
        case RefusedError():
            return refusal_status(error.problem)
        case _:
            return 500


def refusal_status(problem: str) -> int:
    if LIMIT in problem:
        return 429
    return next((code for text, code in REFUSALS.items() if problem.startswith(text)), 409)
