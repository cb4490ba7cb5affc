"""Brokers behind TLS, with principals of every kind, for the tests of security."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

from gapless.broker.broker import Broker
from gapless.broker.security.authority import Authority
from gapless.broker.security.principals import Principals
from gapless.broker.security.rights import ALL_RIGHTS, parse_rights
from gapless.broker.settings import Settings
from gapless.client.client import connect
from gapless.core.identity import BrokerName
from gapless.core.messages import Hello
from gapless.node.network import parse_network
from tests.broker.stage import ONE, ByHand
from tests.children import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.broker.security.authority import Pair
    from gapless.client.client import Client
    from gapless.node.config import Config

TABLE = """
[security]
authority = "authority.crt"
certificate = "brokers/{broker}.crt"
key = "brokers/{broker}.key"
principals = "principals.json"
login_delay_s = 0.01
"""
PEOPLE = {
    "feed": "publish=t",
    "desk": "subscribe=t",
    "rival": "subscribe=t",
    "keeper": "administer=*",
    "idle": "create=x",
}


class Castle:
    """An authority, the certificates of some brokers, and principals with tokens."""

    def __init__(self, folder: Path, *brokers: str, text: str = ONE, table: str = TABLE) -> None:
        self.folder = folder
        self.text = text + table
        self.authority = Authority.made("test")
        self.authority.pair.write(folder / "authority.crt", folder / "authority.key")
        self.principals = Principals()
        self.tokens = {"admin": self.principals.add_token("admin", ALL_RIGHTS)}
        for name, rights in PEOPLE.items():
            self.tokens[name] = self.principals.add_token(name, parse_rights([rights]))
        self.principals.write(folder / "principals.json")
        for name in brokers or ("b",):
            self.write(self.authority.broker(name), f"brokers/{name}")

    def write(self, pair: Pair, name: str) -> dict[str, Any]:
        """Replaces what is there; the options with which to show it."""
        certificate, key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        pair.write(certificate, key, replace=True)
        return {"certificate": certificate, "key": key}

    @property
    def ca(self) -> Path:
        return self.folder / "authority.crt"

    def broker(self, name: str = "b", **settings: Any) -> Broker:
        """`config` among them goes to the node."""
        config: Config | None = settings.pop("config", None)
        options = {"admin": None, "check_every_s": 0.001, **settings}
        made = Settings(data=self.folder, security_folder=self.folder, **options)
        return Broker(BrokerName(name), parse_network(self.text), made, config)

    def client(self, broker: Broker, who: str = "", **options: Any) -> Client:
        """Of a principal, by token; or with these options."""
        token = {"token": self.tokens[who]} if who else {}
        given = {"ca": self.ca, "patience_s": PATIENCE_S, **token, **options}
        return connect(broker.url, **given)

    async def by_hand(self, broker: Broker, who: str = "", hello: Hello | None = None) -> ByHand:
        """A peer that speaks TLS, and then whatever it likes."""
        import asyncio

        context = ssl.create_default_context(cafile=str(self.ca))
        host, port = broker.address.split(":")
        peer = ByHand(*await asyncio.open_connection(host, int(port), ssl=context))
        if who:
            hello = Hello(token=self.tokens[who])
        if hello is not None:
            peer.send(hello)
        return peer
