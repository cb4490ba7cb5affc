"""A private authority: the certificates that `gapless security` makes.

Theory of operation
    One authority signs for brokers and clients of one network. Its key is needed only to sign:
    keep it off the brokers' machines. A broker's certificate names the broker by a URI and the
    hosts where clients find it, and may stand for a server and for a client, because brokers dial
    each other. A client's has the principal as common name, and may stand for a client only: it
    never passes for a broker.

Invariants
    I1  private keys are written for their owner's eyes only, and nothing is overwritten unless
        asked for
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING

from gapless.broker.security.principals import check_name, write_private
from gapless.broker.security.tls import BROKER_URI
from gapless.core.errors import UsageError
from gapless.core.extras import missing_extra

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 365
EARLY = timedelta(minutes=5)
"""Certificates count from a little before they are made: clocks differ."""

LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: EllipticCurvePrivateKey

    def write(self, certificate: Path, key: Path, *, replace: bool = False) -> None:
        from cryptography.hazmat.primitives import serialization

        for path in (key, certificate):
            if path.exists() and not replace:
                raise UsageError(f"{path} is there already", "Nothing is overwritten: move it.")
        certificate.parent.mkdir(parents=True, exist_ok=True)
        key.parent.mkdir(parents=True, exist_ok=True)
        secret = self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        key.unlink(missing_ok=True)
        write_private(key, secret)
        certificate.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))


class Authority:
    """Signs certificates; `made` or `read` gives one."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair

    @classmethod
    def made(cls, name: str, days: int = AUTHORITY_DAYS) -> Authority:
        """A new one."""
        try:
            from cryptography import x509
            from cryptography.hazmat.primitives.asymmetric import ec
        except ModuleNotFoundError as error:
            raise missing_extra("cryptography", "making certificates") or error from None
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(name)
        builder = _builder(subject, subject, key, days)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        builder = builder.add_extension(_usage(signs=True), True)
        return cls(Pair(_signed(builder, key, key), key))

    @classmethod
    def read(cls, certificate: Path, key: Path) -> Authority:
        try:
            from cryptography import x509
            from cryptography.hazmat.primitives import serialization
            from cryptography.hazmat.primitives.asymmetric import ec
        except ModuleNotFoundError as error:
            raise missing_extra("cryptography", "making certificates") or error from None
        try:
            read = x509.load_pem_x509_certificate(certificate.read_bytes())
            secret = serialization.load_pem_private_key(key.read_bytes(), None)
        except (OSError, ValueError, TypeError) as error:
            raise UsageError(
                f"cannot use the authority in {certificate.parent}: {error}",
                "Give the folder that `gapless security init` made, with the authority's key.",
            ) from None
        if not isinstance(secret, ec.EllipticCurvePrivateKey):
            raise UsageError(
                f"{key} is no key that gapless made", "Make one with `gapless security init`."
            )
        return cls(Pair(read, secret))

    def broker(self, name: str, hosts: Iterable[str] = (), days: float = CERTIFICATE_DAYS) -> Pair:
        """A certificate for a broker that clients find at these hosts, and on loopback."""
        from cryptography import x509

        check_name(name)
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(f"{BROKER_URI}{name}")]
        for host in dict.fromkeys((*LOOPBACK, *hosts)):
            try:
                names.append(x509.IPAddress(ip_address(host)))
            except ValueError:
                names.append(x509.DNSName(host))
        return self._issue(f"broker {name}", names, days, serves=True)

    def client(self, name: str, days: float = CERTIFICATE_DAYS) -> Pair:
        """A certificate for the principal of this name."""
        check_name(name)
        return self._issue(name, [], days, serves=False)

    def _issue(
        self, common_name: str, names: list[x509.GeneralName], days: float, *, serves: bool
    ) -> Pair:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID as For

        key = ec.generate_private_key(ec.SECP256R1())
        authority = self.pair.certificate
        builder = _builder(_subject(common_name), authority.subject, key, days)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        builder = builder.add_extension(_usage(signs=False), True)
        purposes = [For.CLIENT_AUTH, For.SERVER_AUTH] if serves else [For.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), False)
        issuer = self.pair.key.public_key()
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), False
        )
        return Pair(_signed(builder, key, self.pair.key), key)


def _subject(name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, days: float
) -> x509.CertificateBuilder:
    """`days` below zero makes one that has ended already."""
    from cryptography import x509

    now = datetime.now(UTC)
    end = now + timedelta(days=days)
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=min(now, end) - EARLY,
        not_valid_after=end,
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(
    builder: x509.CertificateBuilder, key: EllipticCurvePrivateKey, by: EllipticCurvePrivateKey
) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return builder.add_extension(own, False).sign(by, hashes.SHA256())
