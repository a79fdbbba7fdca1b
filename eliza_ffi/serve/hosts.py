"""Host names and origins, as users write them and as clients send them."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from ..errors import InvalidArgumentError

__all__ = ["allowed_host", "allowed_origin", "host_of", "is_address", "is_loopback"]

_NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_ORIGIN = re.compile(
    rf"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<host>{_NAME.pattern}|\[[0-9a-f:.]+\])"
    r"(:(?P<port>[0-9]{1,5}))?/?"
)
_PORTS = {"http": 80, "https": 443}


def allowed_host(given: str) -> str:
    """Normalize a host name from the settings, for comparison with :func:`host_of`.

    Raises
    ------
    InvalidArgumentError
        If `given` is not a bare host name or IP address.
    """
    name = given.strip().lower().removesuffix(".")
    if not _NAME.fullmatch(name) and not is_address(name):
        raise InvalidArgumentError(
            "--allowed-host: expected a host name without scheme, port or path, such as "
            f"models.example, got {given!r}"
        )
    return name


def allowed_origin(given: str) -> str:
    """Normalize an origin from the settings, for comparison with Origin headers; ``*`` means any.

    Raises
    ------
    InvalidArgumentError
        If `given` is not an origin.
    """
    text = given.strip()
    if text == "*":
        return text
    found = _ORIGIN.fullmatch(text.lower())
    if found is None or int(found["port"] or 0) > 65535:
        raise InvalidArgumentError(
            "--cors-origin: expected an origin such as https://pages.example or "
            f"http://localhost:3000, or *, got {given!r}"
        )
    scheme, host, port = found["scheme"], found["host"], found["port"]
    is_default = port is None or int(port) == _PORTS.get(scheme)
    return f"{scheme}://{host}" + ("" if is_default else f":{int(port)}")


def host_of(header: str) -> str:
    """Return the host of a Host header, without the port and the brackets of IPv6."""
    try:
        return (urlsplit(f"//{header}").hostname or "").lower().removesuffix(".")
    except ValueError:
        return ""


def is_address(host: str) -> bool:
    """Return whether a host is an IP address rather than a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the host."""
    return host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback)
