"""Token: what a subscriber has consumed, as one position for each pubend.

Theory of operation
    `{pubend: tick}` says that everything of that pubend below `tick` is consumed; of a pubend that
    is not named, nothing is. Tokens are a lattice, pubend by pubend: `join` is the furthest of two
    and `meet` the safest to go on from (a repeat rather than a loss). Two tokens may be
    incomparable: each ahead on another pubend.
    The text is JSON with sorted names and no spaces, so that equal tokens are equal texts, as
    Spark wants its offsets. A position of 0 says nothing and is left out.

Invariants
    I1  every tick is in 1..TICK_MAX; names are sorted

Source: DSN 2003, sec. 2 (checkpoint token). Deviation: the paper's token names the last consumed
tick; ours, as all positions here, the first that is not.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from gapless.core.errors import UsageError
from gapless.core.ticks import TICK_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gapless.core.identity import PubendName

TOKEN_CHARACTERS_MAX = 1 << 20
"""A longer text is refused."""

REMEDY = 'Give a token as a subscription gave it, such as {"trades/0":1234}.'


class Token:
    """Immutable; hashable; partially ordered by `<=`. See the module docstring."""

    __slots__ = ("_ticks",)

    def __init__(self, ticks: Mapping[PubendName, int] | Mapping[str, int] | None = None) -> None:
        given = {str(name): tick for name, tick in (ticks or {}).items()}
        for name, tick in given.items():
            if type(tick) is not int or not 0 <= tick <= TICK_MAX:
                raise UsageError(f"{tick!r} is no tick, in the token at {name!r}", REMEDY)
        self._ticks: dict[str, int] = {name: given[name] for name in sorted(given) if given[name]}

    # --- text -----------------------------------------------------------------------------------

    @classmethod
    def from_json(cls, text: str) -> Token:
        if len(text) > TOKEN_CHARACTERS_MAX:
            raise UsageError(f"a token of {len(text)} characters is too long", REMEDY)
        try:
            pairs = json.loads(text, object_pairs_hook=tuple)
            text.encode()
        except (ValueError, RecursionError) as error:
            raise UsageError(f"the token is not JSON: {error}", REMEDY) from error
        if not isinstance(pairs, tuple):
            raise UsageError("the token is not a JSON object", REMEDY)
        ticks = dict(pairs)
        if len(ticks) != len(pairs):
            raise UsageError("the token names a pubend twice", REMEDY)
        if not all(name.isprintable() for name in ticks):
            raise UsageError("the token has a name that cannot be printed", REMEDY)
        return cls(ticks)

    def to_json(self) -> str:
        return json.dumps(self._ticks, separators=(",", ":"), ensure_ascii=False)

    # --- positions ------------------------------------------------------------------------------

    def get(self, pubend: PubendName | str) -> int:
        """Everything of the pubend below this tick is consumed."""
        return self._ticks.get(pubend, 0)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(self._ticks.items())

    def __len__(self) -> int:
        return len(self._ticks)

    # --- order ----------------------------------------------------------------------------------

    def __le__(self, other: Token) -> bool:
        return all(tick <= other.get(name) for name, tick in self)

    def __ge__(self, other: Token) -> bool:
        return other <= self

    def __lt__(self, other: Token) -> bool:
        return self <= other and self != other

    def __gt__(self, other: Token) -> bool:
        return other < self

    def is_comparable(self, other: Token) -> bool:
        return self <= other or other <= self

    def join(self, other: Token) -> Token:
        """The furthest of both, pubend by pubend: consumed according to either."""
        names = self._ticks.keys() | other._ticks.keys()
        return Token({name: max(self.get(name), other.get(name)) for name in names})

    def meet(self, other: Token) -> Token:
        """The safest of both, pubend by pubend: consumed according to both."""
        return Token({name: min(tick, other.get(name)) for name, tick in self})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Token) and self._ticks == other._ticks

    def __hash__(self) -> int:
        return hash(tuple(self._ticks.items()))

    def __repr__(self) -> str:
        return f"Token({self.to_json()})"
