"""The `[security]` table of a network file: who is trusted, and what is kept where.

Theory of operation
    With this table every connection is TLS: a broker proves its name to whoever connects, and
    clients prove who they are by a token or a certificate; brokers by certificates, both ways.
    Without it a broker listens on loopback only. File names are relative to the network file, and
    `{broker}` in them stands for the broker's name.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from gapless.broker.security.principals import read_principals
from gapless.broker.security.rights import read_rights
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gapless.broker.security.principals import Principals
    from gapless.broker.security.rights import Rights


@dataclass(frozen=True, kw_only=True)
class Security:
    """What the table says, for one broker."""

    folder: Path
    """What file names are relative to."""

    authority: str
    """Certificates of the authorities that are trusted, of brokers and of clients (PEM)."""

    certificate: str
    """The broker's own certificate, with those between it and the authority (PEM)."""

    key: str
    """Its private key (PEM); only the broker's user should be able to read it."""

    principals: str
    """The file of principals, their rights and the hashes of their tokens."""

    rights: Mapping[str, Rights] = field(default_factory=dict)
    """Further rights, by patterns of principals' names; they count for certificates too."""

    principal_connections_max: int = 1_000
    """Connections of one principal to one broker; beyond it a new one is refused."""

    principal_subscriptions_max: int | None = None
    """Subscriptions of one principal at one broker, those that are away included; beyond it a new
    one is refused. None: its share of `subscriptions_max` (`principal_share_percent`)."""

    strangers_max: int = 1_000
    """Connections that have not yet proved who they are; beyond it a new one is closed."""

    login_delay_s: float = 0.5
    """How long a connection waits for its refusal after a wrong proof."""

    def path(self, name: str) -> Path:
        return self.folder / name

    def read_principals(self) -> Principals:
        return read_principals(self.path(self.principals), self.rights)


def read_security(table: object, broker: str, folder: Path) -> Security:
    """Of a parsed `[security]` table; `UsageError` says what is wrong with it."""
    if not isinstance(table, dict):
        raise UsageError("[security] is no table", "See docs/operations/security.md.")
    found: dict[str, Any] = {key: table[key] for key in table if key not in ("rights", "brokers")}
    own = _tables(table, "brokers").get(broker, {})
    if unknown := set(own) - {"certificate", "key"}:
        raise _wrong(f"[security.brokers.{broker}] has no field {min(unknown)!r}")
    found |= own
    known = {each.name: each for each in fields(Security) if each.name not in ("folder", "rights")}
    for name, value in found.items():
        if name not in known:
            raise _wrong(f"[security] has no field {name!r}; it has {', '.join(known)}")
        kind = str if known[name].type == "str" else (int, float)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise _wrong(f"{name} = {value!r} is of the wrong type")
        if not isinstance(value, str) and value <= 0:
            raise _wrong(f"{name} must be above zero")
    missing = [name for name, each in known.items() if each.default is MISSING]
    if missing := [name for name in missing if name not in found]:
        raise _wrong(f"[security] lacks {', '.join(missing)}")
    rights = {
        pattern: read_rights(some, f"[security.rights] {pattern!r}")
        for pattern, some in _tables(table, "rights").items()
    }
    for name in ("authority", "certificate", "key", "principals"):
        found[name] = found[name].replace("{broker}", broker)
    return Security(folder=folder, rights=rights, **found)


def _tables(table: dict[str, Any], name: str) -> dict[str, dict[str, Any]]:
    found = table.get(name, {})
    if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
        raise _wrong(f"[security.{name}] is no table of tables")
    return found


def _wrong(problem: str) -> UsageError:
    return UsageError(problem, "Correct the network file; docs/operations/security.md explains it.")
