"""The exceptions of the package.

Every exception that the package raises deliberately is an :class:`ElizaError`, except the TypeError
for a missing or unexpected argument.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "AbiMismatchError",
    "BusyError",
    "ChatTemplateError",
    "ContextFullError",
    "ElizaError",
    "FillError",
    "GenerationCancelledError",
    "InvalidAnswerError",
    "InvalidArgumentError",
    "LibraryLoadError",
    "LibraryNotFoundError",
    "MissingFileError",
    "ModelError",
    "ModelNotFoundError",
    "NativeFaultError",
    "NoChatTemplateError",
    "NotSupportedError",
    "NotTextError",
    "OutOfMemoryError",
    "TokenTrieError",
    "error_from_status",
]


class ElizaError(Exception):
    """The base class of all exceptions of this package."""


class MissingFileError(ElizaError, FileNotFoundError):
    """A file does not exist."""


class LibraryNotFoundError(MissingFileError):
    """The library libelizainference was not found; the message lists the searched places."""


class LibraryLoadError(ElizaError):
    """The library was found, but cannot be loaded or lacks a required symbol."""


class AbiMismatchError(LibraryLoadError):
    """The library has an ABI version that this package does not support."""


class ModelError(ElizaError):
    """The given path has no usable model."""


class ModelNotFoundError(ModelError, MissingFileError):
    """The file of a model, an adapter or a draft model does not exist."""


class InvalidArgumentError(ElizaError, ValueError):
    """An argument has a wrong type or value, or a method was called at the wrong time.

    Attributes
    ----------
    argument : str or None
        The name of the wrong argument, if it is known.
    index : int or None
        The index of the wrong item of the argument, if it is a list and the index is known.
    """

    argument: str | None = None
    index: int | None = None


class ChatTemplateError(InvalidArgumentError):
    """The model has no chat template, or its template failed or rejected the messages."""


class NoChatTemplateError(ChatTemplateError):
    """The model has no chat template."""


class NotTextError(InvalidArgumentError):
    """A part of an input or of instructions is an image, sound or a file; models read only text."""


class TokenTrieError(ElizaError):
    """A token tree, which passes labels to the library, is malformed or was rejected.

    If the library rejected it, the stream is unchanged.
    """


class BusyError(ElizaError):
    """No slot became free in time: close a stream, or raise ``n_slots`` or ``slot_wait_ms``.

    Requests get slots in the order in which they arrive. A request without a `timeout` raises this
    error when no request has begun or ended for ``slot_wait_ms`` milliseconds: 30,000 by default,
    and 0 = do not wait. If another request holds the slot that it has named, only requests in this
    slot count.
    """


class NativeFaultError(ElizaError):
    """Decoding, memory mapping, or reading or writing a file failed inside the library."""


class OutOfMemoryError(ElizaError, MemoryError):
    """The library ran out of memory: try a smaller ``n_ctx`` or fewer slots."""


class GenerationCancelledError(ElizaError):
    """The generation was cancelled before it ended."""


class ContextFullError(ElizaError):
    """The tokens do not fit into the model's context: shorten the prompt or raise ``n_ctx``.

    Attributes
    ----------
    partial : SpanResult or None
        The unfinished value, if the context became full while a value of a structured answer was
        being written.
    """

    partial: Any = None


class FillError(ElizaError):
    """An answer could not be completed; `__cause__` is the error that stopped it, if there was one.

    Attributes
    ----------
    partial : FillResult
        The part of the answer that was written.
    """

    def __init__(self, text: str, partial: Any) -> None:
        super().__init__(text)
        self.partial = partial

    def __reduce__(self) -> tuple[Any, ...]:
        # By default, pickle calls the class with `args`, which does not contain `partial`.
        return type(self), (*self.args, self.partial), vars(self)


class InvalidAnswerError(FillError):
    """A complete answer is not valid against its schema or class; the message has the reason."""


class NotSupportedError(ElizaError):
    """The loaded library, or the installation, does not support the request."""


_BY_STATUS: dict[int, tuple[type[ElizaError], str]] = {
    -1: (NotSupportedError, "not implemented by this library"),
    -2: (InvalidArgumentError, "invalid argument"),
    -3: (ModelError, "no usable model"),
    -4: (NativeFaultError, "the library reported a fault"),
    -5: (OutOfMemoryError, "out of memory"),
    -6: (AbiMismatchError, "ABI mismatch"),
    -7: (GenerationCancelledError, "cancelled"),
    -8: (BusyError, "no slot is free"),
    -9: (ContextFullError, "context full"),
    -10: (InvalidArgumentError, "no room for the next token's text"),
}
_UNKNOWN = (NativeFaultError, "unknown failure")


def kind_of_status(status: int) -> type[ElizaError]:
    """Return the exception class of a negative library status."""
    return _BY_STATUS.get(status, _UNKNOWN)[0]


def error_from_status(status: int, text: str, doing: str) -> ElizaError:
    """Return the exception for a negative library status.

    >>> error_from_status(-8, "", "open a stream")
    BusyError('cannot open a stream: no slot is free (status -8)')

    Parameters
    ----------
    status
        An ``eliza_status``, negative.
    text
        The library's message; may be empty.
    doing
        The failed action as a verb phrase, such as ``"prefill 12 tokens"``.

    Returns
    -------
    ElizaError
        The caller raises it, so that the traceback begins at the failed call.
    """
    kind, bare_text = _BY_STATUS.get(status, _UNKNOWN)
    said = text.strip() or bare_text
    return kind(f"cannot {doing}: {said} (status {status})")
