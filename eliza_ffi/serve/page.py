"""The web page: one file. Its content security policy allows only its own script and style."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

from starlette.responses import HTMLResponse

__all__ = ["page_response"]


def page_response() -> HTMLResponse:
    """Return the page with a policy that allows only its own script and style."""
    text = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    allowed = {
        "default-src": "'none'",
        "base-uri": "'none'",
        "connect-src": "'self'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "img-src": "data:",
        "script-src": _hash_of(text, "script"),
        "style-src": _hash_of(text, "style"),
    }
    policy = "; ".join(f"{name} {value}" for name, value in allowed.items())
    return HTMLResponse(text, headers={"content-security-policy": policy})


def _hash_of(text: str, tag: str) -> str:
    """Return the hash with which the policy allows the page's only `tag` element."""
    (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    digest = hashlib.sha256(inside.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
