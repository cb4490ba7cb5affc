"""Elsewhere: the other brokers that a client was sent to, and requests that follow.

Theory of operation
    Some requests only one broker can serve: a named publisher's events go to the log that knows
    its numbers, a topic is created at its owner. Any other broker refuses with addresses. The
    client keeps one further connection to each place it was sent to, which comes back by itself
    like its own, and repeats the request there; a refusal had no effect, so that nothing happens
    twice. Where a request led is remembered under what it is `about`, so that the next of its kind
    does not go the long way.

Invariants
    I1  at most `OTHERS_MAX` further connections are open, and none once the client is closed
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gapless.core.client_messages import Refused
from gapless.core.errors import GaplessError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.client.carrier import Carrier
    from gapless.core.messages import Message

OTHERS_MAX = 64
"""Further connections; beyond it the one that was idle longest is closed. Where none is idle, the
request that needs one more fails."""

REMEMBERED_MAX = 10_000
"""Kinds of request whose place is remembered; beyond it all are found out anew."""

RETRY_S, RETRY_LONGEST_S = 0.01, 0.5
HOPS_MAX = 4
"""How often one request is sent elsewhere before its refusal counts."""


class Other(Protocol):
    """A further connection, and how it ends."""

    @property
    def is_idle(self) -> bool: ...
    @property
    def is_up(self) -> bool: ...
    @property
    def carrier(self) -> Carrier: ...
    async def close(self) -> None: ...


class Others:
    """The further connections of one client. `connect` makes one, to the first of
    several addresses that answers."""

    def __init__(self, connect: Callable[[str], Other]) -> None:
        self._connect = connect
        self._by_place: dict[tuple[str, ...], Other] = {}
        self._places: dict[str, tuple[str, ...]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def at(self, addresses: tuple[str, ...]) -> Carrier:
        """The connection to one of these; it may have to come up first."""
        other = self._by_place.pop(addresses, None)
        if other is None:
            if len(self._by_place) >= OTHERS_MAX:
                self._make_room()
            other = self._connect(",".join(addresses))
        self._by_place[addresses] = other  # the last used stands last
        return other.carrier

    def _make_room(self) -> None:
        idle = next((place for place, each in self._by_place.items() if each.is_idle), None)
        if idle is None:
            raise UsageError(
                f"this client is connected to {OTHERS_MAX} other brokers, all of them in use",
                "Use one client for each part of the topics.",
            )
        closing = asyncio.ensure_future(self._by_place.pop(idle).close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def remembered(self, about: str) -> Carrier | None:
        """Where a request like this led before, if a connection to there is up."""
        place = self._places.get(about)
        other = self._by_place.get(place) if place is not None else None
        return other.carrier if other is not None and other.is_up else None

    def remember(self, about: str, addresses: tuple[str, ...] | None) -> None:
        if addresses is None:
            self._places.pop(about, None)
        elif about:
            if len(self._places) >= REMEMBERED_MAX:
                self._places.clear()
            self._places[about] = addresses

    async def close(self) -> None:
        others, self._by_place = list(self._by_place.values()), {}
        await asyncio.gather(*(each.close() for each in others), *self._closing)


class Answer(NamedTuple):
    """What came back, and from where; more of the same kind may go there."""

    message: Message | GaplessError
    carrier: Carrier


async def ask_patiently(client: Carrier, make: Callable[[int], Message], about: str = "") -> Answer:
    """The same, again and again while the answer is "later", for as long as the client waits."""
    loop = asyncio.get_running_loop()
    deadline_s, retry_s = loop.time() + client.patience_s, RETRY_S
    while True:
        answer = await ask_anywhere(client, make, about)
        got = answer.message
        if not isinstance(got, Refused) or not got.retry or loop.time() >= deadline_s:
            return answer
        await asyncio.sleep(retry_s)
        retry_s = min(2 * retry_s, RETRY_LONGEST_S)


async def ask_anywhere(client: Carrier, make: Callable[[int], Message], about: str = "") -> Answer:
    """Put a request to whichever broker can serve it: the answer, or why there is none."""
    others = client.others
    at = others.remembered(about) or client
    for _ in range(HOPS_MAX):
        got = await at.ask(make)
        match got:
            case Refused(elsewhere=addresses) if addresses:
                at = others.at(addresses)
                others.remember(about, addresses)
            case _:
                if isinstance(got, Refused | GaplessError):
                    others.remember(about, None)
                return Answer(got, at)
    return Answer(got, at)
