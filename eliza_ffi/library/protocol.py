"""The narrow surface the runner needs of an inference library, and the values that cross it.

The runner talks to this protocol alone, so a test can record its calls and another library can
stand behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..checks import FieldChecks, check_flag, check_number, check_text, check_whole

__all__ = [
    "STOP_AT_LEAF",
    "TEXT_HEAL_PROMPT",
    "TRIE_ARGMAX",
    "TRIE_BEST_LEAF",
    "TRIE_SAMPLE",
    "EndingScores",
    "LlmStreamingBinding",
    "PreparedChoices",
    "SpanResult",
    "StreamConfig",
    "StreamStats",
    "StreamStep",
    "TokenCallback",
    "TokenTable",
    "Tokens",
    "TrieLeaf",
]

TRIE_ARGMAX = 0
"""A trie mode: the most likely of the legal tokens at each step."""

TRIE_SAMPLE = 1
"""A trie mode: one of the legal tokens is sampled at each step."""

TRIE_BEST_LEAF = 2
"""A trie mode: the choice that is most likely as a whole."""

STOP_AT_LEAF = 0x100
"""Or-ed into a trie mode: the generation ends when the span does."""

TEXT_HEAL_PROMPT = 0x200
"""Or-ed into the mode of text choices: the prompt's last token may be spelled anew with them."""

Tokens = Sequence[int] | NDArray[np.integer[Any]]
"""Token ids, shape ``[n]``, each 0 or more and below 2**31."""

TokenCallback = Callable[[int, str], bool]
"""Takes a token id (-1 for text held back to the end) and its text; returns True to stop."""


class PreparedChoices:
    """Choices that a library has cut into a model's tokens; freed with this object.

    Attributes
    ----------
    handle
        What the library calls them.
    longest : int
        How many tokens the longest of them has.
    n : int
        How many they are.
    """

    __slots__ = ("handle", "longest", "n")

    def __init__(self, handle: Any, longest: int, n: int) -> None:
        self.handle = handle
        self.longest = longest
        self.n = n


CONFIG_FIELDS: FieldChecks = {
    **dict.fromkeys(("temperature", "top_p", "repeat_penalty"), (float, check_number)),
    **dict.fromkeys(
        ("max_tokens", "top_k", "slot_id", "draft_min", "draft_max", "n_gpu_layers"),
        (int, check_whole),
    ),
    **dict.fromkeys(
        (
            *("prompt_cache_key", "mtp_drafter_path", "gbnf_grammar"),
            *("cache_type_k", "cache_type_v"),
        ),
        (type(None), check_text),
    ),
    "disable_thinking": (bool, check_flag),
}
"""Of a stream's configuration, as :func:`~eliza_ffi.checks.check_fields` takes them."""


@dataclass(frozen=True)
class StreamConfig:
    """How a stream samples and where it keeps its tokens; the fields of the C struct.

    Attributes
    ----------
    max_tokens : int
        Tokens to generate; 0 = no limit.
    temperature : float
        0 or less = greedy.
    top_p : float
        In (0, 1); anything else = off.
    top_k : int
        0 or less = off.
    repeat_penalty : float
        0 or 1 = off.
    slot_id : int
        The KV slot, or -1 for any free one.
    prompt_cache_key : str or None
        Names a slot when `slot_id` is -1.
    draft_min, draft_max : int
        Both above 0 ask for speculative decoding: up to `draft_max` tokens, at most 256, are
        guessed and checked in one forward pass. Fewer than `draft_min` are not worth one.
    mtp_drafter_path : str or None
        The file of a model with the same vocabulary, or of an MTP head for the model, which
        guesses; None = the model's own head, or without one, what followed the same few tokens
        before.
    gbnf_grammar : str or None
        A grammar in GBNF whose start rule is ``root``.
    disable_thinking : bool
        Never sample ``<think>``.
    n_gpu_layers : int
        -1 = all, 0 = CPU. The first stream of a context decides.
    cache_type_k, cache_type_v : str or None
        KV cache types, such as ``"q8_0"``; None = f16.
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
    """What one pull brought.

    Attributes
    ----------
    tokens : tuple of int
        Tokens of this step; may be empty. One, or with speculation as many as were checked at once.
    text : str
        Their text, whole characters only.
    done : bool
        Whether the generation has ended with this step.
    drafted, accepted : int
        Tokens of the drafts that came to their end in this step, and how many of them were right.
    """

    tokens: tuple[int, ...]
    text: str
    done: bool
    drafted: int = 0
    accepted: int = 0


@dataclass(frozen=True)
class StreamStats:
    """Counts since the stream was opened; the header says what each one means.

    `finish_reason` is ``"none"`` (still going), ``"end"``, ``"length"``, ``"leaf"`` or
    ``"context_full"``. `strategies` names how the decisions inside spans were made:
    ``"token-by-token"``, ``"skip-ahead"``, ``"tree"``. The ``_us`` fields are microseconds,
    ``_ns`` nanoseconds. Of its `forward_passes`, `passes_shared` had tokens of other streams in
    them, too; `sequences` is how many streams were in all of them, and `wait_us` how long this one
    waited for them. What a library of an older version does not count is 0.
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
        """Forward passes beyond those that read the prompt."""
        return self.forward_passes - self.prompt_passes


@dataclass(frozen=True)
class TrieLeaf:
    """The leaf a span ended on.

    Attributes
    ----------
    name : str
    logprob : float
        Natural logarithm of its probability among the leaves.
    """

    name: str
    logprob: float


@dataclass(frozen=True, eq=False)
class EndingScores:
    """How likely the choices behind an ending of a prompt are.

    Attributes
    ----------
    legal : array of float, shape [n_choices]
        Natural logarithms of their probabilities among the choices.
    joint : array of float, shape [n_choices], or None
        The sums of their tokens' log-probabilities among the whole vocabulary; None unless asked
        for.
    option_mass : float or None
        The share of the next token's probability that the choices' first tokens have; None unless
        asked for.
    """

    legal: NDArray[np.float64]
    joint: NDArray[np.float64] | None = None
    option_mass: float | None = None


@dataclass(frozen=True)
class SpanResult:
    """What one call of `fill` wrote.

    Attributes
    ----------
    text : str
        The value, without the known text around it.
    logprob : float or None
        The sum, over the decisions, of the natural logarithm of the token's probability among the
        legal ones; None where it was not asked for.
    tokens : int
        Tokens that the model decided on or that were forced.
    truncated : bool
        Whether the value was brought to its end because of a limit.
    choice : int
        Which of the choices it is, -1 where there are none.
    answer_tokens : tuple of int
        All tokens since the prompt, without one that was healed.
    answer_bytes : tuple of int
        How many bytes each of them spells; empty where the library does not tell.
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
    """All tokens of a model.

    Attributes
    ----------
    texts : tuple of bytes
        What each token spells; of a control token, its name.
    control : tuple of int
        The tokens that are no part of a text, ascending.
    ends : tuple of int
        Those of them that end a generation, ascending.
    """

    texts: tuple[bytes, ...]
    control: tuple[int, ...]
    ends: tuple[int, ...]


class LlmStreamingBinding(Protocol):
    """What the runner calls. Contexts and streams are whatever the binding makes of them.

    Every call may block for as long as the native one does; `cancel` may come from any thread.
    Failures are raised as :class:`~eliza_ffi.errors.ElizaError`.
    """

    def supports(self, name: str) -> bool:
        """Return whether the library has the function behind the method of this name."""

    def open(self, ctx: Any, config: StreamConfig) -> Any:
        """Open a stream on a context."""

    def prefill(self, stream: Any, tokens: Tokens) -> None:
        """Append the prompt and decode it."""

    def next(self, stream: Any) -> StreamStep:
        """Pull the next step."""

    def cancel(self, stream: Any) -> None:
        """Stop the call that is running on the stream."""

    def set_token_mask(self, stream: Any, mask: NDArray[np.uint32] | None) -> None:
        """Allow only some tokens as the next one, a bit each; None allows all again."""

    def set_forced_tokens(self, stream: Any, tokens: Tokens) -> None:
        """Make these tokens the next ones; they need no forward pass each."""

    def decode(self, stream: Any) -> None:
        """Run the pass that the next token needs, if it needs one."""

    def set_token_trie(self, stream: Any, payload: str, mode: int) -> None:
        """Start a span; raises :class:`~eliza_ffi.errors.TokenTrieError` if it is refused."""

    def set_choices(self, stream: Any, choices: PreparedChoices, mode: int) -> None:
        """Start a span of choices that were prepared."""

    def set_text_choices(self, stream: Any, choices: Sequence[str], mode: int) -> None:
        """Start a span of choices by text; raises TokenTrieError if they are refused."""

    def clear_token_trie(self, stream: Any) -> None:
        """End the span."""

    def token_trie_leaf(self, stream: Any) -> TrieLeaf | None:
        """Return the leaf the last span ended on, or None if none has."""

    def token_trie_scores(self, stream: Any) -> NDArray[np.float64]:
        """Return the logarithm of every leaf's probability, in the payload's order."""

    def score_endings(
        self,
        stream: Any,
        endings: Sequence[tuple[Tokens, PreparedChoices]],
        *,
        joint: bool,
        option_mass: bool,
    ) -> tuple[EndingScores, ...]:
        """Return how likely the choices behind endings of the conversation are, which stays."""

    def fill(self, stream: Any, span: Mapping[str, Any]) -> SpanResult:
        """Write one span of an answer; the C header says what `span` holds.

        A :class:`~eliza_ffi.errors.ContextFullError` has what was written as its `partial`.
        """

    def set_sampling(self, stream: Any, settings: str) -> None:
        """Sample otherwise from now on; takes the JSON of a Sampling."""

    def set_logprobs(self, stream: Any, n_top: int) -> None:
        """Have tokens told with their log-probabilities from now on."""

    def take_logprobs(self, stream: Any, n_tokens: int, n_top: int) -> NDArray[np.void]:
        """Return those of the tokens since the last call.

        Returns
        -------
        array of (token, logprob), shape [n, 1 + n_top], n at most n_tokens
            For each token itself, then the likeliest in its place; -1 and nan where none is known.
        """

    def stats(self, stream: Any) -> StreamStats:
        """Return the counts of the stream."""

    def close(self, stream: Any) -> None:
        """Free the stream."""
