"""What frames and answers take of a broker's memory is bounded, for each principal and for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gapless.core.client_messages import Receipt, Refused, Subscribe, Subscribed
from gapless.core.identity import PubendName, TopicName
from gapless.core.messages import Goodbye, Hello, Message, Ping, Pong
from gapless.core.range_messages import Positions, PositionsQuery, RangeRead, ReadRange
from gapless.core.ticks import Span
from gapless.core.topic_messages import TopicList, TopicsQuery
from gapless.wire.codec import Codec
from gapless.wire.kinds import codec
from tests.broker.castle import TABLE, Castle
from tests.broker.stage import ByHand, connected, make_broker, publication, run, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.broker.broker import Broker
    from gapless.client.client import Client

T = TopicName("t")
MEBIBYTE = 1 << 20
READ_BYTES = 256 << 10
"""What one read of a socket brings at most."""

LARGE = bytes(codec().frames([publication(40, body=b"x" * 100_000)]))
"""A frame of 4 MB."""


def buffered(broker: Broker) -> int:
    """Bytes of frames that are not whole yet."""
    return sum(link._machine.unframer.buffered_bytes for link in broker._links.all)


def unsent(broker: Broker) -> int:
    """Bytes that were sent to clients and not taken, and what is about to be sent."""
    transports = [link._transport for link in broker._links.all]
    return sum(each.get_write_buffer_size() for each in transports if each is not None)


async def is_quiet(broker: Broker, client: Client) -> None:
    """Until nothing more is read from anybody but `client`."""
    while True:
        before = buffered(broker), sum(link.messages_in for link in broker._links.all)
        for _ in range(5):
            await client.publish("t", {})
        after = buffered(broker), sum(link.messages_in for link in broker._links.all)
        if after == (before[0], before[1] + 5):
            return


async def goodbye(peer: ByHand) -> str:
    last = (await peer.read_all())[-1]
    assert isinstance(last, Goodbye), last
    return last.problem


# --- what comes in --------------------------------------------------------------------------------


def test_frames_that_bring_nothing_give_way_to_those_who_wait(tmp_path: Path) -> None:
    """Long before their time is over: else who waits takes the broker for dead."""

    async def main() -> None:
        broker = make_broker(tmp_path, input_bytes_max=8 * MEBIBYTE, frame_stall_s=0.2)
        assert broker.settings.frame_patience_s >= 60
        async with broker, connected(broker) as client:
            hostile = [await ByHand.connect(broker) for _ in range(6)]
            for peer in hostile:
                peer.writer.write(LARGE[:-1])
            await is_quiet(broker, client)
            await client.publish_many("t", [({}, b"x" * 100_000)] * 40)
            for peer in hostile[:1]:
                await peer.read_all()  # it is closed
            for peer in hostile:
                await peer.close()
            broker._links.room.check()

    run(main())


def test_frames_that_never_become_whole_take_bounded_room_and_time(tmp_path: Path) -> None:
    """Twelve connections send all but the last byte of 4 MB each."""

    async def main() -> None:
        broker = make_broker(tmp_path, input_bytes_max=8 * MEBIBYTE, frame_patience_s=0.3)
        async with broker, connected(broker) as client:
            hostile = [await ByHand.connect(broker) for _ in range(12)]
            for peer in hostile:
                peer.writer.write(LARGE[:-1])
            await is_quiet(broker, client)
            assert buffered(broker) <= 8 * MEBIBYTE + 12 * READ_BYTES
            await client.publish("t", {"small": 1})
            await client.publish_many("t", [({}, b"x" * 100_000)] * 5)  # waits for its turn
            for peer in hostile:
                await peer.read_all()  # it is closed
            await wait_until(lambda: buffered(broker) == 0)
            assert broker.statistics()["links"]["input_bytes"] == 0  # type: ignore[index]

    run(main())


def test_frames_that_wait_for_room_are_all_taken_in_the_end(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, input_bytes_max=5 * MEBIBYTE) as broker:
            peers = [await ByHand.connect(broker) for _ in range(6)]
            for peer in peers:
                peer.writer.write(LARGE)
            for peer in peers:
                assert any(isinstance(each, Receipt) for each in await peer.read_until(Receipt))
                await peer.close()
            broker._links.room.check()
            assert broker._links.room.input.total == 0

    run(main())


def test_who_has_taken_its_share_of_the_room_does_not_keep_others_out(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        broker = castle.broker(input_bytes_max=16 * MEBIBYTE)
        async with broker, castle.client(broker, "admin") as client:
            hostile = [await castle.by_hand(broker, "feed") for _ in range(6)]
            for peer in hostile:
                peer.writer.write(LARGE[:-1])
            await is_quiet(broker, client)
            assert buffered(broker) <= 4 * MEBIBYTE + 6 * READ_BYTES, "a quarter, and one read each"
            await client.publish_many("t", [({}, b"x" * 100_000)] * 5)
            for peer in hostile:
                await peer.close()

    run(main())


def test_who_may_not_publish_is_refused_before_its_frame_is_read(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        async with castle.broker() as broker, castle.client(broker, "admin") as client:
            peer = await castle.by_hand(broker, "desk")
            peer.writer.write(LARGE[: MEBIBYTE // 2])
            found = await peer.read_until(Refused)
            refused = next(each for each in found if isinstance(each, Refused))
            assert refused.request == 1
            assert "not allowed to publish on topic 't'" in refused.problem
            peer.writer.write(LARGE[MEBIBYTE // 2 : -1])
            await is_quiet(broker, client)
            assert buffered(broker) == 0
            peer.writer.write(LARGE[-1:])
            peer.send(Ping(7))
            assert Pong(7) in await peer.read_until(Pong), "its link goes on"
            await peer.close()

    run(main())


def test_what_waits_for_room_is_bounded_too(tmp_path: Path) -> None:
    """One read of each of many connections would be much, if all of them might wait."""

    async def main() -> None:
        broker = make_broker(tmp_path, input_bytes_max=MEBIBYTE)
        async with broker, connected(broker) as client:
            first = await ByHand.connect(broker)
            first.writer.write(LARGE[:-1])
            await is_quiet(broker, client)
            hostile = [await ByHand.connect(broker) for _ in range(40)]
            for peer in hostile:
                peer.writer.write(LARGE[:100_000])
            await wait_until(lambda: len(broker._links.named) < 40)  # the others were told to go
            await is_quiet(broker, client)
            assert 2 < len(broker._links.named) < 2 + MEBIBYTE // 60_000
            broker._links.room.check()
            for peer in (first, *hostile):
                await peer.close()
            await wait_until(lambda: len(broker._links.named) == 1)
            assert broker._links.room.waiting.total == broker._links.room.input.total == 0

    run(main())


def test_before_a_hello_only_short_frames_are_read(tmp_path: Path) -> None:
    class Later(Message, frozen=True, tag="of a later version"):
        """Which is skipped, and no Hello."""

    async def main() -> None:
        async with make_broker(tmp_path) as broker:
            peer = await ByHand.connect(broker, hello=None)
            peer.writer.write(bytes(Codec(Later).frames([Later()])) + LARGE[:50_000])
            assert "before a Hello" in await goodbye(peer)

    run(main())


def test_who_is_not_admitted_is_told_so_slowly_whatever_it_sends_besides(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        async with castle.broker() as broker:
            peer = await castle.by_hand(broker)
            hello = bytes(codec().frames([Hello(token="admin.guessed")]))
            peer.writer.write(hello + LARGE[:50_000])
            assert "not admitted" in await goodbye(peer)

    run(main())


def test_a_request_without_events_has_a_bound_of_its_own(tmp_path: Path) -> None:
    request = bytes(codec().frames([Subscribe(T, 1, 1, "a = '" + "x" * 2 * MEBIBYTE + "'")]))

    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            peer = await ByHand.connect(broker)
            peer.writer.write(request[: MEBIBYTE // 2])
            assert "a request has 2097" in await goodbye(peer)
            await client.publish("t", {})

    run(main())


def test_a_publication_has_a_bound_too_whether_it_comes_whole_or_begins(tmp_path: Path) -> None:
    events = bytes(codec().frames([publication(3, body=bytes(MEBIBYTE // 2))]))

    async def main() -> None:
        bound = make_broker(tmp_path, publish_bytes_max=MEBIBYTE)
        async with bound as broker, connected(broker) as client:
            for size in (MEBIBYTE // 2, len(events)):
                peer = await ByHand.connect(broker)
                peer.writer.write(events[:size])
                assert "the limit is 1048576" in await goodbye(peer)
            await client.publish("t", {}, bytes(MEBIBYTE // 2))

    run(main())


# --- what goes out --------------------------------------------------------------------------------

BOUND = 1 << 18
"""Of what is sent to one connection and not taken; an answer may have this much, too."""


async def publish_some(client: Client) -> tuple[PubendName, Span]:
    """About 2 MB, which are kept for somebody who is away."""
    async with client.subscribe("t", name="away"):
        pass
    receipts = await client.publish_many("t", [({}, b"x" * 10_000)] * 200)
    return PubendName("t/0"), Span(0, receipts[-1].tick + 1)


def questions(kind: str, pubend: PubendName, span: Span) -> list[Message]:
    made: dict[str, list[Message]] = {
        "ranges": [ReadRange(T, number, pubend, span) for number in range(40)],
        "topics": [TopicsQuery(number) for number in range(400)],
        "positions": [PositionsQuery(TopicName("many"), number) for number in range(400)],
    }
    return made[kind]


@pytest.mark.parametrize(
    ("kind", "answer"), [("ranges", RangeRead), ("topics", TopicList), ("positions", Positions)]
)
def test_answers_are_prepared_only_as_fast_as_they_are_read(
    tmp_path: Path, kind: str, answer: type[Message]
) -> None:
    """Many questions in one write; each is answered when its sender has read what came before."""
    highest = 0

    async def main() -> None:
        nonlocal highest
        settings: dict[str, Any] = {"client_queue_bytes_high": BOUND, "check_every_s": 60}
        async with make_broker(tmp_path, **settings) as broker, connected(broker) as client:
            place = await publish_some(client)
            if kind == "positions":
                await client.create_topic("many", pubends=1024)
            for number in range(150 if kind == "topics" else 0):
                await client.create_topic(f"{'a-long-name' * 14}-{number}")
            peer = await ByHand.connect(broker)
            peer.stop_reading()
            asked = questions(kind, *place)
            peer.send(*asked)
            await is_quiet(broker, client)
            longest = 3 << 20 if kind == "ranges" else 1 << 17
            highest = unsent(broker)
            assert highest <= BOUND + longest
            peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
            found = list[Message]()
            while sum(isinstance(each, answer) for each in found) < len(asked):
                found += await peer.read_until(answer)
                highest = max(highest, unsent(broker))
            assert highest <= BOUND + longest
            numbers = [each.request for each in found if isinstance(each, answer)]  # type: ignore[attr-defined]
            assert numbers == list(range(len(asked))), "all, in order"
            await peer.close()

    run(main())


def test_who_has_its_share_unread_waits_and_others_are_answered(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path, table=TABLE)
        settings: dict[str, Any] = {"output_bytes_max": 32 * MEBIBYTE}
        async with castle.broker(**settings) as broker, castle.client(broker, "admin") as client:
            place = await publish_some(client)
            deaf = [await castle.by_hand(broker, "desk") for _ in range(10)]
            for peer in deaf:
                peer.stop_reading()
                peer.send(*questions("ranges", *place)[:8])
            await is_quiet(broker, client)
            assert unsent(broker) <= 8 * MEBIBYTE + (3 << 20), "a quarter, and one answer"
            rival = await castle.by_hand(broker, "rival")
            rival.send(*questions("ranges", *place)[:1])
            await rival.read_until(RangeRead)
            for peer in deaf:
                peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
            for peer in deaf:
                count = 0
                while count < 8:
                    found = await peer.read_until(RangeRead)
                    count += sum(isinstance(each, RangeRead) for each in found)
            for peer in (rival, *deaf):
                await peer.close()
            await wait_until(lambda: broker._links.room.output.total == 0)
            broker._links.room.check()

    run(main())


def test_where_all_have_too_much_unread_the_longest_behind_is_dropped(tmp_path: Path) -> None:
    async def main() -> None:
        settings: dict[str, Any] = {"output_bytes_max": 4 * MEBIBYTE}
        async with make_broker(tmp_path, **settings) as broker, connected(broker) as client:
            deaf = [await ByHand.connect(broker) for _ in range(4)]
            for peer in deaf:
                peer.send(Subscribe(T, 1, 1))
                await peer.read_until(Subscribed)
                peer.stop_reading()
            highest = 0
            while len(broker._links.named) > 3:
                await client.publish_many("t", [({}, b"x" * 100_000)] * 2)
                highest = max(highest, unsent(broker))
            assert highest <= 4 * MEBIBYTE + 4 * 200_000 + MEBIBYTE
            for peer in deaf:
                await peer.close()

    run(main())


def test_one_that_does_not_read_cannot_hold_an_unfinished_frame_for_ever(tmp_path: Path) -> None:
    async def main() -> None:
        patience = {"frame_patience_s": 0.5, "drain_patience_s": 0.2}
        settings: dict[str, Any] = {"client_queue_bytes_high": BOUND, **patience}
        async with make_broker(tmp_path, **settings) as broker, connected(broker) as client:
            place = await publish_some(client)
            deaf = await ByHand.connect(broker)
            deaf.stop_reading()
            asked = bytes(codec().frames(questions("ranges", *place)))
            deaf.writer.write(asked + LARGE[:100_000])
            await wait_until(lambda: buffered(broker) > 0)
            assert unsent(broker) > BOUND, "it is not read from for a reason of its own"
            await wait_until(lambda: len(broker._links.named) == 1)
            await deaf.close()

    run(main())
