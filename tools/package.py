"""Build the wheel and the source distribution, and try them as a stranger would: `make package`.

Steps: build twice and compare (a build is reproducible: same tree, same bytes); build the wheel
from the unpacked source distribution, which must give the same bytes again; install the wheel into
an empty environment and measure it; run a broker from another environment whose files nobody may
write, as an unprivileged user (if this process may change its user), first without a home and then
with one that it cannot write; publish, restart, subscribe. Needs only the project's own `.venv` and
pip. `--python` names another Python to try them with.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import textwrap
import venv
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
CONSTRAINTS = ROOT / "constraints.txt"
PLAIN_BYTES_MAX = 30 * 1000 * 1000
SUBSCRIPTIONS = 400
"""More than the Python engine of the matcher serves: the broker has to compile or load kernels."""

READY_S = 120
"""How long a broker may take to start on a machine where nothing is compiled yet."""

TRIAL = """
    import sys
    from gapless.sync import connect

    url, first = sys.argv[1], sys.argv[2] == "first"
    with connect(url) as client:
        if first:
            client.create_topic("trades")
            for each in range({subscriptions}):
                with client.subscribe("trades", f"price > {{each}}", name=f"desk-{{each}}"):
                    pass
            for price in range(10):
                client.publish("trades", {{"price": price}}, b"x")
        else:
            with client.subscribe("trades", "price > 3", name="desk-3") as events:
                found = iter(events)
                prices = [next(found).attributes["price"] for _ in range(6)]
                assert prices == [4, 5, 6, 7, 8, 9], prices
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build-only", action="store_true", help="leave out the trial")
    parser.add_argument("--python", default=sys.executable, help="the Python to try them with")
    options = parser.parse_args()
    wheel = build()
    if not options.build_only:
        with tempfile.TemporaryDirectory(prefix="gapless-package-") as folder:
            os.chmod(folder, 0o755)  # the other user must get in
            measure_plain(options.python, wheel, Path(folder) / "plain")
            try_broker(options.python, wheel, Path(folder))
    step(f"done: {', '.join(sorted(path.name for path in DIST.iterdir()))}")


def step(text: str) -> None:
    print(f"package: {text}", flush=True)


def run(*command: str | Path, **options: Any) -> None:
    finished = subprocess.run([str(part) for part in command], check=False, **options)
    if finished.returncode != 0:
        sys.exit(f"package: failed: {' '.join(map(str, command))}")


def build() -> Path:
    """Build twice into different folders; the same bytes must come out."""
    step("building the wheel and the source distribution, twice")
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as other:
        for folder in (DIST, Path(other)):
            folder.mkdir(exist_ok=True)
            backend = "import sys, hatchling.build as to; to.build_wheel(*sys.argv[1:])"
            both = f"{backend}; to.build_sdist(*sys.argv[1:])"
            run(builder(), "-c", both, folder, cwd=ROOT, stdout=subprocess.DEVNULL)
        for path in sorted(DIST.iterdir()):
            if digest(path) != digest(Path(other) / path.name):
                sys.exit(f"package: {path.name} differs from one build to the next")
    wheel = next(DIST.glob("*.whl"))
    check_contents(wheel)
    check_source(wheel)
    return wheel


def check_contents(wheel: Path) -> None:
    """It has its licence, and nothing but the product."""
    names = zipfile.ZipFile(wheel).namelist()
    if not any(name.endswith("licenses/LICENSE") for name in names):
        sys.exit("package: the wheel has no licence")
    others = [name for name in names if not name.startswith(("gapless", "pyspark_gapless/"))]
    if others:
        sys.exit(f"package: the wheel has files of others: {', '.join(others[:5])}")


def check_source(wheel: Path) -> None:
    """The source distribution is enough to build the wheel, and gives the same one."""
    step("building the wheel from the source distribution")
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as built:
        with tarfile.open(next(DIST.glob("*.tar.gz"))) as files:
            files.extractall(folder, filter="data")
        [tree] = Path(folder).iterdir()
        if not (tree / "LICENSE").exists():
            sys.exit("package: the source distribution has no licence")
        backend = "import sys, hatchling.build as to; to.build_wheel(*sys.argv[1:])"
        run(builder(), "-c", backend, built, cwd=tree, stdout=subprocess.DEVNULL)
        if digest(Path(built) / wheel.name) != digest(wheel):
            sys.exit("package: the wheel of the source distribution differs")


def builder() -> Path:
    """A Python that has the build backend, in an environment of its own."""
    environment = ROOT / ".venv" / "build"
    python = environment / "bin" / "python"
    if not python.exists():
        venv.create(environment, with_pip=True)
        run(python, "-m", "pip", "install", "--quiet", "-c", CONSTRAINTS, "hatchling")
    return python


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def make_environment(base: str, folder: Path, requirement: str) -> Path:
    run(base, "-m", "venv", "--copies", folder)  # a link may lead where only this user may go
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
        "-c", CONSTRAINTS, requirement)  # fmt: skip
    return python


def measure_plain(base: str, wheel: Path, folder: Path) -> None:
    """A plain installation is small and answers."""
    step("installing the wheel alone")
    python = make_environment(base, folder, str(wheel))
    run(python, "-m", "gapless", "--version")
    run(python, "-m", "gapless", "--help", stdout=subprocess.DEVNULL)
    run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "setuptools", "pip")
    site = next((folder / "lib").glob("python*/site-packages"))
    total = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    step(f"a plain installation has {total / 1e6:.1f} MB")
    if total > PLAIN_BYTES_MAX:
        sys.exit(f"package: that is more than {PLAIN_BYTES_MAX / 1e6:.0f} MB")


def try_broker(base: str, wheel: Path, folder: Path) -> None:
    """Serve from files that nobody may write, as a user without a home; restart in between."""
    step("installing the wheel with the extra 'broker'")
    python = make_environment(base, folder / "broker", f"gapless[broker] @ {wheel.as_uri()}")
    subprocess.run(["chmod", "-R", "a-w,a+rX", str(folder / "broker")], check=True)
    data = folder / "data"
    data.mkdir()
    user: dict[str, Any] = {}
    if os.getuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(data, nobody.pw_uid, nobody.pw_gid)
        user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        if not can_run(python, user):
            step("nobody may not run this Python here: the broker runs as this user")
            user = {}
    trial = textwrap.dedent(TRIAL.format(subscriptions=SUBSCRIPTIONS))
    address = f"127.0.0.1:{free_port()}"
    home = folder / "home"
    home.mkdir(mode=0o555)
    for turn, place in (("first", Path("/nonexistent")), ("second", home)):
        who = "nobody" if user else "this user"
        step(f"a broker as {who}, {turn} run, {'read-only' if place is home else 'no'} home")
        broker = subprocess.Popen(
            [
                python,
                "-m",
                "gapless",
                "serve",
                "--data",
                data,
                "--listen",
                address,
                "--admin",
                "127.0.0.1:0",
            ],  # its usual port may be taken
            env={"HOME": str(place), "PATH": os.defpath},
            cwd="/",
            **user,
        )
        try:
            run(python, "-c", trial, f"gapless://{address}", turn, timeout=READY_S, cwd="/")
        finally:
            broker.send_signal(signal.SIGTERM)
            if broker.wait(60) != 0:
                sys.exit("package: the broker did not end well")


def can_run(python: Path, user: dict[str, Any]) -> bool:
    """Whether a user reaches all of a Python: its libraries may lie where only root may go."""
    try:
        return subprocess.run([python, "-c", "import ssl"], check=False, **user).returncode == 0
    except PermissionError:
        return False


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


if __name__ == "__main__":
    main()
