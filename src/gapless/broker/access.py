"""Access: who may connect to one broker, and what they may do.

Theory of operation
    A link that has said Hello is a neighbour's or a client's. A neighbour's certificate must name
    the broker that its Hello does. A client shows a token, or else a certificate that is no
    broker's; whoever fails is told, after a while, that it is not admitted, and nothing else.
    Each request of a client is checked against its rights before the node sees it (`rights`).
    How much of it a principal may have is counted elsewhere (`shares`, `room`, `core.ledger`).
    After `reload`, those whose rights are not the same lose their links: when they come back,
    everything they ask for is checked anew.

Invariants
    I1  the node knows no client that has not proved who it is
    I2  every client's link that was greeted and is not gone is among the guests
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gapless.broker.logs import logger
from gapless.broker.rights import name_refusal, refusal
from gapless.broker.tls import Tls, brokers_in, common_name
from gapless.core.client_messages import Acknowledge, Forget, Refused
from gapless.core.errors import AccessError, GaplessError, ProtocolError

if TYPE_CHECKING:
    from gapless.broker.principals import Principal
    from gapless.broker.security import Security
    from gapless.broker.tls import Certificate
    from gapless.core.identity import PeerName
    from gapless.core.messages import Hello, Message
    from gapless.node.node import Node


class Guest(Protocol):
    """A link, as far as it matters who is at its other end."""

    address: str
    peer: PeerName | None
    principal: Principal | None

    @property
    def certificate(self) -> Certificate | None: ...
    def end(self, error: GaplessError) -> None: ...


class Access:
    """The gate of one broker."""

    def __init__(self, security: Security, patience_s: float) -> None:
        self.security = security
        self.tls = Tls(security, patience_s)
        self.principals = security.read_principals()
        self.refused_logins = self.refused_requests = 0
        self._guests: set[Guest] = set()

    # --- who it is --------------------------------------------------------------------------------

    def check_broker(self, link: Guest, name: str) -> None:
        """`AccessError` if whoever is there does not prove to be this broker."""
        if name not in brokers_in(link.certificate):
            self._log_refused(link, f"no certificate of broker {name}")
            raise AccessError(f"the certificate does not name the broker {name!r}")

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
            return self.principals.by_token(token)
        name = common_name(certificate)
        if not name or brokers_in(certificate):
            return None
        return self.principals.by_name(name)

    def _log_refused(self, link: Guest, reason: str) -> None:
        self.refused_logins += 1
        logger.warning("login refused", extra={"address": link.address, "reason": reason})

    def leave(self, link: Guest) -> None:
        self._guests.discard(link)

    # --- what it may do ---------------------------------------------------------------------------

    def admit(self, link: Guest, message: Message, node: Node) -> Refused | None:
        """Why the node is not to see this request; None if it is."""
        assert link.principal is not None, "I1"
        name, rights = link.principal.name, link.principal.rights
        refused = refusal(rights, message)
        if refused is None and isinstance(message, Forget | Acknowledge) and message.name:
            known = node.durables.subscriptions.get(message.name)
            if known is not None:  # else it may be elsewhere: the node knows whose it is there
                found = known.definition.topic, known.definition.owner
                refused = name_refusal(rights, name, message, found)
        if refused is not None:
            self.refused_requests += 1
        return refused

    # --- new certificates and principals ----------------------------------------------------------

    def reload(self) -> None:
        """Read certificate, key and principals anew; `UsageError`, and all is as it was."""
        principals = self.security.read_principals()
        self.tls.reload()
        self.principals = principals
        for link in list(self._guests):
            assert link.principal is not None
            name = link.principal.name
            if link.principal.rights != principals.rights_of(name):
                link.end(ProtocolError(f"the rights of {name!r} have changed", "Try again."))
