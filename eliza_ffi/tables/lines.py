"""Lines of a text file in UTF-8, whatever is in it: one at a time, and none of them without end."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from ..errors import InvalidArgumentError

__all__ = ["MOST_BYTES", "Lines", "LongLineError"]

MOST_BYTES = 64 * 2**20
"""Of a line, and of a CSV file's field, which may go over several lines."""

_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


class LongLineError(ValueError):
    """A line is longer than lines may be; those behind it can still be read."""


class Lines:
    """An iterator over the lines of a file, with their ends.

    Bytes that are no UTF-8 become lone surrogates, as ``surrogateescape`` has it, so that a line
    which has some spoils itself only. A byte order mark at the beginning is left out.

    Parameters
    ----------
    path

    Attributes
    ----------
    number : int
        Of the line that came last, 1 for the first.
    offset : int
        Bytes up to its end.

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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
