"""Read the files that the command line names, and check output files before any work."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from pathlib import Path

from ..errors import InvalidArgumentError

STANDARD_INPUT = "-"
"""The file name that means standard input."""

_READ = {
    "table": "the input",
    "questions": "the file with the questions",
    "calibration": "the calibration",
    "costs": "the file with the costs",
    "examples": "the table of examples",
    "model": "the model",
    "encoder": "the encoder",
    "labels_file": "the file with the labels",
    "labels": "the table with right answers",
    "before": "the first thing to compare",
    "after": "the second thing to compare",
    "token_tree_descriptor": "the file with the choices",
}
"""The options whose files are read, and the name of each file in error messages."""


def read_text(path: str) -> str:
    """Read a UTF-8 file; CRLF and CR become newlines."""
    return _text(read_bytes(path), path)


def read_bytes(path: str) -> bytes:
    """Read a file. If this fails, the OSError names the path."""
    try:
        return Path(path).read_bytes()
    except OSError as error:  # unlike errors of open(), errors of read() do not name the file
        raise OSError(error.errno, error.strerror, path) from error


def read_standard_input() -> str:
    """Read standard input as UTF-8; CRLF and CR become newlines."""
    # Read bytes, because the locale may decode invalid UTF-8 to characters that were not typed.
    return _text(sys.stdin.buffer.read(), "standard input")


def check_utf8(data: bytes | str, what: str) -> None:
    """Reject data that is not UTF-8, with the place of the first invalid byte. `what` names the
    data."""
    if isinstance(data, str):  # of the command line: Python encodes invalid bytes as surrogates
        data = data.encode("utf-8", "surrogateescape")
    try:
        data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start]
        raise InvalidArgumentError(
            f"{what} is not UTF-8: byte {error.start - before.rfind(10)} of line "
            f"{before.count(10) + 1} is 0x{data[error.start]:02x}"
        ) from None


def check_output(arguments: Namespace, option: str = "output") -> None:
    """Check, before any work, that the output can be written and is not an input."""
    path = getattr(arguments, option)
    if path is None:
        return
    output = Path(path)
    for name, what in _READ.items():
        read = getattr(arguments, name, None)
        if read is None or not (output.exists() and Path(read).exists()):
            continue
        if output.samefile(read):
            raise InvalidArgumentError(f"{output} is {what}: name another file for the output")
    if option != "output" and output.resolve() == Path(arguments.output or "").resolve():
        raise InvalidArgumentError(f"{output} is the --output, too: name another file for one")
    if output.is_dir():
        raise IsADirectoryError(21, "Cannot write to a folder", str(output))
    folder = output.parent
    if not folder.is_dir():
        raise FileNotFoundError(2, "No such folder to write to", str(folder))
    if not os.access(folder, os.W_OK):
        raise PermissionError(13, "Cannot write to the folder", str(folder))


def describe_os_error(error: OSError) -> str:
    """Return the message of a system error, with the files it names."""
    if error.strerror is None:
        return str(error)
    named = [os.fsdecode(name) for name in (error.filename, error.filename2) if name is not None]
    return ": ".join([*named, error.strerror])


def _text(data: bytes, what: str) -> str:
    check_utf8(data, what)
    # Windows Notepad begins UTF-8 files with a byte order mark, which utf-8-sig removes.
    return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
