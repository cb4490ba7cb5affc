"""Principals: who may connect, with what rights, and how they prove who they are.

Theory of operation
    One JSON file, the same for every broker of a network, lists principals with their rights and
    the hashes of their tokens; `gapless security` writes it. A token is `NAME.SECRET`, the secret
    32 random bytes, so that a hash made fast (HMAC-SHA-256 under a salt of its own) is as hard to
    invert as a slow one, and a flood of wrong tokens costs us little. The name in it says which
    hashes to compare, in constant time; a name that is not there is compared with a hash of
    nothing, so that the time does not tell either.
    Who comes with a certificate instead is the principal of its common name.

Invariants
    I1  no secret is in the file, nor in any message or log
    I2  the file is replaced whole, and only its owner may read it
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from gapless.broker.security.rights import Rights, read_rights
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SECRET_BYTES = 32
SALT_BYTES = 16
NAME_LENGTH_MAX = 100
Hash = tuple[bytes, bytes]
"""A salt, and the hash of a secret under it."""

NOBODY: Hash = (b"\0" * SALT_BYTES, b"\0" * hashlib.sha256().digest_size)


@dataclass(frozen=True)
class Principal:
    """Who someone has proved to be, and what that allows."""

    name: str
    rights: Rights
    proof: Hash | None = field(default=None, compare=False, repr=False)
    """The hash of the token that it has shown; None: it came with a certificate."""


@dataclass
class PrincipalEntry:
    """One principal of the file."""

    rights: Rights
    hashes: list[Hash] = field(default_factory=list)


class Principals:
    """All principals of a network; `rights` are those that the network file gives by pattern."""

    def __init__(
        self,
        entries: dict[str, PrincipalEntry] | None = None,
        rights: Mapping[str, Rights] | None = None,
    ) -> None:
        self.entries = entries if entries is not None else {}
        self._rights = rights or {}

    def rights_of(self, name: str) -> Rights:
        found = self.entries[name].rights if name in self.entries else Rights()
        for pattern, rights in self._rights.items():
            if fnmatchcase(name, pattern):
                found = found.join(rights)
        return found

    def by_token(self, token: str) -> Principal | None:
        """Whose token this is; None if it is nobody's."""
        name, _, secret = token.rpartition(".")
        entry = self.entries.get(name)
        hashes = [*(entry.hashes if entry is not None else ()), NOBODY]
        equal = [
            each
            for each in hashes
            if hmac.compare_digest(hash_of(each[0], secret), each[1]) and each is not NOBODY
        ]
        return Principal(name, self.rights_of(name), equal[0]) if equal else None

    def by_name(self, name: str) -> Principal | None:
        """Who came with a certificate of this name; None if it has no rights here."""
        rights = self.rights_of(name)
        return Principal(name, rights) if rights else None

    def confirmed(self, principal: Principal) -> Principal | None:
        """Who this is by what it has shown to others before us; None if that counts no more."""
        name, proof = principal.name, principal.proof
        if proof is None:
            return self.by_name(name)
        if name not in self.entries or proof not in self.entries[name].hashes:
            return None
        return Principal(name, self.rights_of(name), proof)

    def add_token(self, name: str, rights: Rights) -> str:
        """A new token of a principal, who gets these rights besides those it has."""
        check_name(name)
        entry = self.add(name, rights)
        secret = base64.urlsafe_b64encode(secrets.token_bytes(SECRET_BYTES)).decode().rstrip("=")
        salt = secrets.token_bytes(SALT_BYTES)
        entry.hashes.append((salt, hash_of(salt, secret)))
        return f"{name}.{secret}"

    def add(self, name: str, rights: Rights) -> PrincipalEntry:
        entry = self.entries.setdefault(name, PrincipalEntry(Rights()))
        entry.rights = entry.rights.join(rights)
        return entry

    # --- the file ---------------------------------------------------------------------------------

    def write(self, path: Path) -> None:
        """Whole or not at all, for its owner's eyes only."""
        read = {
            name: {
                "rights": {right: list(some) for right, some in entry.rights.patterns.items()},
                "tokens": [{"salt": s.hex(), "hash": h.hex()} for s, h in entry.hashes],
            }
            for name, entry in sorted(self.entries.items())
        }
        new = path.with_name(f"{path.name}.new")
        new.unlink(missing_ok=True)
        write_private(new, json.dumps({"principals": read}, indent=1).encode() + b"\n")
        os.replace(new, path)


def hash_of(salt: bytes, secret: str) -> bytes:
    return hmac.digest(salt, secret.encode("utf-8", "surrogatepass"), "sha256")


def check_name(name: str) -> None:
    if not name or len(name) > NAME_LENGTH_MAX or not all(c.isalnum() or c in "._-" for c in name):
        raise UsageError(
            f"{name!r} is no name for a principal or a certificate",
            f"Use up to {NAME_LENGTH_MAX} letters, digits, dots, dashes and underscores.",
        )


def read_principals(path: Path, rights: Mapping[str, Rights] | None = None) -> Principals:
    """The file's; `UsageError` says what is wrong with it."""
    remedy = "Make it with `gapless security init`."
    try:
        read = json.loads(path.read_bytes())["principals"]
        entries = {}
        for name, each in read.items():
            hashes = [(bytes.fromhex(t["salt"]), bytes.fromhex(t["hash"])) for t in each["tokens"]]
            entries[name] = PrincipalEntry(
                read_rights(each["rights"], f"principal {name!r}"), hashes
            )
    except OSError as error:
        problem = f"cannot read the principals in {path}: {error.strerror}"
        raise UsageError(problem, remedy) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{path} is no file of principals: {error!r}", remedy) from None
    return Principals(entries, rights)


def write_private(path: Path, content: bytes) -> None:
    """A new file that only its owner may read; never over one that is there."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
