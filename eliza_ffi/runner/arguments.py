"""What a generation is asked for, and what it comes to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import (
    FieldChecks,
    check_callable,
    check_each,
    check_fields,
    check_flag,
    check_kind,
    check_one_of,
    check_text,
    check_whole,
    wrong,
)
from ..choices.token_tree import TokenTreePayload
from ..errors import InvalidArgumentError
from ..library.protocol import (
    CONFIG_FIELDS,
    PreparedChoices,
    StreamConfig,
    StreamStats,
    Tokens,
    TrieLeaf,
)
from ..masks.source import Masks
from ..sampling.params import SamplingParams

__all__ = ["FfiStreamingGenerateArgs", "FfiStreamingResult", "Usage"]


MOST_LOGPROBS = 1024

CHOICES = ("token_tree_payload", "prepared_choices", "text_choices")

NONE = type(None)


def _check_masks(name: str, value: Any) -> Masks:
    if isinstance(value, type) or not hasattr(value, "start") or not hasattr(value, "n_words"):
        raise wrong(name, "an object with n_words and start(), as eliza_ffi.masks.Masks", value)
    masks: Masks = value
    return masks


FIELDS: FieldChecks = {
    **CONFIG_FIELDS,
    "sampling": (
        NONE,
        partial(check_kind, kind=SamplingParams, expected="a SamplingParams or None"),
    ),
    "token_tree_payload": (
        NONE,
        partial(check_kind, kind=TokenTreePayload, expected="a TokenTreePayload or None"),
    ),
    "token_tree_mode": (int, check_whole),
    "token_tree_path": (NONE, check_text),
    "prepared_choices": (
        NONE,
        partial(check_kind, kind=PreparedChoices, expected="a PreparedChoices or None"),
    ),
    "text_choices": (NONE, partial(check_each, kind=str, expected="a string")),
    "heal_prompt": (bool, check_flag),
    "masks": (NONE, _check_masks),
    "score_leaves": (bool, check_flag),
    "stop": (tuple, partial(check_each, kind=str, expected="a string")),
    "logprobs": (NONE, partial(check_whole, least=0, most=MOST_LOGPROBS)),
    "on_trie_error": (NONE, partial(check_one_of, allowed=("raise", "grammar"))),
    "on_text_chunk": (NONE, check_callable),
}
"""As :func:`~eliza_ffi.checks.check_fields` takes them."""


@dataclass(frozen=True, eq=False)
class FfiStreamingGenerateArgs:
    """What to generate and how.

    Attributes
    ----------
    prompt_tokens : sequence of int or array of int, shape [n]
    slot_id : int
        The KV slot, one generation at a time; -1 = any free slot, any number at a time.
    max_tokens : int
        0 = no limit but the context's.
    temperature, top_p, top_k, repeat_penalty, gbnf_grammar, prompt_cache_key, disable_thinking,
    draft_min, draft_max, mtp_drafter_path, n_gpu_layers, cache_type_k, cache_type_v
        See :class:`~eliza_ffi.library.StreamConfig`.
    sampling : SamplingParams or None
        All settings of the sampling at once, in place of `temperature`, `top_p`, `top_k` and
        `repeat_penalty`.
    token_tree_payload : TokenTreePayload or None
        The choices the generation begins with.
    token_tree_mode : int
        0 = the most likely legal token, 1 = sampled from the legal ones, 2 = the choice that is
        most likely as a whole; or-ed with :data:`~eliza_ffi.library.STOP_AT_LEAF` to end the
        generation with the choice.
    token_tree_path : str or None
        Send only the descriptors of this path; None sends all.
    prepared_choices : PreparedChoices or None
        Instead of a payload: choices that the library has prepared.
    text_choices : tuple of str or None
        Instead of a payload: choices that may be cut into tokens in every way, as a grammar allows.
    heal_prompt : bool
        With `text_choices`: the prompt's last token may be spelled anew together with the choice.
    masks : Masks or None
        Instead of choices and a grammar: who computes which tokens may come next, one by one.
    score_leaves : bool
        Find the probability of every choice before choosing.
    stop : tuple of str
        Texts that end the generation; they and what follows are not part of its text.
    logprobs : int or None
        Find the log-probability of every token, and so many of the likeliest in its place.
    on_trie_error : {"raise", "grammar"}
        What a refused payload does: raise :class:`~eliza_ffi.errors.TokenTrieError`, or warn and
        go on with the grammar alone.
    on_text_chunk : callable or None
        Called with each piece of text, never empty. The asynchronous runner awaits what it returns
        if that can be awaited. An exception in it ends the generation.
    """

    prompt_tokens: Tokens
    slot_id: int = -1
    max_tokens: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    repeat_penalty: float = 1.0
    gbnf_grammar: str | None = None
    prompt_cache_key: str | None = None
    disable_thinking: bool = False
    draft_min: int = 0
    draft_max: int = 0
    mtp_drafter_path: str | None = None
    n_gpu_layers: int = -1
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    sampling: SamplingParams | None = None
    token_tree_payload: TokenTreePayload | None = None
    token_tree_mode: int = 0
    token_tree_path: str | None = None
    prepared_choices: PreparedChoices | None = None
    text_choices: tuple[str, ...] | None = None
    heal_prompt: bool = False
    masks: Masks | None = None
    score_leaves: bool = False
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    on_trie_error: str = "raise"
    on_text_chunk: Callable[[str], Any] | None = None

    def __post_init__(self) -> None:
        check_fields(self, FIELDS)
        given = [name for name in CHOICES if getattr(self, name) is not None]
        if len(given) > 1:
            raise InvalidArgumentError(f"give either {' or '.join(given)}, not both")
        if self.masks is not None and (given or self.gbnf_grammar is not None):
            other = given[0] if given else "gbnf_grammar"
            raise InvalidArgumentError(f"give either masks or {other}, not both")
        if isinstance(self.stop, str) or not all(isinstance(s, str) and s for s in self.stop):
            raise InvalidArgumentError(f"stop must be non-empty texts, not {self.stop!r:.80}")
        if self.max_tokens < 0:
            raise InvalidArgumentError(f"max_tokens must be 0 or more, not {self.max_tokens}")

    @property
    def has_choices(self) -> bool:
        """Whether the generation is to begin with a choice."""
        return any(getattr(self, name) is not None for name in CHOICES)

    def config(self) -> StreamConfig:
        """Return the part of this that the library's `open` takes."""
        names = [field.name for field in fields(StreamConfig)]
        return StreamConfig(**{name: getattr(self, name) for name in names})

    def payload(self) -> TokenTreePayload | None:
        """Return the payload to send, if any.

        Raises
        ------
        TokenTrieError
            If `token_tree_path` names no descriptor of the payload.
        """
        if self.token_tree_payload is None or self.token_tree_path is None:
            return self.token_tree_payload
        return self.token_tree_payload.select(self.token_tree_path)


@dataclass(frozen=True)
class Usage:
    """Tokens counted by the runner itself, whatever the library offers."""

    prompt_tokens: int
    completion_tokens: int
    drafted: int
    accepted: int


@dataclass(frozen=True, eq=False)
class FfiStreamingResult:
    """What a generation came to.

    Attributes
    ----------
    text : str
    tokens : tuple of int
    usage : Usage
    stats : StreamStats or None
        None where the library does not count.
    finish_reason : str
        See :class:`~eliza_ffi.library.StreamStats`.
    leaf : TrieLeaf or None
        The choice the span ended on, if there was a span that did and the library can say.
    leaf_logprobs : array of float64, shape [leaves], or None
        With `score_leaves`, the natural logarithm of every choice's probability among the choices,
        in the payload's order.
    logprobs : array of (token, logprob), shape [tokens, 1 + n], or None
        With `logprobs` = n: every token, then the likeliest in its place; -1 and nan where none is
        known.
    """

    text: str
    tokens: tuple[int, ...]
    usage: Usage
    stats: StreamStats | None
    finish_reason: str
    leaf: TrieLeaf | None
    leaf_logprobs: NDArray[np.float64] | None = None
    logprobs: NDArray[np.void] | None = None
