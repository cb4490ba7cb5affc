"""How far a micro-batch goes: never past a limit or what is settled, and nowhere over silence."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import gapless
from gapless.core.token import Token
from gapless.spark.batch_ends import BatchEnds
from gapless.spark.options import parse_options
from gapless.spark.slices import plan
from tests.spark.conftest import wait_until
from tests.test_sync import broker_in_a_thread

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gapless.sync import Client

TOPICS = ("two",)
OPTIONS = {"topic": "two", "filter": "i >= 0", "subscription": "s"}


@contextmanager
def two_pubends(folder: Path) -> Iterator[tuple[Client, BatchEnds, Token]]:
    """A client, and where everything begins. Publishers alice and bob are at different pubends."""
    with broker_in_a_thread(folder) as url, gapless.sync.connect(url) as client:
        client.create_topic("two", pubends=2)
        with client.subscribe("two", name="keeper", start="earliest") as keeper:
            start = keeper.token
        yield client, BatchEnds(parse_options({"url": url, **OPTIONS}, is_stream=True)), start


def publish(client: Client, *numbers: int) -> None:
    for name in ("alice", "bob"):
        with client.publisher("two", name=name) as publisher:
            publisher.send_many(({"i": i}, b"") for i in numbers)


def settled(client: Client) -> Token:
    return Token({name: high for name, (_, high) in client.positions("two").items()})


def matches(client: Client, start: Token, end: Token) -> int:
    """Counted by reading the slices of a plan, one by one."""
    return sum(
        len(batch)
        for part in plan(TOPICS, start, end)
        for batch in client.read(
            "two",
            "i >= 0",
            start=Token({part.pubend: part.low}),
            end=Token({part.pubend: part.high}),
            pubends=[part.pubend],
        )
    )


def test_batches_have_as_many_events_as_allowed_and_all_of_them_once(tmp_path: Path) -> None:
    with two_pubends(tmp_path) as (client, progress, start):
        publish(client, *range(-3, 10))
        ends, counts, at = settled(client), [], start
        while (end := progress.advance(client, TOPICS, at, ends, 6)) != at:
            assert at < end <= ends
            trimmed = progress.without_silence(at)
            counts.append(matches(client, at, end))
            assert matches(client, trimmed, end) == counts[-1]
            at = end
        assert counts == [6, 6, 6, 2]
        assert at == ends


def test_large_batches_are_counted_by_places_and_never_beyond_the_limit(tmp_path: Path) -> None:
    with two_pubends(tmp_path) as (client, progress, start):
        publish(client, *range(1_500))
        at, counts = start, list[int]()
        for _ in range(3):  # events come while batches are made
            publish(client, *range(100))
            ends = settled(client)
            while (end := progress.advance(client, TOPICS, at, ends, 400)) != at:
                counts.append(matches(client, at, end))
                at = end
        assert sum(counts) == 3_600
        assert max(counts) <= 400
        assert len(counts) < 16, counts


def test_what_does_not_match_is_nothing_new(tmp_path: Path) -> None:
    with two_pubends(tmp_path) as (client, progress, start):
        publish(client, -1, -2)
        silent = settled(client)
        assert progress.advance(client, TOPICS, start, silent, None) == start
        assert progress.advance(client, TOPICS, start, silent, 5) == start
        publish(client, 1, -3)
        ends = settled(client)
        assert progress.advance(client, TOPICS, start, ends, None) == ends
        assert progress.without_silence(start) >= start.join(silent)
        assert matches(client, progress.without_silence(start), ends) == 2
        assert progress.advance(client, TOPICS, ends, ends, None) == ends
        assert progress.without_silence(start) == start, "of another place nothing is known"


def test_what_is_lost_already_is_something_to_read(tmp_path: Path) -> None:
    with two_pubends(tmp_path) as (client, progress, start):
        publish(client, 1)
        ends = settled(client)
        client.acknowledge("keeper", ends)
        wait_until(
            lambda: all(low >= ends.get(name) for name, (low, _) in client.positions("two").items())
        )
        assert progress.advance(client, TOPICS, start, ends, None) == ends
        assert progress.without_silence(start) == start
