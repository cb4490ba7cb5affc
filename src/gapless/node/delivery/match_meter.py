"""MatchMeter: what matching may cost: by condition when it is asked for, by step when events come.

Theory of operation
    `filters.cost` estimates what conditions cost an event. A subscription whose condition would
    make an event of its topic dearer than `condition_cost_max`, all conditions together, is
    refused; before that, where it is known who asks, one that would make those of its principal
    dearer than `principal_condition_cost_max`. Equal conditions are matched once, and count once.
    So one event is never dear. Many are, as where a gap has closed: a batch is delivered in slices,
    each of at most one message (`batch_events_max`), and is matched for at most `turn_cost_max`
    units between two calls of `begin_turn`, which is when the node is woken; what is left of a
    batch waits in its stream and is due at once, after everybody else has had a turn. Whose batch
    found no room at all goes before those that had some.

Invariants (checked by `check`)
    I1  a share exists exactly while it has a condition, and its load is that of its conditions
    I2  there is a deadline exactly while something was left
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.identity import Instant
from gapless.filters.cost import MatchingLoad, charges_of

if TYPE_CHECKING:
    from gapless.core.client_messages import Order
    from gapless.core.identity import PubendName, TopicName
    from gapless.filters.cost import Charge
    from gapless.filters.filter import Filter
    from gapless.node.config import Config

    Place = tuple[TopicName, Order]
    Batch = tuple[TopicName, PubendName | None]

EVERYBODY = ""
"""In place of a principal: all conditions of a place."""

EVENT_COST = 100
"""What an event costs whatever is asked for, in units of `filters.cost`."""

TEXT_BYTES = 200
"""An event of so many bytes costs what `filters.cost` says; a longer one as much more."""

FRAME_BYTES = 1 << 24
"""More than any batch has."""

REMEDY = (
    "Use fewer patterns and calculations, or demand a value of some attribute (a = 'x') beside "
    "them, or another topic."
)


class Share:
    """The conditions of one place, of one principal or of all, each once."""

    def __init__(self) -> None:
        self.load = MatchingLoad()
        self.counts: dict[Filter, int] = {}

    def cost_with(self, condition: Filter, charges: tuple[Charge, ...], limit: int) -> int:
        """What an event would cost with this condition; exact where that is beyond the limit."""
        if condition in self.counts:
            return 0
        if self.load.worst_with(charges) > limit:
            self.load.recount()
        return self.load.worst_with(charges)


class MatchMeter:
    """One broker's."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._shares: dict[tuple[Place, str], Share] = {}
        self._spent = 0
        self._turned_away: dict[Batch, None] = {}
        self._cut: dict[Batch, None] = {}
        self.deadline: Instant | None = None
        self.slices = 0  # of batches that were not delivered at once

    # --- conditions -------------------------------------------------------------------------------

    def refusal(self, place: Place, owner: str, condition: Filter) -> tuple[str, str] | None:
        """Why this condition is one too many, and what to do; None if it is not."""
        config, charges = self._config, charges_of(condition)
        limits = {owner: config.principal_condition_cost_max} if owner else {}
        limits[EVERYBODY] = config.condition_cost_max
        for who, limit in limits.items():
            share = self._shares.get((place, who)) or Share()
            cost = share.cost_with(condition, charges, limit)
            if cost > limit:
                own = Share().cost_with(condition, charges, limit)
                whose = f"those that {who!r} has" if who else "those that there are"
                problem = (
                    f"to match this condition may cost an event {own} units, together with {whose} "
                    f"on topic {place[0]!r} {cost}, and the limit is {limit}"
                )
                return problem, REMEDY
        return None

    def add(self, place: Place, owner: str, condition: Filter) -> None:
        """A subscription with this condition is there."""
        charges: tuple[Charge, ...] | None = None
        for who in dict.fromkeys((EVERYBODY, owner)):
            share = self._shares.setdefault((place, who), Share())
            if condition not in share.counts:
                charges = charges_of(condition) if charges is None else charges
                share.load.add(charges)
            share.counts[condition] = share.counts.get(condition, 0) + 1

    def remove(self, place: Place, owner: str, condition: Filter) -> None:
        charges: tuple[Charge, ...] | None = None
        for who in dict.fromkeys((EVERYBODY, owner)):
            share = self._shares[place, who]
            share.counts[condition] -= 1
            if not share.counts[condition]:
                del share.counts[condition]
                charges = charges_of(condition) if charges is None else charges
                share.load.remove(charges)
            if not share.counts:
                del self._shares[place, who]

    def cost(self, place: Place) -> int:
        """What one event may cost there, in units."""
        share = self._shares.get((place, EVERYBODY))
        return EVENT_COST + (share.load.worst if share is not None else 0)

    # --- batches ----------------------------------------------------------------------------------

    def begin_turn(self) -> None:
        self._spent = 0

    def room(self, place: Place) -> int:
        """How many events may be matched now; at least one where nothing was matched yet."""
        left = self._config.turn_cost_max - self._spent
        return max(int(not self._spent), left // self.cost(place))

    def room_bytes(self, place: Place) -> int:
        """How many bytes these may have: patterns are searched for in all of a text."""
        dear = self.cost(place) - EVENT_COST
        left = max(0, self._config.turn_cost_max - self._spent)
        return left * TEXT_BYTES // dear if dear else FRAME_BYTES

    def spend(self, place: Place, events: int, size: int = 0) -> None:
        cost = self.cost(place)
        self._spent += max(events * cost, size * (cost - EVENT_COST) // TEXT_BYTES)

    def leave(self, batch: Batch, now: Instant, *, had_some: bool) -> None:
        """Something of a batch is left for another turn."""
        self.slices += 1
        (self._cut if had_some else self._turned_away)[batch] = None
        self.deadline = self.deadline if self.deadline is not None else Instant(now + 1)

    def ripe(self, now: Instant) -> list[Batch]:
        """Those of which something was left; it is the caller's now."""
        if self.deadline is None or now < self.deadline:
            return []
        left = list(dict.fromkeys((*self._turned_away, *self._cut)))
        self._turned_away, self._cut, self.deadline = {}, {}, None
        return left

    def check(self) -> None:
        assert all(share.counts for share in self._shares.values()), "I1"
        for share in self._shares.values():
            share.load.check()
        assert (self.deadline is not None) == bool(self._turned_away or self._cut), "I2"
