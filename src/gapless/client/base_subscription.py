"""What a subscription and a member of a group have in common: beginning, waiting, coming back.

Theory of operation
    A subscription asks for itself when it is entered, until a broker has it or the patience of the
    channel is over. After a lost connection it asks once on each new connection. A broker may
    refuse for now, redirect, or refuse for good, which ends the subscription.
    One task at a time waits for what comes.

Invariants
    I1  nothing counts for it before its `Subscribed` on the present connection (`_is_live`)
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from gapless.client.channel import Subscriber
from gapless.client.errors import LinkError, RefusedError, SubscriptionInterruptedError
from gapless.client.home import SubscriptionHome
from gapless.core.client_messages import Refused, Subscribed, Unsubscribe
from gapless.core.errors import GaplessError, UsageError, WireError
from gapless.core.token import Token

if TYPE_CHECKING:
    from gapless.client.channel import Channel
    from gapless.client.subscription_options import SubscriptionOptions
    from gapless.core.client_messages import Subscribe
    from gapless.core.messages import Message


class BaseSubscription(Subscriber):
    """See the module docstring."""

    def __init__(self, channel: Channel, options: SubscriptionOptions) -> None:
        self.options = options
        self.topic = options.topic
        self.order = options.order
        self.tells_silence = options.silence
        self._home = SubscriptionHome(channel, options, self)
        self._has_started = self._is_live = self._is_over = False
        self._error: GaplessError | None = None
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None  # of the task that iterates

    @property
    def address(self) -> str:
        """The address of its broker: not always the one that the client is connected to."""
        return self._channel.address

    @property
    def _channel(self) -> Channel:
        return self._home.channel

    def __aiter__(self) -> Self:
        return self

    async def __aenter__(self) -> Self:
        self._home.begin()
        try:
            deadline_s = self._loop.time() + self._channel.patience_s
            while not await self._subscribe(deadline_s):
                pass
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """End it here."""
        if number := self._home.number:
            self._home.leave()
            self._channel.send(Unsubscribe(number))

    # --- waiting ---------------------------------------------------------------------------------

    async def _wait(self) -> None:
        self._home.check_entered()
        if self._waiter is not None:
            raise UsageError("another task waits for this subscription", "Read it in one of them.")
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _tell_change(self) -> None:
        """Requests that wait for an answer learn that the subscription has changed."""

    # --- beginning, and coming back --------------------------------------------------------------

    def end(self, error: GaplessError | None) -> None:
        if not self._is_over:
            self._is_over = True
            self._is_live = False
            self._error = error
        self._tell_change()
        self._wake()

    def resume(self) -> None:
        """A connection is up: go on there."""
        if not self._has_started or self._is_over or self._is_live or not self._home.may_ask():
            return
        self._channel.send(self._message(self._channel.request(self._answered)))

    def _resume_if_up(self) -> None:
        """If the channel is down, the inbox resumes it later."""
        if self._channel.is_up:
            self.resume()

    def _message(self, request: int) -> Subscribe:
        return self._home.message(request, None, Token())

    async def _subscribe(self, deadline_s: float) -> bool:
        """Ask for it once. False: the connection broke or the broker said "later"; ask again."""
        match await self._channel.ask(self._message):
            case Subscribed() as subscribed:
                self._home.check(subscribed)
                return True
            case Refused(problem=problem, remedy=remedy) as refused:
                pause_s = self._home.refused(refused)
                if pause_s is None or self._loop.time() >= deadline_s:
                    raise RefusedError(problem, remedy)
                if pause_s:
                    self._channel.report("retrying", problem)
                await asyncio.sleep(pause_s)
                return False
            case LinkError() if self._loop.time() < deadline_s:
                return False
            case GaplessError() as error:
                raise error
            case other:
                raise WireError(f"the broker answered {type(other).__name__} to a Subscribe")

    def _answered(self, answer: Message | GaplessError) -> None:
        """The reply to a restart. If the connection broke again, `resume` follows."""
        if not isinstance(answer, Refused):
            return
        try:
            pause_s = self._home.refused(answer)
        except GaplessError as error:  # the redirect cannot be followed
            self.end(error)
            return
        if pause_s is not None:
            self._loop.call_later(pause_s, self._resume_if_up)
            return
        self._home.leave()
        self.end(SubscriptionInterruptedError(answer.problem, answer.remedy))
