"""The record of one named subscription at one broker: its phase, and who waits for what of it.

Theory of operation
    A name is looked for, found free, and waits until everything that its subscription wants gets
    here; then the subscription is written, and lives. One that came from another broker is
    *arriving* until that broker has forgotten its copy. `TRANSITIONS` is the whole course: a part
    says what has happened (`Happening`), and the table says what the subscription is from then on.
    Anything that the table does not list is a defect of the broker, and raises.
    A life that is over leaves a `Departure` behind until its end is durable and its name free. The
    next life of the name may begin meanwhile.
    What a subscription *is* (condition, owner, moves) and how far it is acknowledged is durable.
    That belongs to `gapless.durable.subscriptions`; the record is what this broker does about it
    now, and a restart makes it anew from there.

Invariants (checked by `Table.check`)
    I1  the phase agrees with what is durable: `CREATING`, `ARRIVING` and `LIVE` have a
        subscription, no other phase has; `ARRIVING` says where it came from, `LIVE` does not
    I2  only a subscription that is here has a session or a hand-over under way

Source: docs/protocols/durable-subscriptions.md, 3.1, 3.6; decision 0032.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.core.client_messages import Forget, Subscribe
    from gapless.core.identity import ClientName, SubscriptionName, TopicName
    from gapless.node.delivery.session import Session


class Phase(Enum):
    """Where a named subscription stands at this broker."""

    ABSENT = "absent"
    CLAIMING = "claiming"
    STARTING = "starting"
    CREATING = "creating"
    ARRIVING = "arriving"
    LIVE = "live"

    @property
    def is_here(self) -> bool:
        """Does this broker hold the subscription, durable or about to be?"""
        return self in HERE


HERE = frozenset({Phase.CREATING, Phase.ARRIVING, Phase.LIVE})


class Happening(Enum):
    """What may happen to a named subscription at this broker."""

    CLAIM = "a client wants it, and its registrar is asked whose the name is"
    CLAIM_ENDS = "the registrar has answered, or no client waits for the answer any more"
    START = "the name is ours to use; the subscription waits for its start"
    START_ENDS = "no client waits for its start any more"
    CREATE = "its start is known, and its first write is on the way"
    WRITTEN = "its first write is durable"
    NO_ROOM = "the disk had no room for its first write"
    RESTORE = "a restarted broker found it on its disk"
    ARRIVE = "it came from another broker, which may hold a copy"
    SETTLE = "the broker that it came from has forgotten its copy"
    MOVE_OUT = "it goes on at another broker"
    END = "it is over, everywhere"


TRANSITIONS: dict[Phase, dict[Happening, Phase]] = {
    Phase.ABSENT: {
        Happening.CLAIM: Phase.CLAIMING,
        Happening.START: Phase.STARTING,
        Happening.RESTORE: Phase.LIVE,
    },
    Phase.CLAIMING: {
        Happening.CLAIM: Phase.CLAIMING,
        Happening.CLAIM_ENDS: Phase.ABSENT,
        Happening.START: Phase.STARTING,
    },
    Phase.STARTING: {
        Happening.CLAIM: Phase.STARTING,
        Happening.CLAIM_ENDS: Phase.STARTING,
        Happening.START: Phase.STARTING,
        Happening.START_ENDS: Phase.ABSENT,
        Happening.CREATE: Phase.CREATING,
    },
    Phase.CREATING: {
        Happening.CLAIM_ENDS: Phase.CREATING,
        Happening.START_ENDS: Phase.CREATING,
        Happening.WRITTEN: Phase.LIVE,
        Happening.NO_ROOM: Phase.ABSENT,
        Happening.MOVE_OUT: Phase.ABSENT,
        Happening.END: Phase.ABSENT,
    },
    Phase.ARRIVING: {
        Happening.CLAIM_ENDS: Phase.ARRIVING,
        Happening.START_ENDS: Phase.ARRIVING,
        Happening.ARRIVE: Phase.ARRIVING,
        Happening.SETTLE: Phase.LIVE,
        Happening.MOVE_OUT: Phase.ABSENT,
        Happening.END: Phase.ABSENT,
    },
    Phase.LIVE: {
        Happening.CLAIM_ENDS: Phase.LIVE,
        Happening.START_ENDS: Phase.LIVE,
        Happening.ARRIVE: Phase.ARRIVING,
        Happening.MOVE_OUT: Phase.ABSENT,
        Happening.END: Phase.ABSENT,
    },
}
"""By phase: what may happen, and the phase that follows."""


class Attacher(NamedTuple):
    """A client that is attached as soon as the subscription is durable."""

    client: ClientName
    message: Subscribe

    @property
    def key(self) -> tuple[ClientName, int]:
        """The number that the client gave the subscription on its connection."""
        return self.client, self.message.subscription


class Ender(NamedTuple):
    """A client that wants the subscription to end, and is answered when its name is free."""

    client: ClientName
    message: Forget


class Unconfirmed(NamedTuple):
    """An acknowledgement that is answered when it is known that nobody finds an older copy."""

    client: ClientName
    request: int
    token: Mapping[str, int]


@dataclass(slots=True)
class Departure:
    """A life that is over: whose it was, and which clients wait until its name is free."""

    owner: str
    topic: TopicName
    enders: list[Ender] = field(default_factory=list)


@dataclass(slots=True)
class Record:
    """One name at one broker. Only `Table` changes it."""

    name: SubscriptionName
    phase: Phase = Phase.ABSENT
    is_claimed: bool = False
    """The registrar is being asked whose the name is."""

    starts: list[Subscribe] = field(default_factory=list)
    """Requests that wait for the start, in the order in which they came."""

    creations: dict[int, Attacher | None] = field(default_factory=dict)
    """First writes under way, by the subscription's number, and the client to attach."""

    session: Session | None = None
    """The client that is attached."""

    return_: Subscribe | None = None
    """The client came back from another broker before that one had told us to forget it."""

    next_return: Subscribe | None = None
    """The same while it was still arriving from somewhere else: taken up afterwards."""

    enders: list[Ender] = field(default_factory=list)
    """Clients that want it ended, which waits until it is nowhere else."""

    unconfirmed: list[Unconfirmed] = field(default_factory=list)
    departure: Departure | None = None
    """The life before this one, while its end is not durable."""

    @property
    def grant(self) -> Subscribe | None:
        """A request that waits for the start, under a name that is free and ours."""
        return next((each for each in self.starts if each.previous is None), None)

    @property
    def is_idle(self) -> bool:
        """Is there nothing here that the durable subscriptions do not say?"""
        waits = self.starts or self.creations or self.enders or self.unconfirmed or self.return_
        return self.phase is Phase.ABSENT and not waits and self.departure is None

    @property
    def serves_clients(self) -> bool:
        """Is a client attached, or does one wait for something?"""
        waits = self.starts or self.creations or self.unconfirmed or self.is_claimed
        return bool(waits or self.session is not None or self.departure is not None)

    def become(self, happening: Happening) -> None:
        """Take the step that the table says; a happening that it does not list is a defect."""
        following = TRANSITIONS[self.phase].get(happening)
        assert following is not None, f"{self.name!r} is {self.phase.value}: {happening.value}"
        self.phase = following
        if following is Phase.ABSENT:  # other clients may wait for it still
            if self.starts:
                self.become(Happening.START)
            elif self.is_claimed:
                self.become(Happening.CLAIM)
