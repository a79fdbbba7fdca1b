"""The interface of all methods that generate JSON for a schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from eliza_ffi.model import Model


@dataclass(frozen=True)
class AnsweringSetting:
    """The arguments for creating an answerer.

    Attributes
    ----------
    model : Model
        The model in eliza-ffi. Other libraries load the same file.
    most : int
        The most tokens of an answer. A longer answer counts as not ended.
    """

    model: Model
    prompt: tuple[int, ...]
    n_ctx: int
    n_threads: int
    most: int


@dataclass(frozen=True)
class WrittenAnswer:
    """An answer, and its times.

    Attributes
    ----------
    tokens, passes : int
        The generated tokens, and the forward passes after the prompt's last pass.
    compile_ms : float
        Milliseconds to compile the schema.
    first_ms : float or None
        Milliseconds from the end of compiling to the first token; None = not known.
    ms : float
        Milliseconds from the end of compiling to the last token.
    """

    text: str
    tokens: int
    passes: int
    compile_ms: float
    first_ms: float | None
    ms: float


class Answerer(Protocol):
    """A method to generate JSON after a prompt that is in its cache, except for the last token."""

    def answer(self, schema: Any) -> WrittenAnswer | None:
        """Return an answer; None = the answer did not end.

        Raises
        ------
        ValueError
            If the method does not support the schema.
        """

    def close(self) -> None:
        """Free the model, if the method has its own."""
