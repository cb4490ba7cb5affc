"""What many sessions publish in one turn of the event loop goes in one request."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from gapless.core.errors import EventError
from gapless.core.events import Event
from gapless.doors.mqtt.gathering import EVENTS_MAX, Gathering
from tests.broker.stage import run
from tests.doors.mqtt.stage import place

if TYPE_CHECKING:
    from pathlib import Path


def test_each_gets_the_receipts_of_its_own_messages(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage, stage.native() as client:
            gathering, sizes = Gathering(set()), (1, 3, EVENTS_MAX, 2)
            async with client.subscribe("mqtt") as subscription:
                receipts = await asyncio.gather(
                    *(
                        gathering.publish(client, "mqtt", [({"from": place}, b"")] * size)
                        for place, size in enumerate(sizes)
                    )
                )
                assert [len(each) for each in receipts] == list(sizes)
                wanted = {each.tick: place for place, some in enumerate(receipts) for each in some}
                got: dict[int, object] = {}
                while len(got) < len(wanted):
                    event = await anext(subscription)
                    assert isinstance(event, Event)
                    got[event.tick] = event.attributes["from"]
                assert got == wanted

    run(main())


def test_nobody_is_refused_for_another_ones_message(tmp_path: Path) -> None:
    async def main() -> None:
        async with place(tmp_path) as stage, stage.native() as client:
            gathering = Gathering(set())
            good = gathering.publish(client, "mqtt", [({"level1": "t"}, b"x")])
            bad = gathering.publish(client, "mqtt", [({"level1": "t"}, bytes(3 << 20))])
            late = gathering.publish(client, "mqtt", [({"level1": "t"}, b"y")])
            assert len(await good) == 1
            assert len(await late) == 1
            with pytest.raises(EventError):
                await bad

    run(main())
