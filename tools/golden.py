"""Make the golden files of a release: what it wrote to disk and sent over the wire, kept for tests.

    python -m tools.golden 0.1                      the files of tests/golden/0.1
    python -m tools.golden 0.2 --revision v0.2.0

The wheel of the release is built from git and installed into a folder of its own. A broker and a
client of it, both of that release, publish, subscribe, acknowledge and commit transactions. The
broker is stopped once in order and killed in the end. Kept are its data folder (`volume.tar.xz`),
what was promised to its clients (`facts.json`), a conversation of client and broker byte by byte
(`conversation.json`), and the samples of messages that its tests had (`messages.txt`).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from tools.rolling_upgrade import LAST_OF_0_1, ROOT, build_old

GOLDEN = ROOT / "tests" / "golden"
READY_S = 120

CLIENT = '''
import json, socket, sys, threading
import gapless

connect = gapless.sync.connect

url, turn, file = sys.argv[1:]

def attributes(number):
    symbol = "ÄÖ" if number % 2 else "IBM"
    return {"number": number, "price": number / 2, "symbol": symbol, "sold": number % 3 == 0}

def publish(client, numbers):
    with client.publisher("trades", name="feed") as publisher:
        for number in numbers:
            publisher.send(attributes(number), f"body {number}".encode())

def first(client):
    client.create_topic("trades")
    client.create_topic("short", pubends=2, retention_seconds=3600)
    for name, keeper in (("by-client", "client"), ("by-broker", "broker")):
        with client.subscribe("trades", "price > 10", name=name, tokens=keeper):
            pass
    publish(client, range(100))
    with client.transaction("trades", producer="job", id=7) as transaction:
        transaction.send(attributes(100), b"committed")
    with client.subscribe("trades", name="by-client", condition="price > 10") as events:
        found = iter(events)
        taken = [next(found).attributes["number"] for _ in range(30)]
        events.acknowledge()
        taken += [next(found).attributes["number"] for _ in range(10)]
        token = events.token.to_json()
    return {"token": token, "taken": taken}

def second(client):
    with client.stage("trades", producer="job", id=8) as staged:
        staged.send(attributes(999), b"never committed")
    publish(client, range(101, 160))
    with client.subscribe("trades", "price > 10", name="by-broker", tokens="broker") as events:
        found = iter(events)
        taken = [next(found).attributes["number"] for _ in range(20)]
    log = [
        [e.pubend, e.tick, dict(e.attributes), e.body.decode(), e.publisher, e.sequence]
        for batch in client.read("trades")
        for e in batch.events()
    ]
    return {"by_broker": taken, "log": log, "version": gapless.__version__}

def conversation(host, port):
    """Talk through a port that writes down what passes, until the event has come."""
    said, door = [], socket.create_server(("127.0.0.1", 0))
    def pump(source, target, who):
        while data := source.recv(1 << 16):
            said.append([who, data.hex()])
            target.sendall(data)
    def serve():
        near, far = door.accept()[0], socket.create_connection((host, port))
        threading.Thread(target=pump, args=(far, near, "broker"), daemon=True).start()
        pump(near, far, "client")
    threading.Thread(target=serve, daemon=True).start()
    with connect(f"gapless://127.0.0.1:{door.getsockname()[1]}") as client:
        client.create_topic("talk")
        with client.subscribe("talk", "price > 90", name="desk") as events:
            client.publish("talk", {"symbol": "IBM", "price": 92.5}, b"x")
            event = next(iter(events))
            return {"said": list(said), "event": dict(event.attributes)}

host, port = url.removeprefix("gapless://").split(":")
if turn == "conversation":
    result = conversation(host, int(port))
else:
    with connect(url) as client:
        result = {"first": first, "second": second}[turn](client)
open(file, "w").write(json.dumps(result, ensure_ascii=False, indent=1))
'''


def play(installed: Path, work: Path) -> None:
    """Two lives of a broker of the release, and one of another for the conversation."""
    environment = os.environ | {"PYTHONPATH": str(installed)}
    program = work / "client.py"
    program.write_text(CLIENT)
    lives = (("data", "first", False), ("data", "second", True), ("talk", "conversation", False))
    for folder, turn, is_killed in lives:
        data = work / folder
        (data / "serve" / "address.json").unlink(missing_ok=True)
        run = "from gapless.cli import main; main()"
        command = [sys.executable, "-c", run, "serve", "--data", str(data)]
        options = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
        broker = subprocess.Popen([*command, *options], env=environment, cwd=work)
        try:
            url = wait_for(data / "serve" / "address.json", broker)
            client = [sys.executable, str(program), url, turn, str(work / f"{turn}.json")]
            subprocess.run(client, env=environment, cwd=work, check=True, timeout=READY_S)
        finally:
            broker.send_signal(signal.SIGKILL if is_killed else signal.SIGTERM)
            broker.wait()


def wait_for(file: Path, broker: subprocess.Popen[bytes]) -> str:
    for _ in range(READY_S * 10):
        if file.exists() and broker.poll() is None:
            try:
                return str(json.loads(file.read_text())["url"])
            except ValueError:
                pass
        time.sleep(0.1)
    raise SystemExit("the broker of the release does not start")


def keep(work: Path, revision: str, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    facts = json.loads((work / "first.json").read_text())
    facts |= json.loads((work / "second.json").read_text())
    (target / "facts.json").write_text(json.dumps(facts, ensure_ascii=False) + "\n")
    (target / "conversation.json").write_text((work / "conversation.json").read_text() + "\n")
    shown = ["git", "show", f"{revision}:tests/wire/golden.txt"]
    samples = subprocess.run(shown, cwd=ROOT, check=True, capture_output=True).stdout
    (target / "messages.txt").write_bytes(samples)
    with tarfile.open(target / "volume.tar.xz", "w:xz") as files:
        files.add(work / "data", arcname=".")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("release", help="the name of its folder in tests/golden")
    parser.add_argument("--revision", default=LAST_OF_0_1, help="what to build")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gapless-golden-") as folder:
        work = Path(folder)
        play(build_old(given.revision, work), work)
        keep(work, given.revision, GOLDEN / given.release)


if __name__ == "__main__":
    main()
