"""Credentials: which principal may create, publish to and subscribe to a topic.

Theory of operation
    All nodes of a network share a secret. A credential names a principal, a topic and rights, and
    carries a keyed hash of the three as its proof, so that any node can verify it alone: the root
    does for creating and publishing, the first node on the route for subscribing. The root then
    also asks the access list in the topic's record. A network without a secret is open.

Source: the Scribe paper, section 3, which leaves open what credentials are. Deviation: HMAC-SHA-256
with one secret; its holder may do anything, so it belongs to brokers, never to clients.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Literal

from gapless.scribe.messages import Credential

if TYPE_CHECKING:
    from gapless.scribe.identifiers import TopicId
    from gapless.scribe.messages import TopicRecord

Right = Literal["create", "publish", "subscribe"]


class Guard:
    """Issues and verifies credentials; lets everyone pass if there is no secret."""

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes = b"") -> None:
        self._secret = secret

    def issue(self, principal: str, topic: TopicId, *rights: Right) -> Credential:
        return Credential(principal, rights, self._proof(principal, topic, rights))

    def _proof(self, principal: str, topic: TopicId, rights: tuple[str, ...]) -> bytes:
        text = "\0".join((principal, f"{topic:x}", *rights))
        return hmac.new(self._secret, text.encode(), hashlib.sha256).digest()

    def problem(
        self,
        credential: Credential | None,
        topic: TopicId,
        right: Right,
        record: TopicRecord | None = None,
    ) -> str:
        """Why not; empty: it may."""
        if not self._secret:
            return ""
        if credential is None:
            return f"to {right} takes a credential, and none came; ask the owner of the topic"
        proof = self._proof(credential.principal, topic, credential.rights)
        if not hmac.compare_digest(proof, credential.proof):
            return "the credential is not genuine; get one for this topic and this network"
        if right not in credential.rights:
            return f"the credential does not give the right to {right}; ask for one that does"
        listed = record.publishers if record is not None else ()
        if right == "publish" and listed and credential.principal not in listed:
            return f"{credential.principal!r} is not on the topic's list; have its owner add it"
        return ""
