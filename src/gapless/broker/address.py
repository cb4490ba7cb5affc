"""Addresses: `host:port` texts, and the file in which a broker says where it is.

A broker whose port is 0 gets any free port; it asks for the one it had last, so that after a
restart its clients find it again. Neighbours on the same machine read the same file.
"""

from __future__ import annotations

import errno
import json
import os
from ipaddress import ip_address
from typing import TYPE_CHECKING

from gapless.broker.logs import logger
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

FILE = "address.json"
NO_SPACE = {errno.ENOSPC, errno.EDQUOT}


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[v6]:port`."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise UsageError(f"{text!r} is no address", "Write host:port, such as 127.0.0.1:7117.")
    return host.strip("[]"), int(port)


def show_endpoint(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(endpoint: str) -> bool:
    return ip_address(parse_address(endpoint)[0]).is_loopback


def check_exposure(endpoint: str, *, option: str, is_secure: bool, insecure: bool) -> None:
    """Without security only loopback is listened on, unless someone insists."""
    if is_secure or is_loopback(endpoint):
        return
    if not insecure:
        raise UsageError(
            f"without security nobody may listen on {endpoint}: whoever reaches it could do all",
            f"Set up security with `gapless security init`, or give {option} a loopback address; "
            "--insecure listens all the same.",
        )
    logger.warning(
        "INSECURE: whoever reaches this address may read, publish and delete everything",
        extra={"address": endpoint},
    )


def read_addresses(folder: Path) -> dict[str, str]:
    """What the broker of this data folder last said; empty if it never did."""
    try:
        found = json.loads((folder / FILE).read_bytes())
    except (OSError, ValueError):
        return {}
    return {str(key): str(value) for key, value in found.items() if value}


def write_addresses(folder: Path, addresses: dict[str, str | int | None]) -> None:
    """Whole or not at all: a reader never sees half a file. On a full disk the file that is there
    is written over, which takes no room; where there is none, nobody is told."""
    new, data = folder / f"{FILE}.new", (json.dumps(addresses, indent=1) + "\n").encode()
    try:
        new.write_bytes(data)
        os.replace(new, folder / FILE)
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        new.unlink(missing_ok=True)
        try:
            with (folder / FILE).open("r+b") as file:
                file.write(data)
                file.truncate()
        except OSError:
            logger.warning("no room to tell the addresses", extra={"file": folder / FILE})
