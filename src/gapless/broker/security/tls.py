"""TLS: the contexts of one broker, and what certificates say.

Theory of operation
    A broker's certificate names it by a URI, `urn:gapless:broker:NAME`, and the hosts under which
    clients know it. Brokers ask each other for that URI and do not care about hosts; clients ask
    for the host. A client may have a certificate too, whose common name is its principal.
    A handshake costs us more than it costs the other end, and asyncio tells nobody of one that
    fails. So the context counts those that are under way, refuses one too many before anything is
    computed, and logs those that fail.
    `reload` reads certificate and key anew for all handshakes to come.

Invariants
    I1  at most `handshakes_max` handshakes are under way, none longer than `patience_s`; those of
        the admin port are bounded by its connections
    I2  nothing below TLS 1.2 is spoken, and no session is resumed: each connection proves itself
"""

from __future__ import annotations

import ssl
import sys
import time
from typing import TYPE_CHECKING, Any

from gapless.broker.logs import logger
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.broker.security.policy import Security

BROKER_URI = "urn:gapless:broker:"
NO_ANSWER = (ssl.SSLWantReadError, ssl.SSLWantWriteError)

Certificate = dict[str, Any]
"""As `ssl.SSLSocket.getpeercert` has it; empty or None: there is none."""


class Handshakes:
    """How many are under way."""

    def __init__(self, handshakes_max: int, patience_s: float) -> None:
        self.failed = self.refused = 0
        self._max = handshakes_max
        self._patience_s = patience_s
        self._since: dict[int, float] = {}

    def begin(self, key: int) -> None:
        """Those that took too long are over: the event loop has seen to it."""
        now_s = time.monotonic()
        late_s = now_s - self._patience_s
        self._since.pop(key, None)
        while self._since and next(iter(self._since.values())) < late_s:
            del self._since[next(iter(self._since))]
        if len(self._since) >= self._max:
            self.refused += 1
            raise ssl.SSLError("too many handshakes are under way")
        self._since[key] = now_s

    def end(self, key: int, error: Exception | None = None) -> None:
        if self._since.pop(key, None) is not None and error is not None:
            self.failed += 1
            logger.info("no TLS", extra={"reason": str(error)})


class WatchedObject(ssl.SSLObject):
    """A TLS connection whose handshake is counted."""

    has_begun = False

    def do_handshake(self) -> None:
        context = self.context
        assert isinstance(context, ServerContext)
        if not self.has_begun:
            self.has_begun = True
            context.handshakes.begin(id(self))
        try:
            super().do_handshake()
        except NO_ANSWER:
            raise
        except Exception as error:
            context.handshakes.end(id(self), error)
            raise
        context.handshakes.end(id(self))


class ServerContext(ssl.SSLContext):
    """The context of a listening port. `handshakes` is set once it is made."""

    handshakes: Handshakes
    sslobject_class = WatchedObject


class Tls:
    """The contexts of one broker: for its port, its admin port, its doors, and what it dials."""

    def __init__(self, security: Security, patience_s: float) -> None:
        self._security = security
        self.handshakes = Handshakes(security.strangers_max, patience_s)
        self.port = self._server(ssl.CERT_OPTIONAL, self.handshakes)
        # The admin port has few connections, and a new one ends the oldest: none is refused there,
        # and none takes the room of those who come to serve or to be served.
        self.admin = self._server(ssl.CERT_NONE, Handshakes(sys.maxsize, patience_s))
        self.door = self._server(ssl.CERT_NONE, Handshakes(security.strangers_max, patience_s))
        self.dial = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.dial.check_hostname = False  # the name of the broker is checked instead
        self.dial.minimum_version = ssl.TLSVersion.TLSv1_2
        for context in (self.port, self.dial):
            trust(context, security.path(security.authority))
        self.reload()

    def _server(self, verify_mode: ssl.VerifyMode, handshakes: Handshakes) -> ServerContext:
        context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
        context.handshakes = handshakes
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = verify_mode
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        context.num_tickets = 0
        return context

    def reload(self) -> None:
        """Read certificate and key anew; `UsageError` if they are no good, and nothing changes."""
        security = self._security
        certificate, key = security.path(security.certificate), security.path(security.key)
        warn_if_readable(key)
        trial = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        for context in (trial, self.port, self.admin, self.door, self.dial):
            load_pair(context, certificate, key)


def trust(context: ssl.SSLContext, authority: Path) -> None:
    try:
        context.load_verify_locations(authority)
    except OSError as error:  # ssl.SSLError is one
        raise UsageError(
            f"cannot use the authority in {authority}: {error.strerror or error}",
            "Give its certificate, as `gapless security init` makes it.",
        ) from None


def load_pair(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:
        raise UsageError(
            f"cannot use the certificate {certificate} with the key {key}: "
            f"{error.strerror or error}",
            "Make them with `gapless security certificate NAME --broker`.",
        ) from None


def warn_if_readable(key: Path) -> None:
    try:
        mode = key.stat().st_mode
    except OSError:
        return  # whoever loads it says what is wrong
    if mode & 0o077:
        logger.warning("others can read a private key", extra={"key": key, "remedy": "chmod 600"})


def brokers_in(certificate: Certificate | None) -> frozenset[str]:
    """The brokers that a certificate names; a client's names none."""
    names = (certificate or {}).get("subjectAltName", ())
    return frozenset(
        value.removeprefix(BROKER_URI)
        for kind, value in names
        if kind == "URI" and value.startswith(BROKER_URI)
    )


def is_expired(certificate: Certificate | None, now_s: float) -> bool:
    """Does it count no more at this time of the wall clock? What does not say when, counts."""
    until = (certificate or {}).get("notAfter")
    return until is not None and ssl.cert_time_to_seconds(until) < now_s


def common_name(certificate: Certificate | None) -> str:
    """Of whom it is; empty where there is none."""
    for part in (certificate or {}).get("subject", ()):
        for kind, value in part:
            if kind == "commonName":
                return str(value)
    return ""
