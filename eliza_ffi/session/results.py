"""The results of runs, and their conversion to the results of Model's methods."""

from __future__ import annotations

import builtins
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..checks import short_repr
from ..choices.label_set import ChoiceResult, LabelSet
from ..errors import ContextFullError, InvalidArgumentError, NativeFaultError
from ..library.protocol import (
    STOP_AT_LEAF,
    TRIE_BEST_LEAF,
    PreparedChoices,
    StreamStats,
)
from .generation import Generation
from .requests import Request

if TYPE_CHECKING:
    from .session import Session


@dataclass(frozen=True)
class RerankResult:
    """A document and its relevance for a query.

    >>> RerankResult(index=1, score=2.8, probability=0.94).index
    1

    Attributes
    ----------
    index : int
        The document's index in the list of documents.
    score : float
        The relevance as the model computes it. The higher, the more relevant; most models have no
        fixed range.
    probability : float
        The relevance as a number from 0 to 1: the sigmoid of `score`, or `score` itself if the
        model ends in a softmax, like Qwen3-Reranker.
    """

    index: int
    score: float
    probability: float


@dataclass(frozen=True)
class TokenLogprob:
    """A generated token and its log-probability.

    >>> token = model.generate("Once", 1, logprobs=2).logprobs[0]
    >>> token.logprob <= token.top[0].logprob <= 0
    True

    Attributes
    ----------
    token : int
    text : str
        The token's text. Bytes that do not form a whole character are replaced by U+FFFD. For a
        control token, its name.
    logprob : float
        The natural logarithm of the token's probability among all tokens, before any sampling; nan
        for the tokens of labels.
    top : tuple of TokenLogprob
        The `logprobs` most probable tokens at this position, the most probable first.
    bytes : bytes
        The bytes that the token adds to the text; empty for a control token. A token may end inside
        a character, so only the bytes of several tokens together are valid UTF-8.
    """

    token: int
    text: str
    logprob: float
    top: tuple[TokenLogprob, ...] = ()
    bytes: builtins.bytes = b""


class TextPiece(str):
    """A piece of generated text, without reasoning that is separated from it.

    Attributes
    ----------
    logprobs : tuple of TokenLogprob, or None
        The tokens of this piece, and those before it that had no text yet; None if the argument
        `logprobs` was None.
    """

    logprobs: tuple[TokenLogprob, ...] | None = None


class ReasoningPiece(TextPiece):
    """A piece of the model's reasoning."""


@dataclass(frozen=True)
class GenerationResult:
    """The result of generating text.

    >>> result = model.generate("Once", 3)
    >>> len(result.tokens), result.finish_reason
    (3, 'length')

    Attributes
    ----------
    text : str
    tokens : tuple of int
        All generated tokens, including the tokens of a stop string.
    finish_reason : str
        ``"end"`` (the model ended the text), ``"length"`` (`max_tokens` was reached), ``"stop"`` (a
        string of `stop` was generated) or ``"context_full"``.
    prompt_tokens : int
        The number of tokens of the prompt.
    stats : StreamStats or None
        None if the library does not report statistics.
    logprobs : tuple of TokenLogprob, or None
        One item per token; None if the argument `logprobs` was None.
    reasoning : str or None
        The reasoning before the text; None if it was not separated from the text.
    """

    text: str
    tokens: tuple[int, ...]
    finish_reason: str
    prompt_tokens: int
    stats: StreamStats | None
    logprobs: tuple[TokenLogprob, ...] | None = None
    reasoning: str | None = None

    def __repr__(self) -> str:
        size = f"{len(self.tokens)} tokens"
        return f"{type(self).__name__}({short_repr(self.text)}, {size}, {self.finish_reason})"


def generation_of(session: Session, result: Generation) -> GenerationResult:
    """Return the result of a run of a :func:`generate_request`."""
    return GenerationResult(
        text=result.text,
        tokens=result.tokens,
        finish_reason=result.finish_reason,
        prompt_tokens=result.prompt_tokens,
        stats=result.stats,
        logprobs=None if result.logprobs is None else token_logprobs(session, result.logprobs),
        reasoning=result.reasoning,
    )


def token_logprobs(session: Session, rows: NDArray[np.void]) -> tuple[TokenLogprob, ...]:
    """Return the rows of `CffiBinding.take_logprobs` with the texts of their tokens."""
    vocabulary = session.vocabulary()

    def entry(token: int, logprob: float, top: tuple[TokenLogprob, ...] = ()) -> TokenLogprob:
        spelled = vocabulary.texts[token]
        added = b"" if token in vocabulary.controls else spelled
        return TokenLogprob(token, spelled.decode("utf-8", "replace"), logprob, top, added)

    return tuple(
        entry(own[0], own[1], tuple(entry(other[0], other[1]) for other in others if other[0] >= 0))
        for own, *others in rows.tolist()
    )


def choice_of(
    labels: LabelSet[Any],
    args: Request,
    result: Generation,
    seconds: float,
) -> ChoiceResult[Any]:
    """Return the result of a run of a :func:`choice_request`, which took `seconds` seconds."""
    # Check the finish reason first, because a truncated label may be equal to a shorter label.
    if result.finish_reason == "context_full":
        raise ContextFullError(
            f"the context was full inside a label, after {short_repr(result.text)}: "
            f"shorten the prompt or raise n_ctx"
        )
    if result.finish_reason == "length":
        given, room = args.constraint, ""
        if isinstance(given, PreparedChoices):
            room = f", or raise it to {given.longest}, the longest label's length"
        raise InvalidArgumentError(
            f"max_tokens={args.max_tokens} ended the generation inside a label, after "
            f"{short_repr(result.text)}: leave it at 0{room}"
        )
    leaf, index = result.leaf, None
    if leaf is not None and isinstance(args.constraint, PreparedChoices):
        index = int(leaf.name)
    else:
        text = result.text if leaf is None else leaf.name
        index = labels.index_of(text.removeprefix(args.lead))
    if index is None:
        raise NativeFaultError(
            f"the generated text must be one of the {len(labels.texts)} labels, got "
            f"{short_repr(result.text)} (finish reason {result.finish_reason})"
        )
    logprob = math.nan if leaf is None else leaf.logprob
    known = result.leaf_logprobs, result.tokens, result.stats
    return chosen_label(labels, args, index, logprob, *known, seconds)


def chosen_label(
    labels: LabelSet[Any],
    args: Request,
    index: int,
    logprob: float,
    logprobs: NDArray[np.float64] | None,
    tokens: tuple[int, ...],
    stats: StreamStats | None,
    seconds: float,
) -> ChoiceResult[Any]:
    """Return the result of a choice. `logprobs` has a value for each label, if they are known."""
    # Proven: chosen as the best label, at least one half, or the most probable of all labels.
    proven = args.choice_mode & ~STOP_AT_LEAF == TRIE_BEST_LEAF or logprob >= math.log(0.5)
    probabilities = None
    if logprobs is not None:
        probabilities = dict(zip(labels.keys, np.exp(logprobs).tolist(), strict=True))
        proven = proven or logprobs[index] == logprobs.max()
    return ChoiceResult(
        value=labels.values[index],
        index=index,
        text=labels.texts[index],
        logprob=logprob,
        tokens=tokens,
        forward_passes=-1 if stats is None else stats.passes_after_prompt,
        seconds=seconds,
        probabilities=probabilities,
        stats=stats,
        proven=bool(proven),
    )
