"""Addresses of brokers: `gapless://host:port`, several of them with commas in between.

`gapless+tls://` means TLS.
"""

from __future__ import annotations

from typing import NamedTuple

from gapless.core.errors import UsageError

SCHEME = "gapless://"
TLS_SCHEME = "gapless+tls://"
PORT = 7117


class Address(NamedTuple):
    """Where one broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_addresses(text: str) -> tuple[Address, ...]:
    """The brokers of `gapless://a:7117,b:7117`; the port may be left out."""
    if "://" in text and not text.startswith((SCHEME, TLS_SCHEME)):
        raise UsageError(f"{text!r} is no address of a broker", f"Write {SCHEME}host:port.")
    bare = text.removeprefix(SCHEME).removeprefix(TLS_SCHEME)
    return tuple(map(_parse, bare.rstrip("/").split(",")))


def is_tls(text: str) -> bool:
    return text.startswith(TLS_SCHEME)


def _parse(text: str) -> Address:
    host, _, port = text.strip().rpartition(":")
    if text.strip().endswith("]") or not host:
        host, port = text.strip(), str(PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) <= 65_535:
        raise UsageError(f"{text!r} is no address of a broker", f"Write {SCHEME}host:port.")
    return Address(host, int(port))
