"""Addresses are read and told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gapless.broker.address import (
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
