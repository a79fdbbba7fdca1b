"""Read the lines of a UTF-8 file one at a time, with a limit on their length."""

from __future__ import annotations

from pathlib import Path

from ..errors import InvalidArgumentError

__all__ = ["MOST_BYTES", "Lines", "LongLineError"]

MOST_BYTES = 64 * 2**20
"""The maximum length in bytes of a line, and of a CSV field, which may span several lines."""

_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


class LongLineError(ValueError):
    """A line is longer than :data:`MOST_BYTES`; the lines after it can still be read."""


class Lines:
    """An iterator over the lines of a file, including their newlines.

    Bytes that are not UTF-8 become lone surrogates, as with ``surrogateescape``, so that they
    affect only their own line. A byte order mark at the beginning is removed.

    Attributes
    ----------
    number : int
        The number of the line that was read last, 1 for the first.
    offset : int
        The number of bytes up to the end of this line.

    Raises
    ------
    InvalidArgumentError
        If the file is UTF-16.
    """

    def __init__(self, path: Path) -> None:
        self.number = 0
        self.offset = 0
        self._file = path.open("rb")
        if self._file.read(2) in _UTF16:
            self._file.close()
            raise InvalidArgumentError(f"{path} is UTF-16: save it as UTF-8")
        self._file.seek(0)

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __iter__(self) -> Lines:
        return self

    def __next__(self) -> str:
        line = self._file.readline(MOST_BYTES + 1)
        if not line:
            raise StopIteration
        self.number += 1
        self.offset += len(line)
        if len(line) > MOST_BYTES and not line.endswith(b"\n"):
            self._skip_line()
            raise LongLineError(f"the line is longer than {MOST_BYTES:,} bytes")
        if self.number == 1:
            line = line.removeprefix(_BOM)
        return line.decode("utf-8", "surrogateescape")

    def _skip_line(self) -> None:
        while piece := self._file.readline(MOST_BYTES):
            self.offset += len(piece)
            if piece.endswith(b"\n"):
                return
