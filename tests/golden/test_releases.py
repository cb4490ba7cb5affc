"""What earlier releases wrote and sent is understood: golden files, made by `tools/golden.py`.

A broker of this version opens the data folder of a killed broker of the release, and a client of
this version finds there all that the release had promised. `format-2` has a folder from before 0.1.
"""

from __future__ import annotations

import asyncio
import json
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import gapless
from gapless.broker import embedded
from gapless.broker.migration import migrate
from gapless.cli import app
from gapless.client.range_reads import RangeBatch
from gapless.core.client_messages import Deliveries, Receipt, Refused
from gapless.core.errors import StorageError, WireError
from gapless.core.events import EventBatch
from gapless.storage.disk import DiskVolume
from gapless.storage.folder import read_description
from gapless.wire.events import check_events
from gapless.wire.framing import Unframer
from tests.broker.stage import ByHand, run
from tests.wire.samples import CODEC, EVENTS, MESSAGES

if TYPE_CHECKING:
    from gapless.client.client import Client

HERE = Path(__file__).parent
FOLDERS = sorted(path.parent for path in HERE.glob("*/volume.tar.xz"))
"""Those of releases, and one of format 2, from before 0.1."""

RELEASES = sorted(path.parent for path in HERE.glob("*/conversation.json"))
of_folders = pytest.mark.parametrize("release", FOLDERS, ids=lambda path: path.name)
of_releases = pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)


def facts(release: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((release / "facts.json").read_text(encoding="utf-8"))
    return found


def unpack(release: Path, folder: Path) -> Path:
    with tarfile.open(release / "volume.tar.xz") as files:
        files.extractall(folder, filter="data")
    return folder


async def numbers(subscription: gapless.Subscription, count: int) -> list[object]:
    found = [await anext(subscription) for _ in range(count)]
    assert all(isinstance(event, gapless.Event) for event in found), found
    return [event.attributes["number"] for event in found]


async def read_all(client: Client) -> list[list[object]]:
    return [
        [e.pubend, e.tick, dict(e.attributes), e.body.decode(), e.publisher, e.sequence]
        async for batch in client.read("trades")
        if isinstance(batch, RangeBatch)
        for e in batch.events()
    ]


@of_releases
def test_a_data_folder_is_sound(release: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["check", str(unpack(release, tmp_path / "data"))])
    assert done.exit_code == 0, done.output


@of_folders
def test_a_broker_goes_on_with_the_data_folder(release: Path, tmp_path: Path) -> None:
    async def main() -> None:
        known = facts(release)
        sent = [row[2]["number"] for row in known["log"]]
        wanted = [each for each in sent if each > 20]
        async with (
            embedded([], unpack(release, tmp_path / "data")) as broker,
            gapless.connect(f"gapless://{broker.address}") as client,
        ):
            topics = {topic.name: topic for topic in await client.topics()}
            assert topics.keys() == {"trades", "short"}
            assert topics["short"].retention_seconds == 3600
            assert await read_all(client) == known["log"]
            assert await client.last_committed("trades", producer="job") == 7
            async with client.publisher("trades", name="feed") as publisher:
                await publisher.send({"number": 160, "price": 80.0})
            wanted.append(160)
            rest = [each for each in wanted if each not in known["taken"]]
            async with client.subscribe(
                "trades", "price > 10", name="by-client", start=known["token"]
            ) as subscription:
                assert await numbers(subscription, len(rest)) == rest
            rest = [each for each in wanted if each not in known["by_broker"]]
            async with client.subscribe(
                "trades", "price > 10", name="by-broker", tokens="broker"
            ) as subscription:
                assert await numbers(subscription, len(rest)) == rest

    run(main())


@of_folders
def test_a_token_is_read_and_written_alike(release: Path) -> None:
    text = facts(release)["token"]
    token = gapless.Token.from_json(text)
    assert token.to_json() == text
    assert token == gapless.Token(json.loads(text))


@of_releases
def test_a_client_of_the_release_is_served(release: Path, tmp_path: Path) -> None:
    """What it said, byte for byte: it created a topic, subscribed, published and got its event."""
    said = json.loads((release / "conversation.json").read_text(encoding="utf-8"))["said"]

    async def main() -> None:
        async with embedded([], tmp_path / "data") as broker:
            peer = await ByHand.connect(broker, hello=None)
            answers: list[object] = []
            for who, data in said:
                if who == "client":
                    peer.writer.write(bytes.fromhex(data))
                    answers += await asyncio.wait_for(peer.read_some(), 30)
            while not {Receipt, Deliveries} <= {type(each) for each in answers}:
                answers += await asyncio.wait_for(peer.read_some(), 30)
            assert not [each for each in answers if isinstance(each, Refused)]
            await peer.close()

    run(main())


@of_releases
def test_a_broker_of_the_release_is_understood(release: Path) -> None:
    talk = json.loads((release / "conversation.json").read_text(encoding="utf-8"))
    unframer = Unframer()
    heard = [
        CODEC.decode(payload)
        for who, data in talk["said"]
        if who == "broker"
        for payload in unframer.feed(bytes.fromhex(data))
    ]
    found = [
        dict(content.attributes)
        for each in heard
        if isinstance(each, Deliveries)
        for content in check_events(each.events)
    ]
    assert found == [talk["event"]]


@of_releases
def test_messages_of_the_release_mean_the_same(release: Path) -> None:
    lines = (release / "messages.txt").read_text(encoding="utf-8").splitlines()
    kept = dict(zip(lines[::2], (bytes.fromhex(line) for line in lines[1::2]), strict=True))
    for name, data in kept.items():
        kind, _, sample = name.partition(": ")
        if release.name == "0.1" and sample.startswith("ringed"):
            continue  # the changelog says that multicast cannot be mixed
        if kind == "message":
            assert CODEC.decode(data) == MESSAGES[sample], name
    events = [kept[f"event: {name}"] for name in EVENTS if f"event: {name}" in kept]
    assert len(check_events(EventBatch.join(events))) == sum(
        name.startswith("event: ") for name in kept
    )


@of_releases
def test_what_cannot_be_understood_is_refused_and_not_misread(release: Path) -> None:
    if release.name != "0.1":
        pytest.skip("only multicast of 0.1 is spoken otherwise")
    lines = (release / "messages.txt").read_text(encoding="utf-8").splitlines()
    for name, data in zip(lines[::2], lines[1::2], strict=True):
        sample = name.removeprefix("message: ")
        if sample.startswith("ringed"):
            try:
                found = CODEC.decode(bytes.fromhex(data))
            except WireError:
                continue
            assert found == MESSAGES[sample], name


def test_an_old_folder_is_refused_with_what_to_do_until_its_broker_has_migrated_it(
    tmp_path: Path,
) -> None:
    volume = unpack(HERE / "format-2", tmp_path) / "serve" / "volume"
    with pytest.raises(StorageError, match="Start its broker once"):
        DiskVolume(volume)

    async def start() -> None:
        async with embedded([], tmp_path):
            pass

    run(start())
    assert read_description(volume)[0] == 3
    assert read_description(volume.with_name("volume.format-2"))[0] == 2
    DiskVolume(volume).close()


def test_a_migration_that_a_crash_cut_goes_on(tmp_path: Path) -> None:
    """Once before the new folder was whole, once before it had its name."""
    volume = unpack(HERE / "format-2", tmp_path) / "serve" / "volume"
    (tmp_path / "serve" / "volume.migrated").mkdir()
    (tmp_path / "serve" / "volume.migrated" / "volume.json.new").write_text("half")
    migrate(volume)
    bounds = stream_bounds(volume)
    assert "filtered/trades/0" in bounds
    volume.rename(volume.with_name("volume.migrated"))
    migrate(volume)
    assert stream_bounds(volume) == bounds
    migrate(volume)  # there is nothing to do
    assert stream_bounds(volume) == bounds


def stream_bounds(folder: Path) -> dict[str, object]:
    volume = DiskVolume(folder)
    try:
        return {each: volume.bounds(each) for each in volume.streams()}
    finally:
        volume.close()
