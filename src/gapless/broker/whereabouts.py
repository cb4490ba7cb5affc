"""Whereabouts: at which address each broker of the network is reached.

As the network file says (`advertise`, else `listen`). Where the port there is 0, the broker has
told it in its data folder, if that is on this machine. A node names brokers; on the way out to a
client the names become addresses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gapless.broker.address import parse_address, read_addresses, show_endpoint

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.core.client_messages import Refused
    from gapless.core.identity import BrokerName
    from gapless.node.network import Network

EVERYWHERE = ("0.0.0.0", "::")
"""Hosts to listen on, and of no use to one who wants to connect from elsewhere."""


class Whereabouts:
    """The addresses of the brokers of a network."""

    def __init__(self, network: Network, data: Path) -> None:
        self._data = data
        self._told: dict[str, str] = {
            each.name: each.advertise or each.listen
            for cell in network.cells
            for each in cell.brokers
        }

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
