"""Asking until there is an answer: over new connections, and where a broker says "later"."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from gapless.client.errors import LinkError, RefusedError
from gapless.core.client_messages import Refused
from gapless.core.errors import GaplessError, WireError
from gapless.core.messages import Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.client.carrier import Carrier

RETRY_S, RETRY_LONGEST_S = 0.01, 0.5
Kind = TypeVar("Kind", bound=Message)


async def ask_patiently(carrier: Carrier, make: Callable[[int], Message], kind: type[Kind]) -> Kind:
    """The answer to a request that may be repeated without harm.

    `RefusedError`: the broker said no, or "later" for all of `patience_s`. `LinkError`: there was
    no connection for so long.
    """
    loop = asyncio.get_running_loop()
    deadline_s, retry_s = loop.time() + carrier.patience_s, RETRY_S
    while True:
        match await carrier.ask(make):
            case Refused(retry=True) if loop.time() < deadline_s:
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, RETRY_LONGEST_S)
            case Refused(problem=problem, remedy=remedy):
                raise RefusedError(problem, remedy)
            case LinkError():
                pass  # on the next connection; `ask` raises when there is none
            case GaplessError() as error:
                raise error
            case answer:
                if not isinstance(answer, kind):
                    raise WireError(f"the broker answered {type(answer).__name__} to a request")
                return answer
