"""`gapless security` makes what a broker and its clients need, and overwrites nothing."""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING, NamedTuple

import pytest
from typer.testing import CliRunner

from gapless.broker.security.policy import read_security
from gapless.broker.security.principals import read_principals
from gapless.broker.security.tls import Tls
from gapless.cli import app
from gapless.core.errors import GaplessError
from tests.broker.stage import LINE
from tests.children import rest
from tests.cli.test_serve import gapless, serving

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.broker.security.policy import Security


class Said(NamedTuple):
    """What a command put out."""

    exit_code: int
    stdout: str
    stderr: str


def security(*arguments: str) -> Said:
    """The command within this process, which is quicker."""
    result = CliRunner().invoke(app, ["security", *arguments])
    error = str(result.exception) if isinstance(result.exception, GaplessError) else result.stderr
    return Said(result.exit_code, result.stdout, error)


def loaded(file: Path, broker: str, folder: Path) -> Security:
    """The table of a file, whose certificates can be used."""
    security = read_security(tomllib.loads(file.read_text())["security"], broker, folder)
    Tls(security, 1.0)
    return security


@pytest.mark.slow
def test_a_first_user_makes_a_secure_broker_and_talks_to_it(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    told = security("init", str(folder))
    assert "gapless serve --security" in told.stdout, told.stderr
    assert security("init", str(folder)).exit_code == 1, "nothing is overwritten"
    for path in folder.rglob("*"):
        if path.suffix in (".key", ".token", ".json"):
            assert path.stat().st_mode & 0o777 == 0o600, path
    out = tmp_path / "feed.token"
    at = ("--folder", str(folder))
    security("token", "feed", "--rights", "publish=ev*", "--out", str(out), *at)
    made = security("certificate", "desk", "--rights", "subscribe=events", *at)
    assert "desk.crt" in made.stdout, made.stderr
    listed = json.loads(security("list", "--json", *at).stdout)
    assert listed["feed"] == {"rights": {"publish": ["ev*"]}, "tokens": 1}
    assert listed["desk"] == {"rights": {"subscribe": ["events"]}, "tokens": 0}
    options = ("--topic", "events", "--security", str(folder / "security.toml"))
    with serving(tmp_path / "data", *options) as (url, process):
        ca = ("--ca", str(folder / "authority.crt"))
        shown = ("--access-token", str(out))
        assert gapless("publish", "events", "a=1", "--url", url, *ca, *shown).returncode == 0
        refused = gapless("unsubscribe", "x", "--url", url, *ca, *shown)
        assert "no subscription 'x' of yours" in refused.stderr
        assert "not admitted" in gapless("publish", "events", "a=1", "--url", url, *ca).stderr
        assert "not good" in gapless("publish", "events", "a=1", "--url", url, *shown).stderr
        status = ("status", "--data", str(tmp_path / "data"))
        assert "does not admit you" in gapless(*status, *ca, *shown).stderr
        assert "--ca" in gapless(*status).stderr
        admin = ("--access-token", str(folder / "admin.token"))
        assert "state=ready" in gapless(*status, *ca, *admin).stdout
        pair = folder / "clients" / "desk"
        files = ("--certificate", f"{pair}.crt", "--key", f"{pair}.key")
        refused = gapless("publish", "events", "a=1", "--url", url, *ca, *files)
        assert "not allowed to publish on topic 'events'" in refused.stderr
        process.terminate()
        assert rest(process) == "", "nothing about missing security"


def test_a_token_that_replaces_others_leaves_none_of_them(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    assert security("init", str(folder)).exit_code == 0
    at = ("--folder", str(folder))
    tokens = [
        security("token", "feed", *options, *at).stdout.strip()
        for options in (("--rights", "publish=t"), (), ("--replace",))
    ]
    principals = read_principals(folder / "principals.json")
    found = [principals.by_token(each) for each in tokens]
    assert [each is not None for each in found] == [False, False, True]
    assert found[2] is not None
    assert found[2].rights.show() == "publish=t"


def test_every_broker_of_a_network_gets_a_certificate(tmp_path: Path) -> None:
    network, folder = tmp_path / "network.toml", tmp_path / "deep" / "made"
    network.write_text(LINE)
    told = security("init", str(folder), "--network", str(network), "--host", "broker.example")
    assert told.exit_code == 0, told.stderr
    network.write_text(LINE + (folder / "security.toml").read_text())
    for broker in ("p", "r1", "r2", "s", "o"):
        loaded(network, broker, tmp_path)
    before = (folder / "brokers" / "p.crt").read_bytes()
    again = ("certificate", "p", "--broker", "--folder", str(folder))
    assert "is there already" in security(*again).stderr
    assert (folder / "brokers" / "p.crt").read_bytes() == before
    assert security(*again, "--renew").exit_code == 0
    assert (folder / "brokers" / "p.crt").read_bytes() != before
    loaded(network, "p", tmp_path)
    revoke = ("revoke", "admin", "--folder", str(folder))
    assert security(*revoke).exit_code == 0
    assert "no principal" in security(*revoke).stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("security", "token", "x", "--rights", "all"), "security init"),
        (("security", "list", "--folder", "missing"), "security init"),
        (("security", "certificate", "a/b"), "no name"),
        (("serve", "--security", "missing.toml"), "security init"),
        (("serve", "--listen", "0.0.0.0:0"), "without security nobody may listen"),
        (("serve", "--listen", "127.0.0.1:0", "--admin", "0.0.0.0:0"), "without security nobody"),
        (("publish", "t", "a=1", "--access-token", "none"), "cannot read none"),
    ],
)
def test_an_error_says_what_to_do(
    tmp_path: Path, arguments: tuple[str, ...], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = gapless(*arguments)
    assert result.returncode == 2
    assert problem in result.stderr
    assert len(result.stderr.splitlines()) == 1
