"""What an application gives that cannot be is refused at once, in words, and nothing is sent."""

from __future__ import annotations

import asyncio
from math import inf, nan
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gapless
from gapless.client import arguments
from gapless.client.errors import LinkError, RefusedError
from gapless.client.requests import ask_until_answered
from gapless.client.subscription import Subscription
from gapless.client.subscription_options import SubscriptionOptions
from gapless.core.client_messages import Forget, Publish, Refused
from gapless.core.errors import UsageError
from gapless.core.events import EventBatch
from gapless.core.identity import TopicName
from gapless.core.token import Token
from gapless.wire.framing import FRAME_BYTES_MAX
from tests.broker.stage import connected, make_broker, run
from tests.client.desk import Desk

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

NOWHERE = "gapless://127.0.0.1:1"
HALF = "half \ud800"
NO_NAMES = (None, b"t", 7, "", HALF, "n" * 256, "é" * 128)
NO_TEXTS = (None, b"t", 7, HALF)
NO_COUNTS = (-1, True, 1.0, nan, inf, "1", None, 1 << 63)
NO_TIMES = (-1, -0.001, True, nan, -inf, "1", None)
NO_TOKENS = (0, "{}", {"t/0": 1}, [("t/0", 1)])
TX = {"producer": "job", "id": 1}

CALLS: dict[str, tuple[Callable[[Any, Any], Any], Collection[object]]] = {
    "publish topic": (lambda c, given: c.publish(given, {}), NO_NAMES),
    "publish_many topic": (lambda c, given: c.publish_many(given, [({}, b"")]), NO_NAMES),
    "publisher topic": (lambda c, given: c.publisher(given, name="feed"), NO_NAMES),
    "publisher name": (lambda c, given: c.publisher("t", name=given), NO_NAMES),
    "linger_s": (
        lambda c, given: c.publisher("t", name="feed", linger_s=given),
        (*NO_TIMES, inf, 10**400),
    ),
    "subscribe topic": (lambda c, given: c.subscribe(given), NO_NAMES),
    "subscribe condition": (lambda c, given: c.subscribe("t", given), NO_TEXTS),
    "subscribe name": (lambda c, given: c.subscribe("t", name=given), (b"t", 7, "", HALF)),
    "subscribe start": (lambda c, given: c.subscribe("t", name="desk", start=given), (7, nan)),
    "transaction topic": (lambda c, given: c.transaction(given, **TX), NO_NAMES),
    "transaction producer": (
        lambda c, given: c.transaction("t", producer=given, id=1),
        NO_NAMES,
    ),
    "transaction id": (lambda c, given: c.transaction("t", producer="job", id=given), NO_COUNTS),
    "stage part": (lambda c, given: c.stage("t", **TX, part=given), NO_NAMES[1:]),
    "commit id": (lambda c, given: c.commit("t", producer="job", id=given, parts=[]), NO_COUNTS),
    "commit parts": (lambda c, given: c.commit("t", **TX, parts=[given]), NO_NAMES),
    "commit parts twice": (lambda c, given: c.commit("t", **TX, parts=given), ("ab", ["a", "a"])),
    "commit counts": (lambda c, given: c.commit("t", **TX, parts={"p": given}), NO_COUNTS),
    "abort part": (lambda c, given: c.abort("t", **TX, part=given), NO_TEXTS[1:]),
    "last_committed": (lambda c, given: c.last_committed("t", producer=given), NO_NAMES),
    "positions": (lambda c, given: c.positions(given), NO_NAMES),
    "read topic": (lambda c, given: c.read(given), NO_NAMES),
    "read condition": (lambda c, given: c.read("t", given), NO_TEXTS),
    "read start": (lambda c, given: c.read("t", start=given), NO_TOKENS),
    "read end": (lambda c, given: c.read("t", end=given), NO_TOKENS),
    "read pubends": (lambda c, given: c.read("t", pubends=[given]), NO_TEXTS),
    "read limit": (lambda c, given: c.read("t", limit=given), set(NO_COUNTS) - {None}),
    "read gaps": (lambda c, given: c.read("t", gaps=given), ("yeild", None)),
    "acknowledge name": (lambda c, given: c.acknowledge(given, Token()), NO_TEXTS),
    "acknowledge token": (lambda c, given: c.acknowledge("desk", given), (*NO_TOKENS, None)),
    "unsubscribe": (lambda c, given: c.unsubscribe(given), NO_TEXTS),
    "create_topic name": (lambda c, given: c.create_topic(given), NO_TEXTS),
    "create_topic pubends": (lambda c, given: c.create_topic("t", pubends=given), (0, *NO_COUNTS)),
    "retention_seconds": (
        lambda c, given: c.create_topic("t", retention_seconds=given),
        {0, inf, *NO_TIMES} - {None},
    ),
    "retention_bytes": (
        lambda c, given: c.create_topic("t", retention_bytes=given),
        {0, *NO_COUNTS} - {None},
    ),
    "create_topic hosts": (lambda c, given: c.create_topic("t", hosts=given), ("b", [], [7])),
    "delete_topic": (lambda c, given: c.delete_topic(given), NO_TEXTS),
}


async def carry_out(call: Any) -> None:
    if hasattr(call, "__anext__"):
        await anext(call)
    elif hasattr(call, "__await__"):
        await call


@pytest.mark.parametrize("name", CALLS)
def test_it_is_told_before_anything_is_sent(name: str) -> None:
    call, wrong = CALLS[name]

    async def main() -> None:
        client = gapless.connect(NOWHERE)  # where nobody would answer
        for given in wrong:
            with pytest.raises(UsageError, match=r"(Give|Use|Name) ") as told:
                await carry_out(call(client, given))
            assert len(str(told.value)) < 300

    run(main())


def test_without_an_event_loop_it_is_told_the_same() -> None:
    client = gapless.sync.connect(NOWHERE)
    try:
        for call, wrong in CALLS.values():
            for given in wrong:
                with pytest.raises(UsageError):
                    list(call(client, given))
    finally:
        client.close()
    for given in NO_TIMES:
        with pytest.raises(UsageError, match=r"patience_s=.*Give more than 0 seconds, or math.inf"):
            gapless.sync.connect(NOWHERE, patience_s=given)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [0, *NO_TIMES])
def test_patience_is_some_time_or_for_ever(given: Any) -> None:
    async def main() -> None:
        with pytest.raises(UsageError, match="patience_s="):
            gapless.connect(NOWHERE, patience_s=given)
        assert gapless.connect(NOWHERE, patience_s=inf).channel.patience_s == inf

    run(main())


@pytest.mark.parametrize("given", [0, *NO_COUNTS])
def test_a_window_has_room_for_an_event(given: Any) -> None:
    async def main() -> None:
        with pytest.raises(UsageError, match=r"window_events_max.*Give 1 to"):
            Desk().publisher(window_events_max=given)

    run(main())


def test_what_is_like_a_number_is_one() -> None:
    assert type(arguments.count("limit", np.int64(5))) is int
    assert arguments.seconds("linger_s", np.float64(0.5)) == 0.5
    assert arguments.seconds("patience_s", 3) == 3.0
    assert arguments.name("topic", "é" * 127) == "é" * 127


def publication(topic: Any, size: int = 1) -> Callable[[int], Publish]:
    return lambda request: Publish(TopicName(topic), request, EventBatch((b"x" * size,)))


def test_a_request_that_cannot_be_encoded_is_refused_and_others_go_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            wrong = publication(HALF), publication("t", FRAME_BYTES_MAX), publication(1 << 70)
            asked = map(client.channel.ask, (*wrong, publication("nothing")))
            answers = [each for each in await asyncio.gather(*asked) if isinstance(each, Refused)]
            problems = [
                "surrogates",
                "does not fit a frame",
                "serialize ints",
                "no topic 'nothing'",
            ]
            for answer, problem in zip(answers, problems, strict=True):
                assert problem in answer.problem
            assert client.channel.session == 1, "the connection is as good as before"

    run(main())


def test_a_request_that_no_connection_outlives_is_given_up(tmp_path: Path) -> None:
    """The broker ends the connection at each, and another is made: that has to end."""

    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            client.channel.patience_s = 0.2
            with pytest.raises(LinkError, match="does not decode"):
                await ask_until_answered(client.channel, lambda request: Forget(request, 7))  # type: ignore[arg-type]
            options = SubscriptionOptions(topic=TopicName("t"), condition=7)  # type: ignore[arg-type]
            with pytest.raises(LinkError, match="does not decode"):
                await Subscription(client.channel, options).__aenter__()
            with pytest.raises(RefusedError, match="no subscription"):
                await client.unsubscribe("desk")

    run(main())
