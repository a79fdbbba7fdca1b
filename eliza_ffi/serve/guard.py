"""Check keys, hosts and origins, add headers that restrict browsers, and count requests."""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Callable
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .http_error import HTTPError
from .record import RequestRecord, request_id
from .settings import ServeSettings, is_address

READY_PATHS = ("/health", "/healthz", "/readyz")
"""Paths that report whether the server accepts requests."""

LIVE_PATH = "/livez"
"""The path that reports that the process is alive, also while it loads the model or shuts down."""

OPEN_PATHS = ("/", *READY_PATHS, LIVE_PATH)
"""Paths that need no key. Their responses reveal nothing about the model."""

KEY_HEADERS = ("api-key", "x-api-key")
"""Headers that may contain the key instead of ``Authorization``, as at Azure and Anthropic."""

logger = logging.getLogger(__name__)

SECURITY_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""Headers of every response, unless the response sets them itself."""

EXPOSED = (
    "retry-after, x-ignored-fields, x-ignored-tools, x-offered-tools, x-request-id, x-should-retry"
)
"""The headers of a response that pages of other sites can read, besides the usual ones."""

PREFLIGHT_HEADERS = {
    "access-control-allow-methods": "GET, POST",
    "access-control-allow-headers": "authorization, *",
    "access-control-max-age": "600",
}
"""Headers of the response to a browser that asks whether it may send a request."""


class Guard:
    """Passes requests of allowed clients to the application, and rejects all others.

    A browser sends requests on behalf of any page it shows. Requests from the pages of other sites
    are rejected because of their Origin header. An attacker can also point a host name at this
    machine, so that the attacker's page has the server's origin (DNS rebinding). Requests from this
    page have the attacker's host name in their Host header, and are rejected because of that name.
    An IP address in the Host header is safe, because the page itself must have come from that
    address. If a key is required, the check is not needed, because the attacker's page has no key.

    `count` is called with the path, the status and the seconds of every request.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: ServeSettings,
        count: Callable[[str, int, float], None] = lambda *_: None,
    ) -> None:
        self._app = app
        self._count = count
        self._keys = {key.encode(): settings.key_names.get(key, "") for key in settings.keys}
        self._logs_requests = settings.logs_requests
        self._origins = frozenset(settings.cors_origins)
        self._hosts = {"localhost", *settings.hosts} if settings.checks_host else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        record = scope["eliza_ffi"] = RequestRecord(request_id(headers.get("x-request-id")))

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                sent = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    sent.setdefault(name, value)
                sent["x-request-id"] = record.id
                if self._origins:
                    sent.add_vary_header("origin")
                if origin is not None and self._allows(origin):
                    sent["access-control-allow-origin"] = origin
                    sent["access-control-expose-headers"] = EXPOSED
            await send(message)

        app: ASGIApp
        try:
            self._check_browser(headers, origin)
            if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
                app = Response(status_code=204, headers=PREFLIGHT_HEADERS)
            else:
                record.key = self._key_name(scope["path"], headers)
                app = self._app
        except HTTPError as error:
            app = error.response(scope["path"])
        try:
            await app(scope, receive, send_guarded)
        except Exception:  # status 500 was sent, unless the response had begun
            logger.exception("request %s failed: %s %r", record.id, scope["method"], scope["path"])
        finally:
            seconds = time.perf_counter() - record.begin
            self._count(scope["path"], record.status, seconds)
            if self._logs_requests:
                found = record.id, scope["method"], scope["path"], record.status, seconds * 1e3
                logger.info("request %s: %s %r, status %d, %.1f ms%s", *found, record)

    def _check_browser(self, headers: Headers, origin: str | None) -> None:
        host = headers.get("host", "")
        name = (_split(f"//{host}").hostname or "").removesuffix(".")
        if self._hosts is not None and name not in self._hosts and not is_address(name):
            raise HTTPError(
                421,
                f"the host {host!r} is not allowed; allow it with the option --allowed-host",
                "wrong_host",
            )
        if origin is None or self._allows(origin) or _split(origin).netloc.lower() == host.lower():
            return
        raise HTTPError(
            403,
            f"requests from pages of {origin!r} are not allowed; allow them with the "
            "option --cors-origin",
            "wrong_origin",
        )

    def _key_name(self, path: str, headers: Headers) -> str:
        """Return the name of a request's API key; raise an HTTPError if it needs one."""
        if not self._keys or path in OPEN_PATHS:
            return ""
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        bearer = credentials.strip() if scheme.lower() == "bearer" else ""
        sent = (bearer, *(headers.get(name, "") for name in KEY_HEADERS))
        # Compare with every key, in constant time, so that the timing does not reveal the keys.
        names = [
            name
            for key, name in self._keys.items()
            if sum([hmac.compare_digest(each.encode(), key) for each in sent])
        ]
        if not names:
            raise HTTPError(
                401,
                "the API key is wrong or missing; send the header Authorization: Bearer KEY",
                "invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )
        return names[0]

    def _allows(self, origin: str) -> bool:
        return origin in self._origins or "*" in self._origins


def _split(url: str) -> SplitResult:
    """Split a URL; a malformed one has neither a host nor anything else."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")
