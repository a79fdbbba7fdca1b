"""Files that the command line names: read, and those to be written seen to before any work."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from pathlib import Path

from ..errors import InvalidArgumentError

__all__ = [
    "STANDARD_INPUT",
    "check_output",
    "check_utf8",
    "read_bytes",
    "read_standard_input",
    "read_text",
    "what_failed",
]

STANDARD_INPUT = "-"
"""What standard input is called where a file is named."""

_READ = {
    "table": "the input",
    "questions": "the file with the questions",
    "calibration": "the calibration",
    "choices_file": "the file with the choices",
    "token_tree_descriptor": "the file with the choices",
}
"""The options whose files are read, and what these are."""


def read_text(path: str) -> str:
    """Return the text of a file, whichever way its lines end."""
    return _text(read_bytes(path), path)


def read_bytes(path: str) -> bytes:
    """Return what is in a file.

    Raises
    ------
    OSError
        If it cannot be read; its `filename` is the path.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:  # that of reading, unlike that of opening, names no file
        raise OSError(error.errno, error.strerror, path) from error


def read_standard_input() -> str:
    """Return the text that is piped in, whichever way its lines end."""
    # Read as bytes: what the locale makes of those that are no UTF-8 is nothing to answer.
    return _text(sys.stdin.buffer.read(), "standard input")


def check_utf8(data: bytes | str, what: str) -> None:
    """Refuse what is not UTF-8: bytes, or a text as Python makes it of a command line.

    Raises
    ------
    InvalidArgumentError
        Naming the place.
    """
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogateescape")
    try:
        data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start]
        raise InvalidArgumentError(
            f"{what} is not UTF-8: in line {before.count(10) + 1} there is the byte "
            f"0x{data[error.start]:02x} behind {error.start - before.rfind(10) - 1} others"
        ) from None


def check_output(arguments: Namespace, option: str = "output") -> None:
    """See, before any work, that an output can be written and is nothing that is read.

    Raises
    ------
    InvalidArgumentError
        If it is one of the inputs.
    OSError
        If it is a folder, or its folder is not there or cannot be written to.
    """
    given = getattr(arguments, option)
    if given is None:
        return
    output = Path(given)
    for name, what in _READ.items():
        read = getattr(arguments, name, None)
        if read is None or not (output.exists() and Path(read).exists()):
            continue
        if output.samefile(read):
            raise InvalidArgumentError(f"{output} is {what}: name another file for the output")
    if output.is_dir():
        raise IsADirectoryError(21, "Cannot write to a folder", str(output))
    folder = output.parent
    if not folder.is_dir():
        raise FileNotFoundError(2, "No such folder to write to", str(folder))
    if not os.access(folder, os.W_OK):
        raise PermissionError(13, "Cannot write to the folder", str(folder))


def what_failed(error: OSError) -> str:
    """Return what an error of the system says: the file it is about, and what is wrong with it."""
    if error.strerror is None:
        return str(error)
    named = [os.fsdecode(name) for name in (error.filename, error.filename2) if name is not None]
    return ": ".join([*named, error.strerror])


def _text(data: bytes, what: str) -> str:
    check_utf8(data, what)
    return data.decode().replace("\r\n", "\n").replace("\r", "\n")
