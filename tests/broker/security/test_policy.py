"""The `[security]` table is read whole, and what would be silently ignored is refused."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from gapless.broker.security.policy import read_security
from gapless.broker.security.rights import parse_rights
from gapless.core.errors import UsageError
from tests.broker.castle import TABLE

FOLDER = Path("etc")


def read(text: str, broker: str = "b") -> object:
    return tomllib.loads(TABLE + text)["security"]


def test_file_names_are_of_the_broker_and_relative_to_the_folder() -> None:
    found = read_security(read(""), "b", FOLDER)
    assert found.path(found.certificate) == Path("etc/brokers/b.crt")
    assert found.path(found.key) == Path("etc/brokers/b.key")
    assert found.path(found.authority) == Path("etc/authority.crt")


def test_one_broker_may_have_files_of_its_own() -> None:
    text = '[security.brokers.b]\ncertificate = "/x/{broker}.pem"\nkey = "/x/key"\n'
    own, other = (read_security(read(text), name, FOLDER) for name in ("b", "c"))
    assert own.path(own.certificate) == Path("/x/b.pem")
    assert own.path(own.key) == Path("/x/key")
    assert other.path(other.key) == Path("etc/brokers/c.key")


def test_rights_and_limits_are_read() -> None:
    text = 'principal_connections_max = 3\n[security.rights]\n"desk-*" = { subscribe = ["t"] }\n'
    found = read_security(read(text), "b", FOLDER)
    assert found.principal_connections_max == 3
    assert found.rights == {"desk-*": parse_rights(["subscribe=t"])}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("password = 'x'", "no field 'password'"),
        ("folder = 'x'", "no field 'folder'"),
        ("strangers_max = 'x'", "wrong type"),
        ("strangers_max = true", "wrong type"),
        ("strangers_max = 0", "above zero"),
        ("rights = 'all'", "no table of tables"),
        ("[security.rights]\nx = { fly = ['*'] }", "no right 'fly'"),
        ("[security.brokers.b]\nlisten = 'x'", "no field 'listen'"),
        ("[security.brokers.b]\nkey = 7", "wrong type"),
    ],
)
def test_what_is_wrong_is_named(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        read_security(read(text), "b", FOLDER)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(UsageError, match="lacks certificate, key, principals"):
        read_security({"authority": "x"}, "b", FOLDER)
    with pytest.raises(UsageError, match="no table"):
        read_security("on", "b", FOLDER)
