"""A ledger: who holds how much of something that is bounded, and whether there is room for more.

Theory of operation
    A broker has a bound for each of its resources. If one client may take all of it, that client
    locks everybody else out. So each account of a ledger has two bounds: one for all together, and
    one for each principal, which is a part of the former and is checked first. A principal is
    whoever a client has proved to be; decision 0028 says who it is where nobody proves anything.
    The empty name is nobody's in particular: only the bound of all counts for it.
    Whoever holds nothing may take one thing as large as fits the bound of all: a bound for
    principals that is smaller than one frame or one transaction must not exclude it for ever.

Invariants (checked by `check`)
    I1  what all hold is the sum of what each holds, and nobody holds less than something
    I2  all together hold at most `total_max`

Cost: two look-ups for each change; a principal that holds nothing takes no memory.
"""

from __future__ import annotations

SHARE_PERCENT = 25
"""What one principal may hold of what there is, unless it is configured otherwise."""


def is_proved(who: str) -> bool:
    """Is it somebody that will be the same after a restart? Then it may be written down."""
    return bool(who) and not who.startswith("@")


def show_who(who: str) -> str:
    """A principal, for people. One that begins with @ has not proved who it is."""
    return "this client" if who.startswith("@") else repr(who)


class Account:
    """Who holds how much of one resource."""

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
        """Why `who` may not take so much more; empty: it may."""
        held = self.held(who)
        if who and held and held + amount > self.each_max:
            limit = f"one principal may have {self.each_max}"
            return f"{show_who(who)} has {held} {self.what}, and {limit}"
        if self.total + amount > self.total_max:
            return f"there are {self.total} {self.what}, and the limit is {self.total_max}"
        return ""

    def take(self, who: str, amount: int = 1) -> None:
        """Whether there is room was asked before; what a restart finds counts all the same."""
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
