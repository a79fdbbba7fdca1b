"""What can go wrong, as exceptions that say what was being done and what to do about it.

Everything the package raises on purpose is an :class:`ElizaError`.
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
    "GenerationCancelled",
    "InvalidAnswerError",
    "InvalidArgumentError",
    "LibraryLoadError",
    "LibraryNotFoundError",
    "ModelError",
    "NativeFault",
    "NoChatTemplateError",
    "NotSupportedError",
    "OutOfMemory",
    "TokenTrieError",
    "error_from_status",
]


class ElizaError(Exception):
    """Base of every exception of this package."""


class LibraryNotFoundError(ElizaError):
    """No libelizainference where it was looked for; the message lists the places."""


class LibraryLoadError(ElizaError):
    """The library was found and cannot be used: not loadable, or without a symbol it must have."""


class AbiMismatchError(LibraryLoadError):
    """The library speaks a version of the ABI that this package does not."""


class ModelError(ElizaError):
    """There is no usable model at the given path."""


class InvalidArgumentError(ElizaError, ValueError):
    """An argument is out of range or of the wrong kind, or a call came at the wrong moment."""


class ChatTemplateError(InvalidArgumentError):
    """The model has no chat template, or its template is broken or refused the messages."""


class NoChatTemplateError(ChatTemplateError):
    """The model has no chat template at all."""


class TokenTrieError(ElizaError):
    """The library refused a token-tree payload; the stream was left as it was."""


class BusyError(ElizaError):
    """No slot became free in time: close a stream, or raise ``n_slots`` or ``slot_wait_ms``.

    Those who need a slot get it in the order in which they ask. This is raised where it takes
    longer than option ``slot_wait_ms`` says: 30 seconds, or 0 = not to wait at all.
    """


class NativeFault(ElizaError):  # noqa: N818 - the C header's word
    """Decoding, memory mapping or input/output failed inside the library."""


class OutOfMemory(ElizaError, MemoryError):  # noqa: N818 - as the C header says
    """The library could not get the memory it needed: try a smaller context or fewer slots."""


class GenerationCancelled(ElizaError):  # noqa: N818 - an outcome
    """The generation was cancelled before it ended."""


class ContextFullError(ElizaError):
    """The tokens do not fit into the model's context: shorten the prompt or raise ``n_ctx``.

    Attributes
    ----------
    partial : SpanResult or None
        What was written of a span until then, where it was a span.
    """

    partial: Any = None


class FillError(ElizaError):
    """Filling a skeleton broke off; the error that did it is the `__cause__`.

    Attributes
    ----------
    partial : FillResult
        What was written until then.
    """

    def __init__(self, text: str, partial: Any) -> None:
        super().__init__(text)
        self.partial = partial

    def __reduce__(self) -> tuple[Any, ...]:
        # Python's own way calls the class with `args`, which have no `partial`.
        return type(self), (*self.args, self.partial), vars(self)


class InvalidAnswerError(FillError):
    """A whole answer is not valid against its schema or class; the message has the reason."""


class NotSupportedError(ElizaError):
    """The loaded library cannot do what was asked."""


_BY_STATUS: dict[int, type[ElizaError]] = {
    -1: NotSupportedError,
    -2: InvalidArgumentError,
    -3: ModelError,
    -4: NativeFault,
    -5: OutOfMemory,
    -6: AbiMismatchError,
    -7: GenerationCancelled,
    -8: BusyError,
    -9: ContextFullError,
    -10: InvalidArgumentError,
}

_BARE_TEXT: dict[int, str] = {
    -1: "not implemented by this library",
    -2: "invalid argument",
    -3: "no usable model",
    -4: "the library reported a fault",
    -5: "out of memory",
    -6: "ABI mismatch",
    -7: "cancelled",
    -8: "no slot is free",
    -9: "context full",
    -10: "no room for the next token's text",
}


def kind_of_status(status: int) -> type[ElizaError]:
    """Return the exception class for a negative status of the library."""
    return _BY_STATUS.get(status, NativeFault)


def error_from_status(status: int, text: str, doing: str) -> ElizaError:
    """Turn a negative status of the library into the exception to raise.

    Parameters
    ----------
    status
        An ``eliza_status``, negative.
    text
        What the library said about it; may be empty.
    doing
        What was being done, as a verb phrase: ``"prefill 12 tokens"``.

    Returns
    -------
    ElizaError
        Never raised here: the caller does, so that the traceback begins where the call was made.
    """
    said = text.strip() or _BARE_TEXT.get(status, "unknown failure")
    return kind_of_status(status)(f"cannot {doing}: {said} (status {status})")
