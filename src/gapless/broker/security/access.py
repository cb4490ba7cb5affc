"""Access: who may connect to one broker, what they may do, and how much of it.

Theory of operation
    A link that has said Hello is a neighbour's or a client's. A neighbour's certificate must name
    the broker that its Hello does. A client shows a token, or else a certificate that is no
    broker's; whoever fails is told, after a while, that it is not admitted, and nothing else.
    Each request of a client is checked against its rights before the node sees it (`rights`).
    How much of it a principal may have is counted elsewhere (`shares`, `room`, `core.ledger`).
    After `reload`, those lose their links for good whose token or principal is gone, or whose
    certificate, a neighbour's too, has expired since. Those who have lost some right lose their
    links as well, but may come back: everything that they ask for is checked anew then, and what is
    not allowed any more ends with that refusal. Those who have gained rights have them at once.

Invariants
    I1  the node knows no client that has not proved who it is
    I2  no principal has more than `principal_connections_max` links here
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Protocol

from gapless.broker.logs import logger
from gapless.broker.security.principals import Principal
from gapless.broker.security.rights import ALL_RIGHTS, name_refusal, refusal
from gapless.broker.security.tls import Tls, brokers_in, common_name, is_expired
from gapless.core.client_messages import Acknowledge, AlterSubscription, Forget, Refused
from gapless.core.errors import AccessError, GaplessError, ProtocolError

if TYPE_CHECKING:
    from gapless.broker.security.policy import Security
    from gapless.broker.security.tls import Certificate
    from gapless.core.identity import PeerName
    from gapless.core.messages import Hello, Message
    from gapless.node.node import Node

RENEW = "Renew it with `gapless security certificate`, and connect again."

DOOR = Principal("(door)", ALL_RIGHTS)
"""A door of this broker, for what it does for itself. No principal of a file has such a name."""


class Guest(Protocol):
    """A link, as far as it matters who is at its other end."""

    address: str
    peer: PeerName | None
    principal: Principal | None

    @property
    def certificate(self) -> Certificate | None: ...
    def end(self, error: GaplessError) -> None:
        """Say why, and close it within a second, whether the other end reads or not."""


class Access:
    """The gate of one broker."""

    def __init__(self, security: Security, patience_s: float) -> None:
        self.security = security
        self.tls = Tls(security, patience_s)
        self.principals = security.read_principals()
        self.refused_logins = self.refused_requests = 0
        self._lent: dict[str, Principal] = {}  # by token, for doors of this process
        self._guests: set[Guest] = set()
        self._brokers: set[Guest] = set()

    # --- who it is --------------------------------------------------------------------------------

    def check_broker(self, link: Guest, name: str) -> None:
        """`AccessError` if whoever is there does not prove to be this broker."""
        if name not in brokers_in(link.certificate):
            self._log_refused(link, f"no certificate of broker {name}")
            raise AccessError(f"the certificate does not name the broker {name!r}")
        self._brokers.add(link)

    def greet(self, link: Guest, hello: Hello) -> Principal:
        """Who this client is; `AccessError` if it does not prove it."""
        principal = self.by_proof(hello.token, link.certificate)
        if principal is None:
            self._log_refused(link, "wrong token" if hello.token else "no token or certificate")
            raise AccessError("not admitted: no valid token or certificate was given")
        self._guests.add(link)
        link.principal = principal
        return principal

    def by_proof(self, token: str, certificate: Certificate | None = None) -> Principal | None:
        """A token counts before a certificate. A broker's certificate is no client's."""
        if token:
            return self._lent.get(token) or self.principals.by_token(token)
        name = common_name(certificate)
        if not name or brokers_in(certificate):
            return None
        return self.principals.by_name(name)

    def lend(self, principal: Principal) -> str:
        """A token by which a door of this process is the principal that has proved itself to it.
        The token is never written, and ends with the process."""
        for token, lent in self._lent.items():
            if lent == principal:
                return token
        token = secrets.token_urlsafe(32)
        self._lent[token] = principal
        return token

    def lend_to_door(self) -> str:
        """A token for what a door does for itself."""
        return self.lend(DOOR)

    def _log_refused(self, link: Guest, reason: str) -> None:
        self.refused_logins += 1
        logger.warning("login refused", extra={"address": link.address, "reason": reason})

    def leave(self, link: Guest) -> None:
        self._brokers.discard(link)
        self._guests.discard(link)

    # --- what it may do ---------------------------------------------------------------------------

    def admit(self, link: Guest, message: Message, node: Node) -> Refused | None:
        """Why the node is not to see this request; None if it is."""
        assert link.principal is not None, "I1"
        name, rights = link.principal.name, link.principal.rights
        refused = refusal(rights, message)
        named = Forget | Acknowledge | AlterSubscription
        if refused is None and isinstance(message, named) and message.name:
            known = node.durable.subscriptions.get(message.name)
            # What is another's, or nowhere, goes to the node: it answers both alike, after the
            # same way to the registrar of the name.
            if known is not None and known.definition.owner == name:
                refused = name_refusal(rights, message, known.definition.topic)
        if refused is not None:
            self.refused_requests += 1
        return refused

    # --- new certificates and principals ----------------------------------------------------------

    def reload(self, now_s: float) -> None:
        """Read certificate, key and principals anew; `UsageError`, and all is as it was.
        `now_s`: of the wall clock."""
        principals = self.security.read_principals()
        self.tls.reload()
        self.principals = principals
        for link in list(self._guests):
            self._confirm(link, now_s)
        for link in list(self._brokers):
            if is_expired(link.certificate, now_s):
                link.end(AccessError("the broker's certificate has expired", RENEW))

    def _confirm(self, link: Guest, now_s: float) -> None:
        """Does a client's proof still count, and for as much as it did?"""
        before = link.principal
        assert before is not None
        if before is DOOR:
            return
        now = self.principals.confirmed(before)
        if now is None:
            link.end(AccessError(f"what {before.name!r} has shown counts no more: it was revoked"))
        elif before.proof is None and is_expired(link.certificate, now_s):
            link.end(AccessError(f"the certificate of {before.name!r} has expired", RENEW))
        elif now.rights.has_all_of(before.rights):
            link.principal = now
        else:
            problem = f"the rights of {before.name!r} have changed"
            link.end(ProtocolError(problem, "Connect again: what is still allowed goes on."))
