"""Whereabouts: at which address each broker of the network is reached.

As the network file says (`advertise`, else `listen`). Where the port there is 0, the broker has
told it in its data folder, if that is on this machine. Brokers that joined are in no file: where
they are is learnt from themselves, and from others. A node names brokers; on the way out to a
client the names become addresses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gapless.broker.address import parse_address, read_addresses, show_endpoint
from gapless.core.identity import BrokerName

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gapless.core.client_messages import Refused
    from gapless.node.network import Network

EVERYWHERE = ("0.0.0.0", "::")
"""Hosts to listen on, and of no use to one who wants to connect from elsewhere."""


class Whereabouts:
    """The addresses of the brokers of a network."""

    def __init__(self, network: Network, data: Path, learnt_max: int = 1_000) -> None:
        self._data = data
        self._told: dict[str, str] = {
            each.name: each.advertise or each.listen
            for cell in network.cells
            for each in cell.brokers
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
        found: dict[BrokerName, str] = {}
        for name in self._told:
            try:
                host, port = self.find(name)
            except ConnectionError:
                continue
            if host not in EVERYWHERE:
                found[BrokerName(name)] = show_endpoint(host, port)
        return found

    def find(self, name: BrokerName | str) -> tuple[str, int]:
        """Host and port; `ConnectionError` while they are not known."""
        host, port = parse_address(self._told[name])
        if port == 0:
            told = read_addresses(self._data / name).get("listen")
            if told is None:
                raise ConnectionError(f"{name} has not told its address yet")
            host, port = parse_address(told)
        return host, port

    def addressed(self, refused: Refused) -> Refused:
        """The same refusal for a client, who connects to addresses; unknown ones are left out.
        If none is known yet, it is to try again."""
        found: list[str] = []
        for name in refused.elsewhere:
            try:
                host, port = self.find(name)
            except ConnectionError:
                continue
            if host not in EVERYWHERE:
                found.append(show_endpoint(host, port))
        return replace(refused, elsewhere=tuple(found), retry=refused.retry or not found)
