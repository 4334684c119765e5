"""Where webhooks may go: not to the machines behind this one (spec 1.16).

https anywhere on the internet, and http or https to this very machine by the names
`localhost` and 127.*. What counts is the address that is connected to, so names are judged
again whenever they are resolved.
"""

from __future__ import annotations

import ipaddress
from typing import NamedTuple
from urllib.parse import urlsplit

URL_BYTES_MAX = 2048
# Addresses that stand for IPv4 ones: what they lead to is not seen here.
_TRANSLATED = (
    ipaddress.ip_network("64:ff9b::/96"),
    ipaddress.ip_network("64:ff9b:1::/48"),
    ipaddress.ip_network("2002::/16"),
    ipaddress.ip_network("2001::/32"),
)


class Target(NamedTuple):
    """A webhook's URL in parts."""

    secure: bool
    host: str
    port: int
    path: str

    @property
    def local(self) -> bool:
        return is_local(self.host)

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = 443 if self.secure else 80
        return host if self.port == usual else f"{host}:{self.port}"


def is_local(host: str) -> bool:
    """Whether a host is this machine by one of the names that are allowed for it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.IPv4Address(host).is_loopback
    except ValueError:
        return False


def parse_target(url: str) -> Target | None:
    """The parts of a URL that a webhook may have, as far as that can be seen; else None."""
    if len(url) > URL_BYTES_MAX or not url.isascii() or not url.isprintable() or " " in url:
        return None
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not host or "\\" in url:
        return None
    if parts.username is not None or parts.password is not None or port == 0:
        return None
    secure = parts.scheme == "https"
    if not secure and not is_local(host):
        return None
    try:
        if not may_connect(host, host):
            return None
    except ValueError:
        # A name: judged when it is resolved.
        if host.endswith(".localhost"):
            return None
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(secure, host, port or (443 if secure else 80), path)


def may_connect(host: str, address: str) -> bool:
    """Whether a webhook for `host` may connect to an address; ValueError if that is none."""
    found: ipaddress.IPv4Address | ipaddress.IPv6Address = ipaddress.ip_address(
        address.partition("%")[0]
    )
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        elif any(found in network for network in _TRANSLATED):
            return False
    if is_local(host):
        return found.is_loopback
    return found.is_global and not (found.is_multicast or found.is_reserved)
