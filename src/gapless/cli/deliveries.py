"""What `gapless subscribe` does with deliveries: print them, journal them, keep the token."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from gapless.cli.connection import connected
from gapless.cli.terminal import json_text, say, screen_width, visible
from gapless.client.delivery import Gap, Silence
from gapless.client.errors import SubscriptionInterruptedError
from gapless.client.json_values import delivery_fields
from gapless.core.errors import GaplessError, UsageError
from gapless.core.events import Event
from gapless.filters.show import show_attribute

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gapless.cli.token_file import DeliveryJournal, TokenFile
    from gapless.client.client import Client
    from gapless.client.delivery import Delivery
    from gapless.client.joint_subscription import JointSubscription
    from gapless.client.subscription import Subscription
    from gapless.client.subscription_options import Start
    from gapless.core.client_messages import Order

SAVE_S = 0.25
"""How often the token file is brought up to date."""

INTERRUPTED = "gapless: the connection broke; what was published until it is there again is missed"

MISSED = "what is published there, or behind, is missed until then"

REACHED = "all brokers are reached: whatever is published from now on comes"

TIME = "%Y-%m-%d %H:%M:%S.%f"
BODY_WIDTH_MIN = 20

END_S = 2.0
"""How long the end waits until the broker knows it, too. The file has it in any case."""


class Output:
    """Where deliveries go, and what must be on disk before they are acknowledged."""

    def __init__(
        self, journal: DeliveryJournal | None, kept: TokenFile | None, count: int, *, as_json: bool
    ) -> None:
        self.keeps_token = kept is not None
        self._journal = journal
        self._kept = kept
        self._left = count or -1
        self._as_json = as_json
        self._width = screen_width()

    def put(self, item: Delivery) -> bool:
        """Whether it was the last one wanted."""
        line = show_json(item) if self._as_json or self._journal else ""
        say(line if self._as_json else show(item, self._width))
        if self._journal is not None:
            self._journal.write(line)
        self._left -= isinstance(item, Event)
        return self._left == 0

    def save(self, subscription: Subscription | JointSubscription) -> bool:
        """Make durable what was put out; whether there was anything new."""
        if self._journal is not None:
            self._journal.sync()
        return self._kept is not None and self._kept.write(subscription.token)


async def print_all(
    url: str,
    topic: str,
    condition: str,
    name: str,
    start: Start,
    output: Output,
    *,
    total: bool,
) -> None:
    order: Order = "total" if total else "publisher"
    topics = topic.split(",")
    async with connected(url) as client:
        tells_gaps = name or not await is_reliable(client, topics)
        subscribe = partial(
            client.subscribe,
            condition=condition,
            name=name or None,
            order=order,
            start=start,
            tokens="broker" if name and not output.keeps_token else "client",
            interruption="gap" if tells_gaps else "raise",
        )
        while True:
            subscription: Subscription | JointSubscription = (
                subscribe(topic) if len(topics) == 1 else subscribe(topics)
            )
            try:
                async with (
                    subscription,
                    reach_told(subscription, f"subscribed to {topic} at {subscription.address}"),
                    saved(subscription, output),
                ):
                    async for item in subscription:
                        if output.put(item):
                            return
            except SubscriptionInterruptedError:
                if tells_gaps:
                    raise
                say(INTERRUPTED, err=True)


class GroupRequest(NamedTuple):
    """The group that is to be joined, as the command line gives it."""

    topic: str
    condition: str
    name: str
    start: Start
    share_by: str
    attempts_max: int | None
    dead_letters: str | None


async def print_share(url: str, group: GroupRequest, output: Output) -> None:
    """Print what this member of a group gets."""
    if not group.name:
        raise UsageError("a group needs a name", "Give --name, the same to all members.")
    async with (
        connected(url) as client,
        client.subscribe(
            group.topic,
            group.condition,
            name=group.name,
            start=group.start,
            share_by=group.share_by,
            attempts_max=group.attempts_max,
            dead_letters=group.dead_letters,
        ) as subscription,
    ):
        say(f"joined {group.name} at {subscription.address}", err=True)
        async for item in subscription:
            if output.put(item):
                return


async def is_reliable(client: Client, topics: list[str]) -> bool:
    """Does nobody know what was missed by one who was away?"""
    found = await client.topics()
    return any(each.name in topics and each.service == "reliable" for each in found)


@asynccontextmanager
async def reach_told(
    subscription: Subscription | JointSubscription, beginning: str
) -> AsyncIterator[None]:
    """Say that it has begun; and what it misses as yet, if anything, and when it does no more."""

    async def tell_reached() -> None:
        await subscription.reached()
        say(REACHED, err=True)

    if not subscription.unreached:
        say(beginning, err=True)
        yield
        return
    brokers = ", ".join(subscription.unreached)
    say(f"{beginning}; not reached yet: {brokers} ({MISSED})", err=True)
    telling = asyncio.create_task(tell_reached())
    try:
        yield
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)


@asynccontextmanager
async def saved(
    subscription: Subscription | JointSubscription, output: Output
) -> AsyncIterator[None]:
    """Keep the token file up to date meanwhile, and at the end, however it comes."""

    async def keep_saving() -> None:
        while True:
            await save(subscription, output)
            await asyncio.sleep(SAVE_S)

    printing = asyncio.current_task()
    assert printing is not None
    saving = asyncio.create_task(keep_saving()) if output.keeps_token else None
    if saving is not None:  # what cannot be kept must not be printed as if it were
        saving.add_done_callback(lambda done: done.cancelled() or printing.cancel())
    try:
        yield
    finally:
        if saving is not None:
            saving.cancel()
            (failure,) = await asyncio.gather(saving, return_exceptions=True)
            if isinstance(failure, GaplessError):
                raise failure
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await save(subscription, output)


async def save(subscription: Subscription | JointSubscription, output: Output) -> None:
    if output.save(subscription):
        with suppress(GaplessError):  # not acknowledged now: it will be with the next
            await subscription.acknowledge()


def show(item: Delivery, width: int | None = None) -> str:
    """A line for people; the body ends with the line of a screen that is so wide."""
    if isinstance(item, Silence):
        return visible(f"nothing else of {item.pubend or item.topic} below {item.through}")
    if isinstance(item, Gap):
        return visible(f"gap: {item.pubend} {item.span} was missed")
    when = f"  {item.published.astimezone():{TIME}}"[:-3] if item.published is not None else ""
    pairs = " ".join(f"{key}={show_attribute(value)}" for key, value in item.attributes.items())
    line = visible(f"{item.pubend} {item.tick}{when}  {pairs}")
    if not item.body:
        return line
    room = max(width - len(line) - 2, BODY_WIDTH_MIN) if width else None
    return f"{line}  {show_body(item.body, room)}"


def show_body(body: bytes, width: int | None) -> str:
    """Text as it is, other bytes as conditions write them; cut where it is longer than that."""
    try:
        text = visible(body.decode())
    except UnicodeDecodeError:
        text = show_attribute(body)
    return text if width is None or len(text) <= width else f"{text[: width - 1]}…"


def show_json(item: Delivery) -> str:
    return json_text(delivery_fields(item))
