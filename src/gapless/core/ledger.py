"""A ledger: how much of a bounded resource each principal holds, and whether more fits.

Theory of operation
    A broker has a bound for each of its resources. If one client may take all of it, that client
    locks everybody else out. So each account of a ledger has two bounds: one for all together, and
    one for each principal, which is a part of the former and is checked first. A principal is
    the identity that a client has proved; decision 0028 says what counts as the principal where
    clients prove nothing. The empty name belongs to no principal: only the bound for all counts.
    A principal that holds nothing may take one thing as large as the bound for all allows: a bound
    for principals that is smaller than one frame or one transaction must not exclude it for ever.

Invariants (checked by `check`)
    I1  the total is the sum of what the principals hold; a principal that holds nothing has no
        entry
    I2  all together hold at most `total_max`

Cost: two look-ups for each change; a principal that holds nothing takes no memory.
"""

from __future__ import annotations

SHARE_PERCENT = 25
"""The share of a resource that one principal may hold, unless it is configured otherwise."""


def is_proved(who: str) -> bool:
    """Is this a proved identity? It is the same after a restart, so it may be written to disk."""
    return bool(who) and not who.startswith("@")


def show_who(who: str) -> str:
    """A principal as errors show it. A name that begins with @ is not proved."""
    return "this client" if who.startswith("@") else repr(who)


class Account:
    """How much of one resource each principal holds."""

    def __init__(self, what: str, total_max: int, share_percent: int = SHARE_PERCENT) -> None:
        """`what` names the resource in refusals: "publishers", "bytes of conditions"."""
        self.what = what
        self.total_max = total_max
        self.each_max = max(1, total_max * share_percent // 100)
        self.total = 0
        self._held: dict[str, int] = {}

    def held(self, who: str) -> int:
        return self._held.get(who, 0)

    def refusal(self, who: str, amount: int) -> str:
        """Why the principal may not take this amount; empty if it may."""
        held = self.held(who)
        if who and held and held + amount > self.each_max:
            limit = f"one principal may have {self.each_max}"
            return f"{show_who(who)} has {held} {self.what}, and {limit}"
        if self.total + amount > self.total_max:
            return f"there are {self.total} {self.what}, and the limit is {self.total_max}"
        return ""

    def take(self, who: str, amount: int = 1) -> None:
        """Count it. The caller has asked for room; what a restart finds counts in any case."""
        assert amount >= 0
        if amount:
            self._held[who] = self.held(who) + amount
            self.total += amount

    def give_back(self, who: str, amount: int = 1) -> None:
        if not amount:
            return
        left = self.held(who) - amount
        assert left >= 0, "I1"
        self.total -= amount
        if left:
            self._held[who] = left
        else:
            del self._held[who]

    def check(self) -> None:
        assert self.total == sum(self._held.values()), "I1"
        assert all(amount > 0 for amount in self._held.values()), "I1"
