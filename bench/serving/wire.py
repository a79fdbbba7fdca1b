"""A minimal HTTP client, which can also send invalid requests on purpose."""

from __future__ import annotations

import asyncio
import json
from typing import Any

__all__ = ["Connection", "request_bytes"]


def request_bytes(path: str, body: bytes, host: str = "localhost") -> bytes:
    """Return the bytes of a POST request."""
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Connection:
    """A persistent HTTP connection.

    Attributes
    ----------
    reader, writer
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, address: tuple[str, int]) -> Connection:
        """Open a connection."""
        return cls(*await asyncio.open_connection(*address))

    async def post(self, path: str, body: Any) -> tuple[int, dict[str, str], Any]:
        """Send a request; return the status, the headers and the JSON of the answer."""
        self.writer.write(request_bytes(path, json.dumps(body).encode()))
        await self.writer.drain()
        return await self.answer()

    async def answer(self) -> tuple[int, dict[str, str], Any]:
        """Read an answer; return its status, headers and JSON."""
        status = int((await self._line()).split()[1])
        headers = {}
        while line := await self._line():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        text = await self.reader.readexactly(int(headers["content-length"]))
        return status, headers, json.loads(text)

    def close(self) -> None:
        """Close the connection at once, without reading pending data."""
        self.writer.transport.abort()

    async def _line(self) -> str:
        line = await self.reader.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the connection was closed")
        return line.decode("latin-1").rstrip("\r\n")
