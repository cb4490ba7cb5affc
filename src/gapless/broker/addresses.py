"""Addresses: `host:port` texts, and where each broker of a network can be reached.

A broker whose port is 0 gets any free port. It writes its addresses into a file in its data folder
and asks for the same port after a restart, so that its clients find it again. Neighbours on the
same machine read the same file, and reach it by a Unix socket in that folder: a message costs less
there.

`AddressBook` knows the addresses of every broker of the network. The network file has them
(`advertise`, else `listen`, and those of its standbys): a text with commas in between. The
addresses of brokers that joined a running network come from these brokers themselves and from their
neighbours. A node names brokers; the book turns names into addresses before an answer leaves for a
client.
"""

from __future__ import annotations

import errno
import json
import os
from ipaddress import ip_address
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gapless.broker.logs import logger
from gapless.core.errors import UsageError
from gapless.core.identity import BrokerName

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gapless.core.client_messages import Refused
    from gapless.node.network import Network

FILE = "address.json"
STANDS_BY = "stands by"
"""The state, in the file, of a process that waits for the lease of its broker."""
LINK_SOCKET = "link.sock"
SOCKET_PATH_MAX = 100
"""Bytes of the path of a socket; systems take little more."""

NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
EVERYWHERE = ("0.0.0.0", "::")
"""Hosts to listen on, and of no use to one who wants to connect from elsewhere."""


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


def link_socket(folder: Path) -> Path | None:
    """Where brokers of this machine, which have the same data folder, reach the broker of this
    folder; None: the path is too long for a socket."""
    path = folder / LINK_SOCKET
    return path if len(os.fsencode(path)) <= SOCKET_PATH_MAX else None


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


class AddressBook:
    """The addresses of the brokers of a network."""

    def __init__(self, network: Network, data: Path, learnt_max: int = 1_000) -> None:
        self._data = data
        self._told: dict[str, str] = {
            each.name: each.addresses for cell in network.cells for each in cell.brokers
        }
        self._in_file = frozenset(self._told)
        self._learnt_max = learnt_max

    def __contains__(self, name: object) -> bool:
        return name in self._told

    def is_in_file(self, name: object) -> bool:
        return name in self._in_file

    def learn(self, addresses: Mapping[BrokerName, str]) -> dict[BrokerName, str]:
        """What is new of these; of the brokers of the file the file knows best."""
        fresh: dict[BrokerName, str] = {}
        for name, address in addresses.items():
            is_known = name in self._told
            if name in self._in_file or self._told.get(name) == address:
                continue
            if is_known or len(self._told) - len(self._in_file) < self._learnt_max:
                self._told[name] = fresh[name] = address
        return fresh

    def all(self) -> dict[BrokerName, str]:
        """Of every broker that can be found from elsewhere."""
        shown = {BrokerName(name): ",".join(self.shown(name)) for name in self._told}
        return {name: addresses for name, addresses in shown.items() if addresses}

    def find(self, name: BrokerName | str) -> list[tuple[str, int]]:
        """Hosts and ports; `ConnectionError` while none is known."""
        found = list(map(parse_address, self._told[name].split(",")))
        if found[0][1] == 0:
            told = read_addresses(self._data / name).get("listen")
            found[:1] = [parse_address(told)] if told is not None else []
        if not found:
            raise ConnectionError(f"{name} has not told its address yet")
        return found

    def shown(self, name: BrokerName | str) -> list[str]:
        """What somebody elsewhere may dial to reach it, as far as that is known."""
        try:
            found = self.find(name)
        except (ConnectionError, KeyError):
            return []
        return [show_endpoint(host, port) for host, port in found if host not in EVERYWHERE]

    def find_socket(self, name: BrokerName | str) -> Path | None:
        """The socket of a broker that tells its address in our data folder, if it has one."""
        told = self._told.get(name, ",")
        if "," in told or parse_address(told)[1]:
            return None
        path = link_socket(self._data / name)
        return path if path is not None and path.exists() else None

    def addressed(self, refused: Refused) -> Refused:
        """The same refusal for a client, who connects to addresses; unknown ones are left out.
        If none is known yet, it is to try again."""
        found = [address for name in refused.elsewhere for address in self.shown(name)]
        return replace(refused, elsewhere=tuple(found), retry=refused.retry or not found)
