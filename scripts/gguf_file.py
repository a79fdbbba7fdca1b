"""Read and write GGUF files, including invalid ones."""

from __future__ import annotations

import itertools
import math
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMATS = dict(
    zip((U8, I8, U16, I16, U32, I32, F32, BOOL, U64, I64, F64), "BbHhIifBQqd", strict=True)
)
INTEGERS = (U8, I8, U16, I16, U32, I32, U64, I64)

# Elements and bytes of a block, by the GGUF number of the tensor type.
BLOCKS = {0: (1, 4), 1: (1, 2), 8: (32, 34), 12: (256, 144), 26: (1, 4), 30: (1, 2)}


@dataclass(frozen=True)
class Entry:
    """A metadata value. Strings are bytes; arrays have the type of their items."""

    key: bytes
    kind: int
    value: Any
    item_kind: int | None = None


@dataclass(frozen=True)
class Tensor:
    """A tensor's header and data, which need not match."""

    name: bytes
    dims: tuple[int, ...]
    kind: int
    offset: int
    data: bytes


@dataclass
class Gguf:
    """The parts of a GGUF file, which can be changed independently of each other."""

    entries: list[Entry]
    tensors: list[Tensor]
    magic: bytes = b"GGUF"
    version: int = 3
    n_entries: int | None = None
    n_tensors: int | None = None

    def copy(self) -> Gguf:
        return replace(self, entries=list(self.entries), tensors=list(self.tensors))

    def index(self, key: bytes) -> int | None:
        return next((i for i, entry in enumerate(self.entries) if entry.key == key), None)

    def get(self, key: bytes) -> Any:
        at = self.index(key)
        return None if at is None else self.entries[at].value

    def put(self, entry: Entry) -> None:
        at = self.index(entry.key)
        if at is None:
            self.entries.append(entry)
        else:
            self.entries[at] = entry

    def architecture(self) -> bytes:
        return bytes(self.get(b"general.architecture") or b"")

    def place_tensors(self) -> None:
        """Set the tensors' offsets as the format requires."""
        offset = 0
        for i, tensor in enumerate(self.tensors):
            self.tensors[i] = replace(tensor, offset=offset)
            offset += padded(len(tensor.data), self.alignment())

    def alignment(self) -> int:
        given = self.get(b"general.alignment")
        return given if isinstance(given, int) and 0 < given <= 4096 else 32

    def header(self) -> list[bytes]:
        """Return the parts of the header: magic, version, counts, entries, tensors."""
        n_tensors = len(self.tensors) if self.n_tensors is None else self.n_tensors
        n_entries = len(self.entries) if self.n_entries is None else self.n_entries
        parts = [self.magic, struct.pack("<I", self.version)]
        parts.append(struct.pack("<QQ", n_tensors & 2**64 - 1, n_entries & 2**64 - 1))
        parts.extend(map(entry_bytes, self.entries))
        for tensor in self.tensors:
            layout = f"<I{len(tensor.dims)}QIQ"
            numbers = (len(tensor.dims), *tensor.dims, tensor.kind, tensor.offset)
            parts.append(string_bytes(tensor.name) + struct.pack(layout, *numbers))
        return parts

    def edges(self) -> list[int]:
        """Return the offsets of the header's parts, and the end of the header."""
        return [*itertools.accumulate(map(len, self.header()), initial=0)]

    def to_bytes(self) -> bytes:
        out = bytearray()
        for part in (b"".join(self.header()), *(tensor.data for tensor in self.tensors)):
            out += part.ljust(padded(len(part), self.alignment()), b"\0")
        return bytes(out)


def padded(size: int, alignment: int) -> int:
    return (size + alignment - 1) // alignment * alignment


def string_bytes(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def entry_bytes(entry: Entry) -> bytes:
    head = string_bytes(entry.key) + struct.pack("<I", entry.kind)
    if entry.kind != ARRAY:
        return head + value_bytes(entry.kind, [entry.value])
    count = struct.pack("<IQ", entry.item_kind, len(entry.value))
    return head + count + value_bytes(entry.item_kind, entry.value)


def value_bytes(kind: int | None, values: Any) -> bytes:
    if kind in FORMATS:
        return struct.pack(f"<{len(values)}{FORMATS[kind]}", *values)
    return b"".join(map(string_bytes if kind == STRING else bytes, values))


def read_gguf(path: Path, *, with_tensors: bool = True) -> Gguf:
    """Read a valid model file of GGUF version 3, with tensors of the types in `BLOCKS`.

    This takes a second for a vocabulary of 262k tokens. ``gguf.GGUFReader`` takes 30 seconds,
    because it creates several objects for each string.
    """
    data = path.read_bytes()
    at = 0

    def take(layout: str) -> tuple[Any, ...]:
        nonlocal at
        at += struct.calcsize(layout)
        return struct.unpack_from(layout, data, at - struct.calcsize(layout))

    def string() -> bytes:
        nonlocal at
        (length,) = take("<Q")
        at += length
        return data[at - length : at]

    def values(kind: int, count: int) -> Any:
        if kind == STRING:
            return [string() for _ in range(count)]
        return list(take(f"<{count}{FORMATS[kind]}"))

    magic, version, n_tensors, n_entries = take("<4sIQQ")
    if magic != b"GGUF" or version != 3:
        raise ValueError(f"{path}: expected a GGUF file of version 3")
    entries = []
    for _ in range(n_entries):
        key = string()
        (kind,) = take("<I")
        if kind == ARRAY:
            item_kind, count = take("<IQ")
            entries.append(Entry(key, kind, values(item_kind, count), item_kind))
        else:
            entries.append(Entry(key, kind, values(kind, 1)[0]))
    headers = []
    for _ in range(n_tensors if with_tensors else 0):
        name = string()
        (n_dims,) = take("<I")
        dims = take(f"<{n_dims}Q")
        kind, offset = take("<IQ")
        if kind not in BLOCKS:
            raise ValueError(
                f"{path}: tensor {name!r}: expected a type in {sorted(BLOCKS)}, got {kind}"
            )
        headers.append((name, dims, kind, offset))
    gguf = Gguf(entries, [])
    start = padded(at, gguf.alignment())
    for name, dims, kind, offset in headers:
        n_items, n_bytes = BLOCKS[kind]
        begin = start + offset
        size = math.prod(dims) // n_items * n_bytes
        gguf.tensors.append(Tensor(name, dims, kind, offset, data[begin : begin + size]))
    return gguf
