"""The facts about one request, for the log and the metrics."""

from __future__ import annotations

import re
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Scope

CLIENT_GONE = 499
"""The status code that is counted for requests whose client disconnected."""

_ID = re.compile(r"[!-~]{1,128}")


@dataclass
class RequestRecord:
    """What is known about a request when it has ended.

    The guard makes it, and the endpoint completes it.
    """

    id: str  # in the header x-request-id
    begin: float = field(default_factory=time.perf_counter)
    key: str = ""  # the name of the API key; "" = it has none
    status: int = CLIENT_GONE  # of a stream: of the error that ended it, if there was one
    n_prompt: int = 0  # tokens, also of answers that were not completed
    n_cached: int = 0  # of these tokens
    n_generated: int = 0
    finish_reasons: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        """Return the end of the request's line in the log."""
        parts = [f"key {self.key}"] if self.key else []
        if self.n_prompt:
            parts.append(f"{self.n_prompt} prompt tokens ({self.n_cached} reused)")
        if self.n_generated:
            parts.append(f"{self.n_generated} generated")
        for reason, n in self.finish_reasons.items():
            parts.append(f"{reason} x {n}" if n > 1 else reason)
        return "".join(f", {part}" for part in parts)


def request_id(sent: str | None) -> str:
    """Return the id that a client has sent, if it is safe to repeat; otherwise a new one."""
    return sent if sent is not None and _ID.fullmatch(sent) else uuid.uuid4().hex


def record_of(scope: Scope) -> RequestRecord:
    """Return the record of a request."""
    found: Any = scope.setdefault("eliza_ffi", None)
    if found is None:  # the application runs without its guard
        found = scope["eliza_ffi"] = RequestRecord(uuid.uuid4().hex)
    return found  # type: ignore[no-any-return]
