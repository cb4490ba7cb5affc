"""Doors: one way to set, bind, tell and close them, whatever they speak."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest

from gapless.broker.addresses import read_addresses
from gapless.broker.doors import ENTRANCES, show_doors
from gapless.core.errors import UsageError
from tests.broker.stage import ONE, make_broker, run
from tests.doors.http.caller import Caller
from tests.doors.mqtt.stage import Place

if TYPE_CHECKING:
    from pathlib import Path

EVERY = [each.name for each in ENTRANCES]
AT = "127.0.0.1:0"


def test_a_network_file_opens_every_door(tmp_path: Path) -> None:
    fields = "".join(f', {name} = "{AT}"' for name in EVERY)
    text = ONE.replace('name = "b"', f'name = "b"{fields}', 1)
    assert fields in text

    async def main() -> None:
        async with make_broker(tmp_path, text) as broker:
            assert sorted(broker.doors.addresses) == sorted(EVERY)
            assert sorted(broker.doors.opened) == ["http", "mqtt"]
            told = read_addresses(tmp_path / "b")
            assert {name: told[name] for name in EVERY} == broker.doors.addresses
            line = show_doors(told, is_secure=False)
            assert f", HTTP at http://{told['http']}, MQTT at mqtt://{told['mqtt']}," in line

    run(main())


@pytest.mark.parametrize("name", EVERY)
def test_a_setting_counts_before_the_network_file(tmp_path: Path, name: str) -> None:
    text = ONE.replace('name = "b"', f'name = "b", {name} = "127.0.0.1:1"', 1)

    async def main() -> None:
        settings: Any = {name: AT}
        async with make_broker(tmp_path, text, **settings) as broker:
            assert not broker.doors.addresses[name].endswith(":1")

    run(main())


@pytest.mark.parametrize("name", EVERY)
def test_a_door_has_its_port_again_unless_another_took_it(tmp_path: Path, name: str) -> None:
    async def main() -> None:
        settings: Any = {name: AT}
        async with make_broker(tmp_path, **settings) as broker:
            first = broker.doors.addresses[name]
        async with make_broker(tmp_path, **settings) as broker:
            assert broker.doors.addresses[name] == first
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", int(first.rpartition(":")[2])))
            other.listen()
            async with make_broker(tmp_path, **settings) as broker:
                assert broker.doors.addresses[name] != first

    run(main())


@pytest.mark.parametrize("name", EVERY)
def test_an_address_that_cannot_be_is_told_with_its_option(tmp_path: Path, name: str) -> None:
    option = f"--{name.replace('_', '-')}"

    async def main() -> None:
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            used: Any = {name: f"127.0.0.1:{other.getsockname()[1]}"}
            with pytest.raises(UsageError, match=option):
                await make_broker(tmp_path, **used).start()
        exposed: Any = {name: "0.0.0.0:0"}
        with pytest.raises(UsageError, match=option):
            await make_broker(tmp_path, **exposed).start()
        async with make_broker(tmp_path):  # nothing of the two is left
            pass

    run(main())


def test_doors_share_the_client_of_a_token(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, mqtt=AT, http=AT) as broker:
            peer = await Place(broker).join("a")
            assert (await Caller.of(broker).get("/topics")).status == 200
            links: Any = broker.statistics()["links"]
            assert links["clients"] == 2  # one is the MQTT door's own
            peer.cut()

    run(main())


def test_a_broker_whose_door_does_not_open_stops_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "b").mkdir()
        (tmp_path / "b" / "mqtt").write_text("no folder")
        with pytest.raises(Exception, match="mqtt"):
            await make_broker(tmp_path, mqtt=AT, http=AT).start()
        async with make_broker(tmp_path, http=AT):  # the volume is not locked any more
            pass

    run(main())
