#!/usr/bin/env python3
"""Send requests with mistakes to a server with the embedded model, and count the statuses.

Anyone who can reach a server can send it anything. Each request must be answered or rejected with
its own error: a status of 500 would be a fault of the server, and a request must never hang. This
script starts `eliza-ffi serve` and sends requests of all kinds in `request_mutations`.

    $ python scripts/mutate_requests.py                            # 20,000 requests
    $ python scripts/mutate_requests.py --count 500 --seed 7 --keep wrong/ --only schemas

Exit code 1 if the server fails, ends or hangs. ``--keep`` saves the bodies of these requests.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from request_mutations import Sent, mutated

ROOT = Path(__file__).resolve().parent.parent

HANGS_S = 120.0
"""A request that is not answered after this time hangs. The server's deadline is shorter."""

OPTIONS = ("--n-ctx", "1024", "--deadline", "60")
"""The context is short because a request may ask for an answer that fills it."""

CLIENTS = 4

ALLOWED = (501, 503, 504)
"""The statuses above 499 with a meaning in docs/serve.md: images, a server that is full or stops,
and the deadline."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one request.

    Attributes
    ----------
    status : str
        The HTTP status; ``"hung"`` or ``"lost"`` if there was no response.
    fault : str
        What is wrong with the response; empty = nothing.
    """

    status: str
    fault: str
    seconds: float


@contextmanager
def served(*options: str, log: Path) -> Iterator[str]:
    """Run a server with the embedded model; yield its URL."""
    command = [sys.executable, "-m", "eliza_ffi", "serve", "--port", "0", *options]
    with (
        log.open("w", encoding="utf-8") as errors,
        subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1].rstrip("/")
        finally:
            if process.poll() is not None:
                print(f"the server ended with exit code {process.returncode}")
            process.terminate()


def send(client: httpx.Client, sent: Sent) -> Outcome:
    """Send a request, and judge its response."""
    begin = time.monotonic()
    headers = {
        name.encode(): value.strip().encode("latin-1") for name, value in sent.headers.items()
    }
    try:
        answer = client.post(sent.path, content=sent.body, headers=headers)
    except httpx.TimeoutException:
        return Outcome("hung", f"no response in {HANGS_S:g} s", time.monotonic() - begin)
    except httpx.TransportError as error:
        return Outcome("lost", repr(error), time.monotonic() - begin)
    return Outcome(str(answer.status_code), fault_of(answer), time.monotonic() - begin)


def fault_of(answer: httpx.Response) -> str:
    """Return what is wrong with a response; an empty string = nothing."""
    if answer.status_code >= 500 and answer.status_code not in ALLOWED:
        return answer.text
    if answer.headers["content-type"].startswith("text/event-stream"):
        return answer.text[-2000:] if "internal_error" in answer.text else ""
    try:
        body = json.loads(answer.text, parse_constant=str)
    except ValueError as error:
        return f"the response is not JSON: {error}: {answer.text}"
    if answer.status_code >= 400 and not body["error"]["message"]:
        return "the error has no message"
    return ""


def run(url: str, requests: Iterable[Sent], keep: Path | None) -> list[tuple[Sent, Outcome]]:
    """Send requests with several clients at the same time; print the faults."""
    local = threading.local()
    numbers = itertools.count()

    def attempt(sent: Sent) -> tuple[Sent, Outcome]:
        if not hasattr(local, "client"):
            local.client = httpx.Client(base_url=url, timeout=HANGS_S)
        outcome = send(local.client, sent)
        if outcome.fault:
            shown = sent.body if len(sent.body) <= 600 else sent.body[:600] + b"..."
            print(
                f"{sent.kind}: {sent.path} {sent.headers} {shown!r}\n  {outcome.status}: ", end=""
            )
            print(outcome.fault[:600], flush=True)
            if keep is not None:
                keep.mkdir(parents=True, exist_ok=True)
                name = f"{next(numbers)}-{outcome.status}{sent.path.replace('/', '-')}"
                (keep / name).write_bytes(sent.body)
        return sent, outcome

    with ThreadPoolExecutor(CLIENTS) as pool:
        return list(pool.map(attempt, requests))


def table(rows: Sequence[tuple[Sent, Outcome]]) -> str:
    """Return a table of the statuses for each kind of mistake."""
    counts: dict[str, Counter[str]] = {}
    for sent, outcome in rows:
        for kind in (sent.kind, "all"):
            counts.setdefault(kind, Counter())[outcome.status] += 1
    total = counts.pop("all", Counter())
    lines = [f"{'mistake':24}{'requests':>9}" + "".join(f"{name:>7}" for name in sorted(total))]
    for kind, count in [*sorted(counts.items()), ("all", total)]:
        cells = "".join(f"{count[name]:7}" for name in sorted(total))
        lines.append(f"{kind:24}{sum(count.values()):9}{cells}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Send requests with mistakes to a server.")
    parser.add_argument("--count", type=int, default=20_000, help="number of requests")
    parser.add_argument("--seed", type=int, default=1, help="same seed, same requests")
    parser.add_argument("--only", default="", help="only kinds whose names contain this")
    parser.add_argument("--keep", type=Path, help="folder for the bodies of failing requests")
    options = parser.parse_args(arguments)
    made = (mutated(options.seed, number) for number in itertools.count())
    chosen = (sent for sent in made if options.only in sent.kind)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with served(*OPTIONS, log=log) as url:
            rows = run(url, itertools.islice(chosen, options.count), options.keep)
            try:
                is_healthy = httpx.get(f"{url}/health", timeout=HANGS_S).status_code == 200
            except httpx.TransportError:
                is_healthy = False
        logged = log.read_text(encoding="utf-8")
    print(table(rows))
    slowest = max(rows, key=lambda row: row[1].seconds)
    print(
        f"{len(rows)} requests in {time.monotonic() - begin:.0f} s; the slowest "
        f"({slowest[0].kind}) took {slowest[1].seconds:.1f} s"
    )
    if logged:
        print(f"The server logged:\n{logged[-5000:]}")
    return 1 if any(outcome.fault for _, outcome in rows) or not is_healthy else 0


if __name__ == "__main__":
    sys.exit(main())
