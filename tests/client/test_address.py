"""Addresses of brokers are read, and what is none is refused."""

from __future__ import annotations

import pytest

from gapless.client.address import is_tls, parse_addresses
from gapless.core.errors import UsageError


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("gapless://a:1", ["a:1"]),
        ("gapless://a", ["a:7117"]),
        ("gapless://a:1,b,[::1]:3/", ["a:1", "b:7117", "[::1]:3"]),
        ("[::1]", ["[::1]:7117"]),
        ("127.0.0.1:8", ["127.0.0.1:8"]),
    ],
)
def test_addresses_are_read(text: str, shown: list[str]) -> None:
    assert list(map(str, parse_addresses(text))) == shown


@pytest.mark.parametrize("text", ["", "http://a", "gapless://", "a:0", "a:x", "a:1,,b", "a:99999"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no address"):
        parse_addresses(text)


def test_tls_is_part_of_the_address() -> None:
    text = "gapless+tls://a:1,b"
    assert list(map(str, parse_addresses(text))) == ["a:1", "b:7117"]
    assert is_tls(text)
    assert not is_tls("gapless://a:1")
