"""The constants, arguments and results of the library's calls, as Python values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

TRIE_ARGMAX = 0
"""A trie mode: take the most probable allowed token at each step."""

TRIE_SAMPLE = 1
"""A trie mode: sample from the allowed tokens at each step."""

TRIE_BEST_LEAF = 2
"""A trie mode: take the choice with the highest probability as a whole."""

STOP_AT_LEAF = 0x100
"""A flag for a trie mode: end the generation when the span ends."""

TEXT_HEAL_PROMPT = 0x200
"""A flag for the mode of text choices: heal the prompt.

The prompt's last token is removed and may be replaced by a longer token that extends into the
choice.
"""

Tokens = Sequence[int] | NDArray[np.integer[Any]]
"""Token ids, shape ``[n]``, each from 0 to 2**31 - 1."""

TokenCallback = Callable[[int, str], bool]
"""Called with a token id and its text; returns True to stop.

If the generation ends inside a UTF-8 character, a last call with id -1 passes the remaining text.
"""

ProgressCallback = Callable[[str, float], None]
"""Called with a stage, ``"load"`` or ``"prefill"``, and the fraction done, 0 to 1."""


@dataclass(frozen=True, eq=False)
class PreparedChoices:
    """Choices that a library has tokenized for a model. They are freed with this object."""

    handle: Any  # the library's handle
    longest: int  # the number of tokens of the longest choice
    n: int  # the number of choices
    texts: Sequence[str] = ()  # the choices; empty if they come from a payload


@dataclass(frozen=True)
class StreamConfig:
    """How a stream samples and which KV slot it uses: the fields of the C struct.

    Attributes
    ----------
    max_tokens : int
        Maximum number of tokens to generate after each prefill; 0 = no limit.
    temperature : float
        0 or less = greedy.
    top_p : float
        Between 0 and 1; any other value = off.
    top_k : int
        0 or less = off.
    repeat_penalty : float
        0 or 1 = off.
    slot_id : int
        The KV slot; -1 = any free slot.
    prompt_cache_key : str or None
        A name for the slot; used if `slot_id` is -1.
    draft_min, draft_max : int
        If both are above 0, the stream decodes speculatively: up to `draft_max` tokens, at most
        256, are drafted and checked in one forward pass. Drafts shorter than `draft_min` are not
        checked.
    mtp_drafter_path : str or None
        The file that drafts tokens: a model with the same vocabulary, or an MTP head or a Gemma 4
        assistant for the model. None = the MTP head in the model's own file. If there is none, the
        draft is the text that followed the last few tokens where they occurred before.
    gbnf_grammar : str or None
        A grammar in GBNF whose start rule is ``root``.
    disable_thinking : bool
        Never sample ``<think>``.
    n_gpu_layers : int
        Layers on the GPU: -1 = all, 0 = none. The first stream of a context sets it for all.
    cache_type_k, cache_type_v : str or None
        Data types of the KV cache, such as ``"q8_0"``; None = f16.
    """

    max_tokens: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    repeat_penalty: float = 1.0
    slot_id: int = -1
    prompt_cache_key: str | None = None
    draft_min: int = 0
    draft_max: int = 0
    mtp_drafter_path: str | None = None
    gbnf_grammar: str | None = None
    disable_thinking: bool = False
    n_gpu_layers: int = -1
    cache_type_k: str | None = None
    cache_type_v: str | None = None


@dataclass(frozen=True, slots=True)
class StreamStep:
    """The result of one call of `next`.

    Attributes
    ----------
    tokens : tuple of int
        The tokens of this step: none, one, or with speculative decoding the tokens of a checked
        draft.
    text : str
        The text of the tokens, in whole characters.
    done : bool
        Whether the generation ended with this step.
    drafted, accepted : int
        The number of tokens in the drafts that ended in this step, and how many of these tokens
        were accepted.
    logprobs : array of (token, logprob), shape [n, 1 + n_top], or None
        The log-probabilities of the tokens, as :meth:`CffiBinding.take_logprobs` returns
        them; None if they were not requested.
    reasoning : str
        The reasoning that was separated from the text.
    """

    tokens: tuple[int, ...]
    text: str
    done: bool
    drafted: int = 0
    accepted: int = 0
    logprobs: NDArray[np.void] | None = field(default=None, compare=False)
    reasoning: str = ""


@dataclass(frozen=True)
class StreamStats:
    """Counters of a stream since it was opened. The C header explains each field.

    `finish_reason` is ``"none"`` (not finished), ``"end"``, ``"length"``, ``"leaf"`` or
    ``"context_full"``. `strategies` lists how decisions inside spans were decoded:
    ``"token-by-token"``, ``"skip-ahead"``, ``"tree"``. Fields that end in ``_us`` are in
    microseconds, ``_ns`` in nanoseconds. `passes_shared` is the number of `forward_passes` that
    also decoded tokens of other streams, `sequences` the number of streams summed over all passes,
    and `wait_us` how long this stream waited for its passes.
    """

    prompt_tokens: int
    prompt_tokens_reused: int
    generated_tokens: int
    forward_passes: int
    prompt_passes: int
    forward_passes_saved: int
    decisions: int
    candidates_seen: int
    tokens_forced: int
    tokens_sampled: int
    spans: int
    trie_departures: int
    span_limit_hits: int
    tree_passes: int
    decode_us: int
    select_us: int
    n_past: int
    n_vocab: int
    finish_reason: str
    trie_active: bool
    select_ns: int
    strategies: tuple[str, ...]
    tokens_drafted: int
    tokens_accepted: int
    bytes_copied: int
    passes_shared: int
    sequences: int
    wait_us: int

    @property
    def passes_after_prompt(self) -> int:
        """Forward passes after the prompt was decoded."""
        return self.forward_passes - self.prompt_passes


@dataclass(frozen=True)
class TrieLeaf:
    """The leaf on which a span ended.

    Attributes
    ----------
    name : str
    logprob : float
        Natural logarithm of the leaf's probability among all leaves.
    """

    name: str
    logprob: float


@dataclass(frozen=True, eq=False)
class Chosen:
    """The choice that a stream has made."""

    index: int  # the choice, from 0
    logprob: float  # natural logarithm of its probability among the choices
    tokens: tuple[int, ...]  # its tokens
    stats: StreamStats
    # The natural logarithms of all probabilities, if they were requested.
    logprobs: NDArray[np.float64] | None = None


@dataclass(frozen=True, eq=False)
class EndingScores:
    """The probabilities of the choices that may follow one ending of a prompt."""

    # The natural logarithm of each choice's probability among the choices.
    constrained: NDArray[np.float64]
    # For each choice, the sum of the log-probabilities of its tokens over the whole vocabulary;
    # None unless requested.
    full: NDArray[np.float64] | None = None
    # The probability, over the whole vocabulary, that the next token is the first token of some
    # choice; None unless requested.
    allowed_probability: float | None = None


@dataclass(frozen=True)
class Hidden:
    """Means of hidden states over ranges of a prompt's tokens to read.

    Layer i is the input of block i, counted from 0; the model's number of layers is the output of
    the final norm. If the prompt has endings, the passes that score them read the states, too.
    """

    layers: tuple[int, ...]  # ascending
    ranges: tuple[tuple[int, int], ...]  # the first token, and the one after the last token
    n_embd: int  # the number of values in a hidden state of the model
    n_kept: int = 0  # the first tokens, which stay in the KV cache for prompts that begin with them


@dataclass(frozen=True, eq=False)
class Decided:
    """The results of a decision."""

    scores: tuple[EndingScores, ...]
    hidden: NDArray[np.float32] | None  # shape [n_layers, n_ranges, n_embd]
    forward_passes: int
    cached_tokens: int  # the number of prompt tokens found in the KV cache


@dataclass(frozen=True, eq=False)
class Ranking:
    """The most probable choices, or groups of choices, the most probable first."""

    labels: NDArray[np.int32]  # the indices of the choices, or the numbers of the groups
    logprobs: NDArray[np.float64]  # the natural logarithms of their probabilities
    # Upper bounds of the log-probabilities, equal to `logprobs` where these are exact.
    most_logprobs: NDArray[np.float64]
    # Whether no other choice or group is more probable than these, and their probabilities are
    # exact. For texts in any tokenization, the probabilities may be up to 0.001 too low.
    proven: bool
    rest: float  # the probability of all other choices or groups together
    forward_passes: int  # the number of forward passes after the prompt
    rows_read: int  # the number of prefixes of choices after which logits were read


@dataclass(frozen=True)
class SpanResult:
    """The result of one call of `fill`.

    Attributes
    ----------
    text : str
        The value, without the fixed text around it.
    logprob : float or None
        The sum over all decisions of the natural logarithm of the chosen token's probability among
        the allowed tokens; None if it was not requested.
    tokens : int
        Tokens that the model chose or that were forced.
    truncated : bool
        Whether a limit ended the value early.
    choice : int
        The index of the value among the choices; -1 without choices.
    answer_tokens : tuple of int
        All tokens since the prompt, except a token of the prompt that was replaced (token healing).
    answer_bytes : tuple of int
        The number of bytes of each answer token.
    """

    text: str
    logprob: float | None = None
    tokens: int = 0
    truncated: bool = False
    choice: int = -1
    answer_tokens: tuple[int, ...] = ()
    answer_bytes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenTable:
    """All tokens of a model."""

    texts: tuple[bytes, ...]  # the bytes of each token; for a control token, its name
    # The control tokens, which are not part of the text, in ascending order.
    control: tuple[int, ...]
    ends: tuple[int, ...]  # the control tokens that end a generation, in ascending order


@dataclass(frozen=True, slots=True)
class EotScore:
    """The probability of a given next token, and the most probable next token.

    Attributes
    ----------
    probability : float
        The probability of the given token, 0 to 1.
    top : int
        The most probable token.
    top_probability : float
        The probability of `top`, 0 to 1.
    """

    probability: float
    top: int
    top_probability: float


@dataclass(frozen=True, slots=True)
class VerifierEvent:
    """The outcome of one draft in speculative decoding.

    Attributes
    ----------
    accepted : tuple of int
        The drafted tokens that the model accepted.
    rejected : tuple of (int, int) or None
        The positions of the first and the last rejected token, counted from 0 at the first token
        after the prompt; None = all were accepted.
    corrected : tuple of int
        The token that was generated instead of the first rejected token; empty if there is none.
    """

    accepted: tuple[int, ...]
    rejected: tuple[int, int] | None
    corrected: tuple[int, ...]


VerifierCallback = Callable[[VerifierEvent], None]
