"""What a way to answer schemas is given, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from eliza_ffi.model import Model

__all__ = ["Answerer", "AnsweringSetting", "WrittenAnswer"]


@dataclass(frozen=True)
class AnsweringSetting:
    """Who answers, and what.

    Attributes
    ----------
    model : Model
        Ours; others load the same file.
    prompt : tuple of int
    n_ctx, n_threads : int
    most : int
        Tokens of an answer; a longer one has not ended.
    """

    model: Model
    prompt: tuple[int, ...]
    n_ctx: int
    n_threads: int
    most: int


@dataclass(frozen=True)
class WrittenAnswer:
    """An answer, and what it took.

    Attributes
    ----------
    text : str
    tokens, passes : int
        The pass of the prompt's last token is none of them.
    compile_ms : float
        Until the schema was something to answer by.
    first_ms : float or None
        From then on until the first token; None = not known.
    ms : float
        From then on until the last.
    """

    text: str
    tokens: int
    passes: int
    compile_ms: float
    first_ms: float | None
    ms: float


class Answerer(Protocol):
    """A way to answer schemas, behind one prompt that it has read but for the last token."""

    def answer(self, schema: Any) -> WrittenAnswer | None:
        """Return an answer; None = it did not end.

        Raises
        ------
        ValueError
            If it does not take the schema.
        """

    def close(self) -> None:
        """Let go of the model, if it has one of its own."""
