"""A large batch is looked at in steps, and what comes of it is the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gapless.broker.event_reader import STEP_BYTES, EventReader
from gapless.core.client_messages import Publish, Receipt, Refused
from gapless.core.errors import WireError
from gapless.core.events import EventBatch
from gapless.core.identity import TopicName
from gapless.core.messages import Hello, Message
from gapless.wire.events import encode_event
from tests.broker.stage import ByHand, make_broker, run, wait_until

if TYPE_CHECKING:
    from pathlib import Path

EVENT = encode_event({f"a{n}": n for n in range(100)})
MANY = 4 * STEP_BYTES // len(EVENT)


def test_a_batch_is_checked_in_steps_of_some_size() -> None:
    reader, batch = EventReader(), EventBatch((EVENT,) * MANY)
    steps = sum(1 for _ in reader.checking(batch))
    assert 4 <= steps <= 5
    before = reader._decoded
    reader.check(batch)
    assert reader._decoded == before, "nothing is looked at twice"
    reader.check(batch)
    assert reader._decoded == before + MANY, "and nothing is believed twice"


def test_a_bad_event_is_found_in_its_step_and_told_by_check() -> None:
    reader, batch = EventReader(), EventBatch((*(EVENT,) * MANY, b"\xc1", *(EVENT,) * MANY))
    steps = sum(1 for _ in reader.checking(batch))
    assert 3 <= steps <= 4
    with pytest.raises(WireError):
        reader.check(batch)


@pytest.mark.parametrize("is_good", [True, False])
def test_a_large_publication_takes_many_turns_and_keeps_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_good: bool
) -> None:
    monkeypatch.setattr("gapless.broker.schedule.SHARE_S", 0.0)  # one step is a share
    topic, last = TopicName("t"), encode_event({"last": True})
    large = (*(EVENT,) * MANY, last if is_good else b"\xc1")

    async def main() -> None:
        async with make_broker(tmp_path) as broker:
            peer = await ByHand.connect(broker)
            await peer.read_until(Hello)
            await wait_until(lambda: bool(broker._links.named))
            (link,) = broker._links.named.values()
            turns, work = 0, link.work

            def counted(is_over: object) -> bool:
                nonlocal turns
                turns += 1
                return work(is_over)  # type: ignore[arg-type]

            monkeypatch.setattr(link, "work", counted)
            peer.send(
                Publish(topic, 1, EventBatch((last,))),
                Publish(topic, 2, EventBatch(large)),
                Publish(topic, 3, EventBatch((last,))),
            )
            answers: list[object] = []
            while len(answers) < 3:
                got = await peer.read_until(Message)
                answers += [each for each in got if isinstance(each, Receipt | Refused)]
            assert turns > 4
            assert sorted(each.request for each in answers) == [1, 2, 3]  # type: ignore[attr-defined]
            refused = [each.request for each in answers if isinstance(each, Refused)]
            assert refused == ([] if is_good else [2])
            await peer.close()

    run(main())
