"""Names by which HTTP requests may call a broker where there is no security.

A stranger's page may have a name of its own lead to the broker, and a browser would let the page
read what is answered to that name. So the admin port and the HTTP door refuse other names.
"""

from __future__ import annotations

from ipaddress import ip_address

LOOPBACK_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost")


def is_own_host(host: str, hosts: frozenset[str]) -> bool:
    """Whether a `Host` names us: `name`, `name:port`, an address; case does not count."""
    name = host.lower()
    if not name.endswith("]"):  # an address of version 6, without a port
        name = name.rpartition(":")[0] or name
    name = name.rstrip(".")
    if name in LOOPBACK_NAMES or name in hosts:
        return True
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
