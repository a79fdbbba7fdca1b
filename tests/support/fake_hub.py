"""A small server that speaks the API of Hugging Face, as far as downloads need it."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "c0" * 20
"""The only commit of every repository."""

TOKEN = "hf_" + "a" * 34
"""The access token that opens gated and private repositories."""

TREE = re.compile(r"/api/models/(?P<repo>[^/]+/[^/]+)/tree/[^/]+")
FILE = re.compile(r"/(?P<repo>[^/]+/[^/]+)/resolve/[^/]+/(?P<file>.+)")


@dataclass
class FakeHub:
    """The server; it runs within a ``with`` block.

    `repos` has the contents of each repository's files. `breaks` has, for each file, the number of
    bytes after which its next download breaks off.
    """

    repos: dict[str, dict[str, bytes]] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    private: set[str] = field(default_factory=set)
    breaks: dict[str, int] = field(default_factory=dict)
    requests: list[tuple[str, str, Mapping[str, str]]] = field(default_factory=list)

    def __enter__(self) -> FakeHub:
        hub = self

        class Handler(_Handler):
            served = hub

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def ranges(self, file: str) -> list[str | None]:
        """Return the ranges of the downloads of a file; None = the whole file."""
        return [
            headers.get("Range")
            for method, path, headers in self.requests
            if method == "GET" and path.endswith(f"/{file}")
        ]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    served: FakeHub

    def log_message(self, *_: Any) -> None: ...

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.served.requests.append((self.command, path, dict(self.headers)))
        for pattern, answer in ((TREE, self.tree), (FILE, self.file)):
            match = pattern.fullmatch(path)
            if match and self.may_read(match["repo"], is_file=pattern is FILE):
                return answer(**match.groupdict())
            if match:
                return None
        return self.refuse(404, "RepoNotFound")

    def may_read(self, repo: str, *, is_file: bool) -> bool:
        hub = self.served
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            if repo in hub.private:
                self.refuse(401, "RepoNotFound")
                return False
            if repo in hub.gated and is_file:  # everybody may list the files
                self.refuse(403, "GatedRepo")
                return False
        if repo not in hub.repos:
            self.refuse(404, "RepoNotFound")
        return repo in hub.repos

    def refuse(self, status: int, code: str) -> None:
        self.answer(status, b"", {"X-Error-Code": code, "X-Error-Message": code})

    def tree(self, repo: str) -> None:
        files = [
            {"type": "file", "path": name, "size": len(data), "oid": _oid(data)}
            for name, data in self.served.repos[repo].items()
        ]
        self.answer(200, json.dumps(files).encode(), {"Content-Type": "application/json"})

    def file(self, repo: str, file: str) -> None:
        data = self.served.repos[repo].get(file)
        if data is None:
            return self.refuse(404, "EntryNotFound")
        headers = {"ETag": f'"{_oid(data)}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        begin = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if begin is None:
            return self.answer(200, data, headers, file)
        at = int(begin[1])
        headers["Content-Range"] = f"bytes {at}-{len(data) - 1}/{len(data)}"
        return self.answer(206, data[at:], headers, file)

    def answer(self, status: int, data: bytes, headers: dict[str, str], file: str = "") -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        until = self.served.breaks.pop(file, None)
        self.wfile.write(data[:until])
        if until is not None:
            self.close_connection = True


def _oid(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()
