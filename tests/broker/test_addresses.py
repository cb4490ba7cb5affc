"""Addresses are read and told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gapless.broker.addresses import (
    check_exposure,
    is_loopback,
    parse_address,
    read_addresses,
    show_endpoint,
    write_addresses,
)
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "expected"),
    [("127.0.0.1:7117", ("127.0.0.1", 7117)), ("[::1]:0", ("::1", 0)), ("b.x:1", ("b.x", 1))],
)
def test_an_address_is_read_and_shown_alike(text: str, expected: tuple[str, int]) -> None:
    assert parse_address(text) == expected
    assert show_endpoint(*expected) == text


@pytest.mark.parametrize("text", ["", "host", ":1", "host:", "host:x", "host:65536", "host:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no address"):
        parse_address(text)


def test_addresses_that_were_never_told_or_are_damaged_are_none(tmp_path: Path) -> None:
    assert read_addresses(tmp_path) == {}
    (tmp_path / "address.json").write_text("{")
    assert read_addresses(tmp_path) == {}
    write_addresses(tmp_path, {"listen": "a:1", "admin": None, "process": 7})
    assert read_addresses(tmp_path) == {"listen": "a:1", "process": "7"}


def test_loopback_is_told_from_what_others_can_reach() -> None:
    assert is_loopback("127.0.0.1:1")
    assert is_loopback("[::1]:1")
    assert not is_loopback("0.0.0.0:1")


@pytest.mark.parametrize(
    ("endpoint", "is_secure", "insecure", "allowed"),
    [
        ("127.0.0.1:1", False, False, True),
        ("[::1]:1", False, False, True),
        ("0.0.0.0:1", False, False, False),
        ("10.0.0.7:1", False, False, False),
        ("10.0.0.7:1", True, False, True),
        ("10.0.0.7:1", False, True, True),
    ],
)
def test_without_security_only_loopback_is_listened_on(
    endpoint: str, is_secure: bool, insecure: bool, allowed: bool
) -> None:
    def check() -> None:
        check_exposure(endpoint, option="--listen", is_secure=is_secure, insecure=insecure)

    if allowed:
        check()
    else:
        with pytest.raises(UsageError, match="security init"):
            check()
