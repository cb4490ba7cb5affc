"""Requests: put to the broker that can serve them, and repeated until there is an answer.

Theory of operation
    Some requests only one broker can serve: a named publisher's events go to the log that knows its
    numbers, a topic is created at its owner. Any other broker refuses with addresses. The client
    keeps one further channel to each place that a refusal named, and repeats the request there. A
    refusal had no effect, so nothing happens twice. The client remembers, by what a request is
    `about`, where it was served, so that the next one goes there directly.
    A broker may also refuse with "later". The client then retries until its patience ends.
    A request that may be repeated without harm is repeated over new connections too.

Invariants
    I1  at most `OTHERS_MAX` further channels are open, and none once the client is closed
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from gapless.client.channel import Channel
from gapless.client.errors import LinkError, RefusedError
from gapless.core.client_messages import Refused
from gapless.core.errors import GaplessError, UsageError, WireError
from gapless.core.messages import Message

if TYPE_CHECKING:
    from collections.abc import Callable

OTHERS_MAX = 64
"""Further channels; beyond it the one that was idle longest is closed. If none is idle, the request
that needs one more fails."""

PLACES_MAX = 10_000
"""Requests whose place is remembered; beyond it all places are forgotten."""

RETRY_S, RETRY_LONGEST_S = 0.01, 0.5
HOPS_MAX = 4
"""How often one request is redirected before its refusal counts."""

Kind = TypeVar("Kind", bound=Message)


class FurtherChannel(Channel, Protocol):
    """A channel that ends when it is not needed any more."""

    @property
    def is_idle(self) -> bool: ...
    async def close(self) -> None: ...


class OtherBrokers:
    """The further channels of one client. `connect` makes a channel to the first of several
    addresses that answers."""

    def __init__(self, connect: Callable[[str], FurtherChannel]) -> None:
        self._connect = connect
        self._channels: dict[tuple[str, ...], FurtherChannel] = {}
        self._places: dict[str, tuple[str, ...]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def at(self, addresses: tuple[str, ...]) -> Channel:
        """The channel to one of these; it may not be up yet."""
        channel = self._channels.pop(addresses, None)
        if channel is None:
            if len(self._channels) >= OTHERS_MAX:
                self._make_room()
            channel = self._connect(",".join(addresses))
        self._channels[addresses] = channel  # the last used stands last
        return channel

    def _make_room(self) -> None:
        idle = next((place for place, each in self._channels.items() if each.is_idle), None)
        if idle is None:
            raise UsageError(
                f"this client is connected to {OTHERS_MAX} other brokers, all of them in use",
                "Use one client for each part of the topics.",
            )
        closing = asyncio.ensure_future(self._channels.pop(idle).close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def last_used(self, about: str) -> Channel | None:
        """The channel that served a request about this before, if it is up."""
        place = self._places.get(about)
        channel = self._channels.get(place) if place is not None else None
        return channel if channel is not None and channel.is_up else None

    def remember(self, about: str, addresses: tuple[str, ...] | None) -> None:
        if addresses is None:
            self._places.pop(about, None)
        elif about:
            if len(self._places) >= PLACES_MAX:
                self._places.clear()
            self._places[about] = addresses

    async def close(self) -> None:
        channels, self._channels = list(self._channels.values()), {}
        await asyncio.gather(*(each.close() for each in channels), *self._closing)


class RoutedReply(NamedTuple):
    """A reply, and the channel that it came on: requests of the same kind may go there."""

    message: Message | GaplessError
    channel: Channel


async def ask_with_redirects(
    client: Channel, make: Callable[[int], Message], about: str = ""
) -> RoutedReply:
    """Put a request to the broker that can serve it: the reply, or why there is none."""
    others = client.other_brokers
    at = others.last_used(about) or client
    for _ in range(HOPS_MAX):
        got = await at.ask(make)
        match got:
            case Refused(elsewhere=addresses) if addresses:
                at = others.at(addresses)
                others.remember(about, addresses)
            case _:
                if isinstance(got, Refused | GaplessError):
                    others.remember(about, None)
                return RoutedReply(got, at)
    return RoutedReply(got, at)


async def ask_with_retries(
    client: Channel, make: Callable[[int], Message], about: str = ""
) -> RoutedReply:
    """As `ask_with_redirects`, again while the reply is "later", for at most `patience_s`."""
    loop = asyncio.get_running_loop()
    deadline_s, retry_s = loop.time() + client.patience_s, RETRY_S
    while True:
        reply = await ask_with_redirects(client, make, about)
        got = reply.message
        if not isinstance(got, Refused) or not got.retry or loop.time() >= deadline_s:
            return reply
        if retry_s == RETRY_S:
            reply.channel.report("retrying", got.problem)
        await asyncio.sleep(retry_s)
        retry_s = min(2 * retry_s, RETRY_LONGEST_S)


class RepeatedReply(NamedTuple):
    """A reply, and whether an earlier reply to the same request may have been lost."""

    message: Message
    was_asked: bool


async def ask_until_answered(
    client: Channel, make: Callable[[int], Message], about: str = ""
) -> RepeatedReply:
    """As `ask_with_retries`, again on each new connection; `LinkError` when there is none, or none
    that lasts, for `patience_s`. Only for requests that may be repeated."""
    loop, deadline_s = asyncio.get_running_loop(), None
    while True:
        match (await ask_with_retries(client, make, about)).message:
            case LinkError() as error:
                deadline_s = deadline_s or loop.time() + client.patience_s
                if loop.time() >= deadline_s:
                    raise error
            case GaplessError() as error:
                raise error
            case answer:
                return RepeatedReply(answer, was_asked=deadline_s is not None)


async def ask_for(
    client: Channel, make: Callable[[int], Message], kind: type[Kind], about: str = ""
) -> Kind:
    """The reply of this kind, as `ask_until_answered` gets it; `RefusedError` if the broker refuses
    for good, or says "later" for all of `patience_s`."""
    answer = (await ask_until_answered(client, make, about)).message
    if isinstance(answer, Refused):
        raise RefusedError(answer.problem, answer.remedy)
    if not isinstance(answer, kind):
        raise WireError(f"the broker answered {type(answer).__name__} to a request")
    return answer
