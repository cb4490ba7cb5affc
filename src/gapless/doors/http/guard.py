"""Guard: which requests get past the door before anything is done for them.

Theory of operation
    With security each request shows a token, and the broker decides about it when the door connects
    with it. Without, a request must name the door by an address, as localhost, or by a name that
    it was given (`doors/hosts.py`).
    A browser says which page a request comes from. A page of another origin is refused unless its
    origin is configured, whatever the method: reading is protected by the browser, but a request
    that publishes or takes a subscription over would do so without being read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.datastructures import Headers

from gapless.doors.hosts import is_own_host
from gapless.doors.http.problems import HttpError, ProblemResponse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import ASGIApp, Receive, Scope, Send

SHOWN_MAX = 255
"""Characters of a header that a refusal repeats."""

TOKEN = "gapless.token"
"""Where the scope of a request has its token; empty without security."""

FOREIGN = ("cross-site", "same-site")


class HttpGuard:
    """The application, for requests that may pass."""

    def __init__(
        self, app: ASGIApp, *, is_secure: bool, hosts: Iterable[str], origins: Iterable[str]
    ) -> None:
        self._app = app
        self._is_secure = is_secure
        self._hosts = frozenset(each.lower().rstrip(".") for each in hosts)
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            headers = Headers(scope=scope)
            self._check_host(headers)
            self._check_origin(headers)
            scope[TOKEN] = self._token(headers)
        except HttpError as error:
            await refuse(error, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _check_host(self, headers: Headers) -> None:
        host = headers.get("host")  # HTTP/1.0 names none, and no browser speaks it
        if self._is_secure or host is None or is_own_host(host, self._hosts):
            return
        raise HttpError(
            421,
            f"this door is not called {host[:SHOWN_MAX]!r}",
            "Ask by address, or as localhost, or start the broker with --http-host NAME.",
        )

    def _check_origin(self, headers: Headers) -> None:
        origin, host = headers.get("origin"), headers.get("host", "")
        if origin is None:
            is_foreign = headers.get("sec-fetch-site", "") in FOREIGN
        else:
            is_foreign = origin not in self._origins and origin.partition("://")[2] != host
        if is_foreign:
            raise HttpError(
                403,
                f"pages of {(origin or 'another site')[:SHOWN_MAX]!r} may not use this door",
                "Start the broker with --http-origin ORIGIN to allow them.",
            )

    def _token(self, headers: Headers) -> str:
        if not self._is_secure:
            return ""
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            problem = "not admitted: no token was given"
            raise HttpError(401, problem, "Send Authorization: Bearer TOKEN.")
        return token.strip()


async def refuse(error: HttpError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with a problem; a WebSocket gets it instead of its handshake."""
    response = ProblemResponse(error)
    if scope["type"] == "websocket":
        from starlette.websockets import WebSocket

        await WebSocket(scope, receive, send).send_denial_response(response)
    else:
        await response(scope, receive, send)
