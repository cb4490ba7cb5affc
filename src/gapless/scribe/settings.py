"""All limits and timers of the multicast service, in one place. Times are whole microseconds.

Source: docs/protocols/scribe.md, 3.7: the usual values of Pastry; timers of FreePastry, scaled.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from gapless.core.errors import UsageError

SECOND = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class RingSettings:
    """Limits and timers; see each field."""

    leaf_set_size: int = 16
    """Half of them on either side. Delivery is sure unless half a set of adjacent nodes fail
    together."""

    neighbourhood_max: int = 32
    """Near nodes that are remembered; beyond it the farthest goes."""

    ping_every: int = 2 * SECOND
    """How often members of a leaf set prove that they live."""

    dead_after: int = 6 * SECOND
    """A member of the leaf set that was not heard for this long counts as failed."""

    answer_patience: int = 1 * SECOND
    """How long a hop or a probe may stay unanswered before it is tried again."""

    join_repeat: int = 4 * SECOND
    """How often one that wants to join asks again, others this time."""

    attempts_max: int = 4
    """How often a probe is tried; then the node counts as failed. A hop is tried twice as often at
    one node, and then dropped: its sender sends it again if it matters."""

    pending_max: int = 4_096
    """Hops that are watched at a time; beyond it the oldest is no longer watched."""

    probes_max: int = 64
    """Nodes that are probed at a time; beyond it hearsay is not followed."""

    failed_max: int = 64
    """Failed nodes that are remembered; beyond it the one that failed first is forgotten."""

    revive_every: int = 10 * SECOND
    """How often a few failed nodes are probed: that is how halves of a split ring find together."""

    table_every: int = 60 * SECOND
    """How often one row of the routing table is compared with a node of that row."""

    heartbeat: int = 1 * SECOND
    """How often a parent shows its children that it lives, if no event did."""

    parent_dead_after: int = 3 * SECOND
    """A parent that was not heard for this long counts as failed: the tree is repaired."""

    subscribe_repeat: int = 2 * SECOND
    """How often one without a parent asks for one."""

    refresh_every: int = 5 * SECOND
    """How often a child confirms that it still wants a topic."""

    child_expiry: int = 15 * SECOND
    """A child that did not confirm for this long is forgotten."""

    topics_max: int = 1_000_000
    """Topics that one node takes part in; beyond it a subscription is refused, and a node further
    up the route gets the child."""

    children_max: int = 64
    """Children of one node in one tree; beyond it one more is sent to one of them."""

    replicas: int = 5
    """How many nodes keep what the root of a topic knows, itself included."""

    publish_repeat: int = 2 * SECOND
    """How long a publication may stay unanswered before it is routed again."""

    publish_attempts_max: int = 5
    """How often a best-effort publication is tried; then its publisher is told that it failed."""

    publish_pending_max: int = 1_024
    """Unanswered publications of one node; beyond it the next is refused."""

    publish_topics_max: int = 100_000
    """Topics that one node has published to; beyond it a publication to one more is refused. Its
    numbers must not begin again, so none is forgotten."""

    records_max: int = 1_000_000
    """Records of topics that one node keeps as root or replica; beyond it a new topic is refused,
    and a copy of a record is not taken."""

    recent_max: int = 1_024
    """Publications of a best-effort topic that its root remembers, so that one that comes again
    is not published again; beyond it the oldest is forgotten."""

    buffer_events_max: int = 1_024
    """Events that each node of an ordered topic keeps for those that missed them; beyond it the
    oldest goes, and one that asks for it is told that it is lost."""

    buffer_bytes_max: int = 4 << 20
    """The same in bytes. All of it must fit one message, to a node that takes a seat."""

    sources_max: int = 4_096
    """Publishers of an ordered topic whose last publication its root remembers; beyond it the one
    that was silent longest is forgotten."""

    replicate_every: int = 30 * SECOND
    """How often what roots know is sent to its replicas, or to the root by one that is not it, also
    if nothing changed: what is lost on the way comes again."""

    groups_max: int = 100_000
    """Ordered topics whose log, or the memory of a promise about it, one node keeps; beyond it the
    topic is refused here."""

    lead_repeat: int = 2 * SECOND
    """How long a root waits for a majority before it asks again."""

    def __post_init__(self) -> None:
        for each in fields(self):
            if getattr(self, each.name) <= 0:
                raise UsageError(f"{each.name} must be more than 0")
        if self.leaf_set_size % 2:
            raise UsageError("leaf_set_size must be even: half of it is on either side")
        if self.replicas > self.leaf_set_size // 2 + 1:
            raise UsageError("replicas must fit into half a leaf set: the root knows no others")

    def at_pace(self, heartbeat: int) -> RingSettings:
        """The same with all timers faster or slower, in proportion to the heartbeat."""
        timers = {name: getattr(self, name) * heartbeat // self.heartbeat for name in TIMERS}
        return replace(self, **timers)


TIMERS = (
    "ping_every",
    "dead_after",
    "answer_patience",
    "join_repeat",
    "revive_every",
    "table_every",
    "heartbeat",
    "parent_dead_after",
    "subscribe_repeat",
    "refresh_every",
    "child_expiry",
    "publish_repeat",
    "replicate_every",
    "lead_repeat",
)
