"""A minimal HTTP client, which can also send invalid requests on purpose."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any


def request_bytes(path: str, body: bytes) -> bytes:
    """Return the bytes of a POST request."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Connection:
    """A persistent HTTP connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, address: tuple[str, int]) -> Connection:
        """Open a connection."""
        return cls(*await asyncio.open_connection(*address))

    async def post(self, path: str, body: Any) -> tuple[int, dict[str, str], Any]:
        """Send a request; return the status, the headers and the JSON of the answer."""
        await self.send(path, body)
        return await self.answer()

    async def send(self, path: str, body: Any) -> None:
        """Send a request."""
        self.writer.write(request_bytes(path, json.dumps(body).encode()))
        await self.writer.drain()

    async def head(self) -> tuple[int, dict[str, str]]:
        """Read the head of an answer; return its status and headers."""
        status = int((await self._line()).split()[1])
        headers = {}
        while line := await self._line():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        return status, headers

    async def answer(self) -> tuple[int, dict[str, str], Any]:
        """Read an answer; return its status, its headers, and its JSON or a list of its events."""
        status, headers = await self.head()
        if headers.get("transfer-encoding") == "chunked":
            return status, headers, [json.loads(event) async for event in self.events()]
        text = await self.reader.readexactly(int(headers["content-length"]))
        return status, headers, json.loads(text)

    async def events(self) -> AsyncGenerator[bytes, None]:
        """Yield the JSON text of each server-sent event, as soon as it arrives.

        The answer must have the encoding ``chunked``. The final ``[DONE]`` is left out.
        """
        rest = b""
        while size := int(await self._line(), 16):
            rest += await self.reader.readexactly(size)
            await self._line()
            *events, rest = rest.split(b"\n\n")
            for event in events:
                data = event.removeprefix(b"data: ")
                if data != b"[DONE]":
                    yield data
        await self._line()

    def close(self) -> None:
        """Close the connection at once, without reading pending data."""
        self.writer.transport.abort()

    async def _line(self) -> str:
        line = await self.reader.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the connection was closed")
        return line.decode("latin-1").rstrip("\r\n")
