"""`subscribe`: one signature and one explanation for the asyncio client and for `gapless.sync`.

The two clients differ in what it returns, which the type parameters say.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar, overload

from gapless.client.subscription_options import check_group, check_options, check_parts
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.client.subscription_options import (
        Acknowledging,
        Interruption,
        Start,
        SubscriptionOptions,
    )
    from gapless.core.client_messages import Order

SubscriptionT = TypeVar("SubscriptionT")
GroupT = TypeVar("GroupT")
JointT = TypeVar("JointT")


class SubscribeMethod(Generic[SubscriptionT, GroupT, JointT]):
    """A part of a client: see the module docstring."""

    @overload
    def subscribe(
        self,
        topic: str,
        condition: str = "",
        *,
        name: str | None = None,
        order: Order = "publisher",
        start: Start = "latest",
        tokens: Acknowledging = "client",
        interruption: Interruption = "raise",
        silence: bool = False,
    ) -> SubscriptionT: ...

    @overload
    def subscribe(
        self,
        topic: str,
        condition: str = "",
        *,
        name: str,
        start: Start = "latest",
        share_by: str,
        attempts_max: int | None = None,
        dead_letters: str | None = None,
        in_hand_max: int | None = None,
    ) -> GroupT: ...

    @overload
    def subscribe(
        self,
        topic: list[str] | tuple[str, ...],
        condition: str = "",
        *,
        name: str | None = None,
        order: Order = "publisher",
        start: Start = "latest",
        tokens: Acknowledging = "client",
        interruption: Interruption = "raise",
        silence: bool = False,
    ) -> JointT: ...

    def subscribe(
        self,
        topic: str | list[str] | tuple[str, ...],
        condition: str = "",
        *,
        name: str | None = None,
        order: Order = "publisher",
        start: Start = "latest",
        tokens: Acknowledging = "client",
        interruption: Interruption = "raise",
        silence: bool = False,
        share_by: str | None = None,
        attempts_max: int | None = None,
        dead_letters: str | None = None,
        in_hand_max: int | None = None,
    ) -> SubscriptionT | GroupT | JointT:
        """Every event that matches, once and in order: to enter, and to iterate over.

        With a `name` it is durable: it counts while nobody is connected, until `unsubscribe`. The
        first time it starts at `start`. Later it goes on from `start` if that is a token, and
        otherwise from what is acknowledged. `tokens="broker"`: what is finished is acknowledged by
        itself; `tokens="each"`: each event, before the next one. Without a name it starts now and
        ends with its connection; `interruption` says what happens then: "raise" a
        `SubscriptionInterruptedError`, or go on after a `Gap` ("gap").

        `topic` may be a list of topics: one subscription over all of them, with one token, and the
        condition for each. `order="total"` is then one order over all pubends of all topics, and
        needs a name.

        With `share_by`, an attribute, it is a group: any number of clients attach under the name,
        each event goes to one of them, and events with the same value of the attribute go to the
        same one, in order. `finish` or asking for the next event ends the work on one; `reject`
        gives it back. After `attempts_max` attempts it goes to the topic `dead_letters`. The broker
        hands out at most `in_hand_max` events that are not finished; `take(finishes=False)` takes
        them without finishing the one before.
        """
        if isinstance(topic, list | tuple):
            if (share_by, attempts_max, dead_letters, in_hand_max) != (None, None, None, None):
                problem = "a group is on one topic: its order is that of keys in it"
                raise UsageError(problem, "Make a group for each topic, or leave share_by out.")
            parts = check_parts(
                topic,
                condition,
                name=name,
                order=order,
                start=start,
                tokens=tokens,
                interruption=interruption,
                silence=silence,
            )
            return self._make_joint(parts)
        options = check_options(
            topic,
            condition,
            name=name,
            order=order,
            start=start,
            tokens=tokens,
            interruption=interruption,
            silence=silence,
        )
        if share_by is not None:
            group = check_group(options, share_by, attempts_max, dead_letters, in_hand_max)
            return self._make_group(group)
        if (attempts_max, dead_letters, in_hand_max) != (None, None, None):
            raise UsageError(
                "only a group has attempts_max, dead_letters and in_hand_max", "Give share_by, too."
            )
        return self._make_subscription(options)

    @abstractmethod
    def _make_subscription(self, options: SubscriptionOptions) -> SubscriptionT: ...
    @abstractmethod
    def _make_group(self, options: SubscriptionOptions) -> GroupT: ...
    @abstractmethod
    def _make_joint(self, parts: Sequence[SubscriptionOptions]) -> JointT: ...
