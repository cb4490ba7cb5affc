"""Packet sequences that another broker is tested with, against a door of a broker of ours.

    python -m tests.doors.mqtt.sequences FOLDER

FOLDER has JSON files as Mosquitto's source has them below test/broker/data. A file is a list of
groups, a group has sequences, and a sequence has messages: bytes that we send, bytes that must come
back exactly, and messages that a helper publishes. After them the connection must be closed, or
must answer a PINGREQ, as the sequence says. Prints what failed and the count for each version.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gapless.doors.mqtt.packets import (
    AnswerPacket,
    ConnectPacket,
    Kind,
    PingPacket,
    PublishPacket,
    encode,
)
from gapless.doors.mqtt.session import ALIASES_MAX, RECEIVE_MAXIMUM

if TYPE_CHECKING:
    from collections.abc import Iterator

ANSWER_S = 5.0
WORD = re.compile(r"'(?P<text>[^']*)'|(?P<kind>[iHkmsLvr])(?P<number>\d+)|(?P<hex>[0-9A-Fa-f]+)")
SIZES = {"i": 1, "H": 2, "k": 2, "m": 2, "s": 2, "L": 4}
CONNACKS = {
    3: bytes.fromhex("20 02 00 00"),
    4: bytes.fromhex("20 02 00 00"),
    5: bytes.fromhex("20 0e 00 00 0b 22")
    + ALIASES_MAX.to_bytes(2)
    + bytes.fromhex("27 00 1e 84 80 21")
    + RECEIVE_MAXIMUM.to_bytes(2),
}


class Sequence(NamedTuple):
    """One sequence of packets, and how it ends."""

    name: str
    version: int
    connects: bool
    is_closed: bool
    messages: list[dict[str, Any]]


class UnlikeError(Exception):
    """The door has answered otherwise."""


def read(folder: Path) -> Iterator[Sequence]:
    """All sequences of a folder; a sequence's own settings come before its group's."""
    for path in sorted(folder.glob("*.json")):
        for group in json.loads(path.read_text(encoding="utf-8")):
            if group.get("disable"):
                continue
            for each in group["tests"]:
                given = {"ver": 4, "connect": True, "expect_disconnect": True, **group, **each}
                yield Sequence(
                    f"{path.stem}: {group['group']}: {each['name']}",
                    given["ver"],
                    given["connect"],
                    given["expect_disconnect"],
                    each["msgs"],
                )


def data_of(text: str) -> bytes:
    """Bytes of a message: texts in quotes, numbers with a letter for their size, and hex."""
    made = b""
    for word in WORD.finditer(text):
        if word["text"] is not None:
            made += word["text"].encode()
        elif word["hex"] is not None:
            made += bytes.fromhex(word["hex"])
        elif word["kind"] in SIZES:
            made += int(word["number"]).to_bytes(SIZES[word["kind"]])
        else:
            rest = int(word["number"])
            while rest > 127:
                made += bytes([rest & 127 | 128])
                rest >>= 7
            made += bytes([rest])
    return made


def expect(peer: socket.socket, wanted: bytes) -> None:
    got = b""
    while len(got) < len(wanted) and (data := peer.recv(len(wanted) - len(got))):
        got += data
    if got != wanted:
        raise UnlikeError(f"wanted {wanted.hex(' ')}, got {got.hex(' ') or 'the end'}")


def help_publish(port: int, topic: str, payload: str, qos: int) -> None:
    with socket.create_connection(("127.0.0.1", port), ANSWER_S) as helper:
        helper.sendall(encode(ConnectPacket(4, "helper", True, 0), 4))
        expect(helper, CONNACKS[4])
        packet = 1 if qos else 0
        helper.sendall(encode(PublishPacket(topic, payload.encode(), qos, packet=packet), 4))
        if qos == 1:
            expect(helper, encode(AnswerPacket(Kind.PUBACK, 1), 4))
        elif qos == 2:
            expect(helper, encode(AnswerPacket(Kind.PUBREC, 1), 4))
            helper.sendall(encode(AnswerPacket(Kind.PUBREL, 1), 4))
            expect(helper, encode(AnswerPacket(Kind.PUBCOMP, 1), 4))


def play(port: int, sequence: Sequence) -> None:
    """Raises `UnlikeError` where the door answers otherwise."""
    with socket.create_connection(("127.0.0.1", port), ANSWER_S) as peer:
        try:
            if sequence.connects:
                version = sequence.version
                peer.sendall(encode(ConnectPacket(version, sequence.name, True, 60), version))
                expect(peer, CONNACKS[version])
            for message in sequence.messages:
                match message["type"]:
                    case "send":
                        peer.sendall(data_of(message["payload"]))
                    case "recv":
                        expect(peer, data_of(message["payload"]))
                    case "publish":
                        help_publish(port, message["topic"], message["payload"], message["qos"])
                    case other:
                        raise UnlikeError(f"a message of an unknown type: {other}")
            if not sequence.is_closed:
                peer.sendall(encode(PingPacket(), 4))
                expect(peer, b"\xd0\x00")
            elif data := peer.recv(100):
                raise UnlikeError(f"wanted the end, got {data.hex(' ')}")
        except TimeoutError:
            raise UnlikeError("nothing comes") from None
        except ConnectionError:
            if not sequence.is_closed:
                raise UnlikeError("the connection broke") from None


@contextmanager
def door() -> Iterator[int]:
    """The port of a `gapless serve --mqtt`."""
    any_port = "127.0.0.1:0"
    with tempfile.TemporaryDirectory() as folder:
        program = [sys.executable, "-c", "from gapless.cli import main; main()", "serve"]
        places = ["--listen", any_port, "--admin", "none", "--mqtt", any_port, "--data", folder]
        with subprocess.Popen([*program, *places], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                yield int(process.stdout.readline().rsplit(":", 1)[1])
            finally:
                process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="a folder with JSON files of sequences")
    given = parser.parse_args()
    total, passed = Counter[int](), Counter[int]()
    with door() as port:
        for sequence in read(given.folder):
            total[sequence.version] += 1
            try:
                play(port, sequence)
            except UnlikeError as error:
                print(f"{sequence.name}: {error}")
            else:
                passed[sequence.version] += 1
    for version, count in sorted(total.items()):
        print(f"version {version}: {passed[version]} of {count}")


if __name__ == "__main__":
    main()
