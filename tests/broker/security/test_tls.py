"""Handshakes are bounded, certificates say what they say, and bad files change nothing."""

from __future__ import annotations

import logging
import ssl
from typing import TYPE_CHECKING

import pytest

from gapless.broker.security.policy import read_security
from gapless.broker.security.tls import BROKER_URI, Handshakes, Tls, brokers_in, common_name
from gapless.core.errors import UsageError
from tests.broker.castle import Castle

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.broker.security.policy import Security


def security_of(folder: Path) -> Security:
    files = {"authority": "authority.crt", "principals": "principals.json"}
    pair = {"certificate": "brokers/{broker}.crt", "key": "brokers/{broker}.key"}
    return read_security(files | pair, "b", folder)


def test_one_handshake_too_many_is_refused_until_another_ends() -> None:
    handshakes = Handshakes(handshakes_max=2, patience_s=60)
    handshakes.begin(1)
    handshakes.begin(2)
    with pytest.raises(ssl.SSLError, match="too many handshakes"):
        handshakes.begin(3)
    handshakes.end(1)
    handshakes.begin(3)
    handshakes.end(2, ssl.SSLError("no"))
    assert (handshakes.refused, handshakes.failed) == (1, 1)


def test_a_handshake_that_took_too_long_does_not_count() -> None:
    handshakes = Handshakes(handshakes_max=1, patience_s=0)
    handshakes.begin(1)
    handshakes.begin(2)
    assert handshakes.refused == 0


def test_a_certificate_names_brokers_by_uri_only() -> None:
    names = (("URI", f"{BROKER_URI}p"), ("DNS", "q"), ("URI", "urn:other:r"), ("URI", BROKER_URI))
    assert brokers_in({"subjectAltName": names}) == {"p", ""}
    assert brokers_in({}) == brokers_in(None) == frozenset()
    subject = ((("organizationName", "o"),), (("commonName", "desk"),))
    assert common_name({"subject": subject}) == "desk"
    assert common_name({}) == common_name(None) == ""


def test_nothing_below_tls_1_2_is_spoken_and_brokers_must_show_a_certificate(
    tmp_path: Path,
) -> None:
    Castle(tmp_path)
    tls = Tls(security_of(tmp_path), 1.0)
    for context in (tls.port, tls.admin, tls.dial):
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert tls.dial.verify_mode == ssl.CERT_REQUIRED
    assert tls.port.verify_mode == ssl.CERT_OPTIONAL


@pytest.mark.parametrize("name", ["authority.crt", "brokers/b.crt", "brokers/b.key"])
@pytest.mark.parametrize("content", [None, "no PEM"])
def test_a_file_that_is_no_good_is_named(tmp_path: Path, name: str, content: str | None) -> None:
    Castle(tmp_path)
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(UsageError, match=name):
        Tls(security_of(tmp_path), 1.0)


def test_a_key_of_another_certificate_is_refused_and_the_old_one_stays(tmp_path: Path) -> None:
    castle = Castle(tmp_path)
    tls = Tls(security_of(tmp_path), 1.0)
    key = (tmp_path / "brokers/b.key").read_bytes()
    castle.write(castle.authority.broker("b"), "brokers/b")
    (tmp_path / "brokers/b.key").write_bytes(key)
    with pytest.raises(UsageError, match="cannot use the certificate"):
        tls.reload()


def test_a_key_that_others_can_read_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Castle(tmp_path)
    with caplog.at_level(logging.WARNING, "gapless.broker"):
        Tls(security_of(tmp_path), 1.0)
        assert caplog.messages == []
        (tmp_path / "brokers/b.key").chmod(0o640)
        Tls(security_of(tmp_path), 1.0)
    assert caplog.messages == ["others can read a private key"]
