"""Certificates are for what they were made for, and private keys for their owner alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from gapless.broker.security.authority import Authority
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.broker.security.authority import Pair


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.made("test")


def purposes(pair: Pair) -> set[x509.ObjectIdentifier]:
    return set(pair.certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


def test_a_clients_certificate_never_serves(authority: Authority) -> None:
    client, broker = authority.client("desk"), authority.broker("p", ["example.com", "10.0.0.7"])
    assert purposes(client) == {ExtendedKeyUsageOID.CLIENT_AUTH}
    both = {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}
    assert purposes(broker) == both
    with pytest.raises(x509.ExtensionNotFound):
        client.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    names = broker.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert names.value.get_values_for_type(x509.DNSName) == ["localhost", "example.com"]
    assert names.value.get_values_for_type(x509.UniformResourceIdentifier) == [
        "urn:gapless:broker:p"
    ]
    addresses = names.value.get_values_for_type(x509.IPAddress)
    assert list(map(str, addresses)) == ["127.0.0.1", "::1", "10.0.0.7"]


def test_all_are_signed_by_the_authority_and_none_signs_others(authority: Authority) -> None:
    for pair in (authority.client("desk"), authority.broker("p")):
        pair.certificate.verify_directly_issued_by(authority.pair.certificate)
        basics = pair.certificate.extensions.get_extension_for_class(x509.BasicConstraints)
        assert not basics.value.ca


def test_an_authority_is_read_as_it_was_written(tmp_path: Path, authority: Authority) -> None:
    certificate, key = tmp_path / "a.crt", tmp_path / "a.key"
    authority.pair.write(certificate, key)
    assert key.stat().st_mode & 0o777 == 0o600
    read = Authority.read(certificate, key)
    read.client("desk").certificate.verify_directly_issued_by(authority.pair.certificate)
    with pytest.raises(UsageError, match="is there already"):
        read.pair.write(certificate, key)
    key.write_text("no PEM")
    with pytest.raises(UsageError, match="security init"):
        Authority.read(certificate, key)
    with pytest.raises(UsageError, match="security init"):
        Authority.read(tmp_path / "none", key)


@pytest.mark.parametrize("name", ["", "a/../b", "a b"])
def test_a_name_that_could_be_a_path_is_refused(authority: Authority, name: str) -> None:
    for make in (authority.client, authority.broker):
        with pytest.raises(UsageError, match="no name"):
            make(name)
