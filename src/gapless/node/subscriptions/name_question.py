"""A question about a name that is open, and the clients that wait for its answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, get_args

from gapless.core.client_messages import Acknowledge, Forget, Refused, Subscribe
from gapless.core.errors import quoted
from gapless.core.name_messages import Want

if TYPE_CHECKING:
    from gapless.core.identity import ClientName, Instant
    from gapless.core.name_messages import NameQuestion

WANTS: tuple[Want, ...] = get_args(Want)
Request = Subscribe | Forget | Acknowledge


@dataclass(frozen=True, slots=True)
class Asker:
    """A client that waits for an answer."""

    client: ClientName
    message: Request
    until: Instant

    @property
    def key(self) -> tuple[ClientName, int] | None:
        """Of a subscription that waits."""
        message = self.message
        return (self.client, message.subscription) if isinstance(message, Subscribe) else None


@dataclass(slots=True)
class Question:
    """One that is open: what is asked, when to ask again, and who waits for it."""

    message: NameQuestion
    due: Instant
    askers: list[Asker] = field(default_factory=list)

    def silent(self, asker: Asker) -> Refused:
        """For one that has waited long enough."""
        state = {"free": "has ended, but its name is not free yet", "claim": "is not here"}
        what, registrar = state.get(self.message.want, "may have moved"), self.message.receiver
        name = quoted(self.message.name)
        problem = f"subscription {name} {what}: {registrar!r}, its registrar, is silent"
        return Refused(asker.message.request, problem, f"See that {registrar!r} runs.", retry=True)
