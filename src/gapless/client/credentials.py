"""Credentials: how a client proves its identity, and which authority it trusts.

A token or a certificate proves the client's identity; the authority vouches for the broker. What is
not given is taken from the environment. The client never sends a token without TLS: a token that is
given for such a connection is an error, and one in the environment is not used.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict

from gapless.core.errors import UsageError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping
    from pathlib import Path

TOKEN, AUTHORITY = "GAPLESS_TOKEN", "GAPLESS_CA"
CERTIFICATE, KEY = "GAPLESS_CERTIFICATE", "GAPLESS_KEY"


class CredentialOptions(TypedDict, total=False):
    """The credentials that `connect` takes."""

    token: str | None
    ca: str | Path | None
    certificate: str | Path | None
    key: str | Path | None


@dataclass(frozen=True)
class Credentials:
    """What one connection shows and trusts. Without an authority, it trusts the system's."""

    token: str = field(default="", repr=False)
    authority: str = ""
    certificate: str = ""
    key: str = ""

    def context(self) -> ssl.SSLContext:
        """For TLS 1.2 and newer; checks the broker's host against its certificate."""
        import ssl

        try:
            context = ssl.create_default_context(cafile=self.authority or None)
        except OSError as error:
            problem = f"cannot use the authority in {self.authority}: {error.strerror or error}"
            raise UsageError(problem, "Give the certificate of the brokers' authority.") from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.certificate:
            try:
                context.load_cert_chain(self.certificate, self.key or None)
            except OSError as error:
                raise UsageError(
                    f"cannot use the certificate {self.certificate} with the key "
                    f"{self.key or 'in it'}: {error.strerror or error}",
                    "Give both, as `gapless security certificate` makes them.",
                ) from None
        return context


def find_credentials(
    *,
    is_tls: bool,
    token: str | None = None,
    ca: str | Path | None = None,
    certificate: str | Path | None = None,
    key: str | Path | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Credentials | None:
    """The credentials of a connection; None without TLS."""
    given = {"token": token, "ca": ca, "certificate": certificate, "key": key}
    if not is_tls:
        if named := [name for name, value in given.items() if value]:
            raise UsageError(
                f"{' and '.join(named)} cannot be used without TLS",
                "Write gapless+tls://host:port.",
            )
        return None
    if key and not certificate:
        raise UsageError("a key needs its certificate", "Give certificate=… too.")
    found = {
        "token": token or environment.get(TOKEN, ""),
        "authority": str(ca or environment.get(AUTHORITY, "")),
        "certificate": str(certificate or environment.get(CERTIFICATE, "")),
        "key": str(key or ("" if certificate else environment.get(KEY, ""))),
    }
    return Credentials(**{**found, "token": found["token"].strip()})
