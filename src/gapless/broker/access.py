"""Access: who may connect to one broker, what they may do, and how much of it.

Theory of operation
    A link that has said Hello is a neighbour's or a client's. A neighbour's certificate must name
    the broker that its Hello does. A client shows a token, or else a certificate that is no
    broker's; whoever fails is told, after a while, that it is not admitted, and nothing else.
    Each request of a client is checked against its rights before the node sees it (`rights`).
    Subscriptions of a principal are counted upward as they are asked for; only where that reaches
    the limit are those that really exist counted, at most once in `RECOUNT_S`. A tally is kept
    for every principal that was ever here: there are as many as the authority vouches for.
    After `reload`, those lose their links for good whose token or principal is gone, or whose
    certificate, a neighbour's too, has expired since. Those who have lost some right lose their
    links as well, but may come back: everything that they ask for is checked anew then, and what is
    not allowed any more ends with that refusal. Those who have gained rights have them at once.

Invariants
    I1  the node knows no client that has not proved who it is
    I2  no principal has more than `principal_connections_max` links here
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from gapless.broker.logs import logger
from gapless.broker.rights import name_refusal, refusal
from gapless.broker.subscriptions import count_of
from gapless.broker.tls import Tls, brokers_in, common_name, is_expired
from gapless.core.client_messages import Acknowledge, Forget, Refused, Subscribe
from gapless.core.errors import AccessError, GaplessError, ProtocolError

if TYPE_CHECKING:
    from gapless.broker.principals import Principal
    from gapless.broker.security import Security
    from gapless.broker.tls import Certificate
    from gapless.core.identity import PeerName
    from gapless.core.messages import Hello, Message
    from gapless.node.node import Node

RECOUNT_S = 1.0
RENEW = "Renew it with `gapless security certificate`, and connect again."


class Guest(Protocol):
    """A link, as far as it matters who is at its other end."""

    address: str
    peer: PeerName | None
    principal: Principal | None

    @property
    def certificate(self) -> Certificate | None: ...
    def end(self, error: GaplessError) -> None:
        """Say why, and close it within a second, whether the other end reads or not."""


class Tally:
    """What one principal has here: its links, and about how many subscriptions."""

    def __init__(self, subscriptions: int) -> None:
        self.links: set[Guest] = set()
        self.subscriptions = subscriptions  # at least as many as there are
        self.recount_s = 0.0  # not before this time of the loop


class Access:
    """The gate of one broker."""

    def __init__(self, security: Security, patience_s: float) -> None:
        self.security = security
        self.tls = Tls(security, patience_s)
        self.principals = security.read_principals()
        self.refused_logins = self.refused_requests = 0
        self.owned: dict[str, int] = {}  # durable subscriptions by owner, when the broker started
        self._tallies: dict[str, Tally] = {}
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
        name = principal.name
        tally = self._tallies.setdefault(name, Tally(self.owned.get(name, 0)))
        if len(tally.links) >= self.security.principal_connections_max:
            raise ProtocolError(
                f"{name!r} has {len(tally.links)} connections, which is its limit",
                "Close some, or use one for more.",
            )
        tally.links.add(link)
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
        self._brokers.discard(link)
        if link.principal is not None:
            self._tallies[link.principal.name].links.discard(link)

    # --- what it may do ---------------------------------------------------------------------------

    def admit(self, link: Guest, message: Message, node: Node) -> Refused | None:
        """Why the node is not to see this request; None if it is."""
        assert link.principal is not None, "I1"
        name, rights = link.principal.name, link.principal.rights
        refused = refusal(rights, message)
        if refused is None and isinstance(message, Forget | Acknowledge) and message.name:
            known = node.durables.subscriptions.get(message.name)
            # What is another's, or nowhere, goes to the node: it answers both alike, after the
            # same way to the registrar of the name.
            if known is not None and known.definition.owner == name:
                refused = name_refusal(rights, message, known.definition.topic)
        if refused is None and isinstance(message, Subscribe):
            refused = self._count(name, message, node)
        if refused is not None:
            self.refused_requests += 1
        return refused

    def _count(self, name: str, message: Subscribe, node: Node) -> Refused | None:
        tally, limit = self._tallies[name], self.security.principal_subscriptions_max
        now_s = asyncio.get_running_loop().time()
        if tally.subscriptions >= limit and now_s >= tally.recount_s:
            peers = {link.peer for link in tally.links}
            tally.subscriptions = count_of(node, name, peers)
            tally.recount_s = now_s + RECOUNT_S
        if tally.subscriptions < limit:
            tally.subscriptions += 1
            return None
        problem = f"{name!r} has {tally.subscriptions} subscriptions here, which is its limit"
        return Refused(message.request, problem, "End some, and try again after a second.")

    # --- new certificates and principals ----------------------------------------------------------

    def reload(self, now_s: float) -> None:
        """Read certificate, key and principals anew; `UsageError`, and all is as it was.
        `now_s`: of the wall clock."""
        principals = self.security.read_principals()
        self.tls.reload()
        self.principals = principals
        for link in [link for tally in self._tallies.values() for link in tally.links]:
            self._confirm(link, now_s)
        for link in list(self._brokers):
            if is_expired(link.certificate, now_s):
                link.end(AccessError("the broker's certificate has expired", RENEW))

    def _confirm(self, link: Guest, now_s: float) -> None:
        """Does a client's proof still count, and for as much as it did?"""
        before = link.principal
        assert before is not None
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
