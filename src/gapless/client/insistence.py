"""Insistence: a request that may be repeated without harm is put until it is answered.

Over new connections, where a broker says "later", and at whichever broker can serve it; but not
for longer than the client's patience, if each connection breaks before the answer comes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from gapless.client.elsewhere import ask_patiently
from gapless.client.errors import LinkError, RefusedError
from gapless.core.client_messages import Refused
from gapless.core.errors import GaplessError, WireError
from gapless.core.messages import Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.client.carrier import Carrier

Kind = TypeVar("Kind", bound=Message)


class Insisted(NamedTuple):
    """An answer, and whether the same was asked before and its answer lost."""

    message: Message
    was_asked: bool


async def insist(client: Carrier, make: Callable[[int], Message], about: str = "") -> Insisted:
    """Ask until an answer comes; `LinkError` when there is no connection for too long, or none
    that lasts."""
    loop, deadline_s = asyncio.get_running_loop(), None
    while True:
        match (await ask_patiently(client, make, about)).message:
            case LinkError() as error:
                deadline_s = deadline_s or loop.time() + client.patience_s
                if loop.time() >= deadline_s:
                    raise error
            case GaplessError() as error:
                raise error
            case answer:
                return Insisted(answer, was_asked=deadline_s is not None)


async def obtain(
    client: Carrier, make: Callable[[int], Message], kind: type[Kind], about: str = ""
) -> Kind:
    """The answer, which is of this kind; `RefusedError`: the broker said no, or "later" for all of
    `patience_s`."""
    answer = (await insist(client, make, about)).message
    if isinstance(answer, Refused):
        raise RefusedError(answer.problem, answer.remedy)
    if not isinstance(answer, kind):
        raise WireError(f"the broker answered {type(answer).__name__} to a request")
    return answer
