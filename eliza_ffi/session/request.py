"""The request of a generation, and the result of its run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..chat.thinking import WrittenReasoning
from ..checks import (
    FieldChecks,
    check_callable,
    check_each,
    check_fields,
    check_flag,
    check_kind,
    check_number,
    check_one_of,
    check_text,
    check_whole,
    wrong,
)
from ..choices.token_tree import TokenTreePayload
from ..errors import InvalidArgumentError
from ..library.protocol import (
    TRIE_ARGMAX,
    PreparedChoices,
    StreamConfig,
    StreamStats,
    StreamStep,
    Tokens,
    TrieLeaf,
)
from ..sampling.params import Sampling
from ..structured.fill_result import FilledSpan
from ..structured.masks import Masks

MOST_LOGPROBS = 1024

NONE = type(None)


@dataclass(frozen=True)
class TextChoices:
    """Labels that may be written with any tokens that spell them, as under a grammar.

    Attributes
    ----------
    texts : tuple of str
        The labels.
    """

    texts: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "texts", check_each("texts", self.texts, str, "a string"))


Constraint: TypeAlias = "PreparedChoices | TokenTreePayload | TextChoices | Masks"
"""A limit on the tokens of a generation: a label set, or token masks."""


def _check_constraint(name: str, value: Any) -> Constraint:
    if isinstance(value, PreparedChoices | TokenTreePayload | TextChoices):
        return value
    if isinstance(value, type) or not hasattr(value, "start") or not hasattr(value, "n_words"):
        expected = "labels, or masks with n_words and start() like eliza_ffi.structured.Masks"
        raise wrong(name, expected, value)
    masks: Masks = value
    return masks


REQUEST_FIELDS: FieldChecks = {
    **dict.fromkeys(
        (
            *("max_tokens", "top_k", "slot_id", "draft_min", "draft_max", "n_gpu_layers"),
            "choice_mode",
        ),
        (int, check_whole),
    ),
    **dict.fromkeys(
        ("grammar", "cache_key", "drafter", "cache_type_k", "cache_type_v"), (NONE, check_text)
    ),
    "disable_thinking": (bool, check_flag),
    **dict.fromkeys(("temperature", "top_p", "repeat_penalty"), (float, check_number)),
    "sampling": (
        NONE,
        partial(check_kind, kind=Sampling, expected="a Sampling or None"),
    ),
    "constraint": (NONE, _check_constraint),
    **dict.fromkeys(("score_choices", "heal_prompt"), (bool, check_flag)),
    "stop": (tuple, partial(check_each, kind=str, expected="a string")),
    "reasoning": (
        NONE,
        partial(check_kind, kind=WrittenReasoning, expected="a WrittenReasoning or None"),
    ),
    "logprobs": (NONE, partial(check_whole, least=0, most=MOST_LOGPROBS)),
    "on_refused_choices": (NONE, partial(check_one_of, allowed=("raise", "grammar"))),
    "on_text": (NONE, check_callable),
}
"""The checks of the fields, for :func:`~eliza_ffi.checks.check_fields`."""


@dataclass(frozen=True, eq=False)
class GenerationRequest:
    """A prompt, and the settings for generating text after it.

    Attributes
    ----------
    prompt_tokens : sequence of int or array of int, shape [n]
    max_tokens : int
        Maximum number of tokens to generate; 0 = no limit except the context's length.
    temperature, top_p, top_k, repeat_penalty
        As in :class:`~eliza_ffi.sampling.Sampling`. All other sampling settings are those of the
        context.
    sampling : Sampling or None
        All sampling settings in one object. They replace `temperature`, `top_p`, `top_k` and
        `repeat_penalty`.
    grammar : str or None
        A grammar in GBNF with the start rule ``root``.
    constraint : PreparedChoices, TokenTreePayload, TextChoices, Masks or None
        Labels: the text begins with a label. Masks: before each token, a mask says which tokens are
        allowed.
    choice_mode : int
        How the label is chosen: ``TRIE_ARGMAX``, ``TRIE_SAMPLE`` or ``TRIE_BEST_LEAF``, or-ed with
        ``STOP_AT_LEAF`` to end the generation after the label.
    lead : str
        Spaces before the label that have no tokens in the prompt. Results leave them out.
    score_choices : bool
        Whether to compute the probability of every label before the choice.
    stop : tuple of str
        Strings that end the generation. The stop string and all text after it are left out.
    reasoning : WrittenReasoning or None
        How the model writes reasoning. The results then separate it from the text, and `stop` has
        no effect on it. None = the text includes the reasoning.
    logprobs : int or None
        If this is a number n, compute the log-probability of every generated token, and of the n
        most probable tokens at the same position.
    slot_id : int
        The KV slot, which runs one generation at a time; -1 = any free slot.
    cache_key : str or None
        The name of a slot, if `slot_id` is -1.
    cache_type_k, cache_type_v : str or None
        Types of the KV cache, such as ``"q8_0"``; None = f16.
    draft_min, draft_max : int
        Minimum and maximum number of tokens in a speculative draft; 0 = no speculation.
    drafter : str or None
        The file of the draft model.
    disable_thinking : bool
        Never sample ``<think>``.
    n_gpu_layers : int
        How many layers run on a GPU; -1 = all. The first request of a context decides.
    heal_prompt : bool
        Whether the prompt's last token and the beginning of the answer may merge into other tokens
        (token healing). Only for TextChoices, and for masks whose answers begin with a choice.
    on_refused_choices : {"raise", "grammar"}
        What to do if the library rejects the labels. ``"raise"``: raise
        :class:`~eliza_ffi.errors.TokenTrieError`. ``"grammar"``: log a warning and continue with
        the grammar alone.
    on_text : callable or None
        Called with each piece of text.

    Raises
    ------
    InvalidArgumentError
        If a field has a wrong type or value, or if both masks and a grammar are given.
    """

    prompt_tokens: Tokens
    max_tokens: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    repeat_penalty: float = 1.0
    sampling: Sampling | None = None
    grammar: str | None = None
    constraint: Constraint | None = None
    choice_mode: int = TRIE_ARGMAX
    lead: str = ""
    score_choices: bool = False
    stop: tuple[str, ...] = ()
    reasoning: WrittenReasoning | None = None
    logprobs: int | None = None
    slot_id: int = -1
    cache_key: str | None = None
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    draft_min: int = 0
    draft_max: int = 0
    drafter: str | None = None
    disable_thinking: bool = False
    n_gpu_layers: int = -1
    heal_prompt: bool = False
    on_refused_choices: str = "raise"
    on_text: Callable[[str], Any] | None = None

    def __post_init__(self) -> None:
        check_fields(self, REQUEST_FIELDS)
        if self.masks is not None and self.grammar is not None:
            raise InvalidArgumentError("pass either token masks or a grammar, got both")
        if not all(isinstance(text, str) and text for text in self.stop):
            raise InvalidArgumentError(f"stop must be non-empty strings, got {self.stop!r:.80}")
        if self.max_tokens < 0:
            raise InvalidArgumentError(f"max_tokens must be 0 or more, got {self.max_tokens}")

    @property
    def masks(self) -> Masks | None:
        """The constraint if it is token masks, otherwise None."""
        given = self.constraint
        if isinstance(given, PreparedChoices | TokenTreePayload | TextChoices):
            return None
        return given

    @property
    def has_choices(self) -> bool:
        """Whether the generation begins with a label."""
        return self.constraint is not None and self.masks is None

    def config(self) -> StreamConfig:
        """Return the configuration for opening a stream."""
        return StreamConfig(
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            repeat_penalty=self.repeat_penalty,
            slot_id=self.slot_id,
            prompt_cache_key=self.cache_key,
            draft_min=self.draft_min,
            draft_max=self.draft_max,
            mtp_drafter_path=self.drafter,
            gbnf_grammar=self.grammar,
            disable_thinking=self.disable_thinking,
            n_gpu_layers=self.n_gpu_layers,
            cache_type_k=self.cache_type_k,
            cache_type_v=self.cache_type_v,
        )


@dataclass(frozen=True, slots=True)
class AnswerStep(StreamStep):
    """A step whose text is separated from the reasoning before it.

    Attributes
    ----------
    reasoning : str
    """

    reasoning: str = ""


@dataclass(frozen=True, eq=False)
class RunResult:
    """The result of a run of a request.

    Attributes
    ----------
    text : str
    tokens : tuple of int
    prompt_tokens : int
        The number of tokens of the prompt.
    drafted, accepted : int
        The number of drafted tokens, and the number of drafted tokens that were accepted.
    stats : StreamStats or None
        None if the library does not report statistics.
    finish_reason : str
        See :class:`~eliza_ffi.library.StreamStats`.
    leaf : TrieLeaf or None
        The chosen label, if there was one and the library reports it.
    leaf_logprobs : array of float64, shape [labels], or None
        If the request's `score_choices` is set: the natural logarithm of each label's probability
        among the labels.
    logprobs : array of (token, logprob), shape [tokens, 1 + n], or None
        If the request's `logprobs` is n: in each row the generated token, then the n most probable
        tokens at its position. Unknown entries are -1 and nan.
    reasoning : str or None
        The reasoning before the text; None if the request's `reasoning` is None.
    choices : mapping
        The choices of the masks' plan, by path.
    """

    text: str
    tokens: tuple[int, ...]
    prompt_tokens: int
    drafted: int
    accepted: int
    stats: StreamStats | None
    finish_reason: str
    leaf: TrieLeaf | None
    leaf_logprobs: NDArray[np.float64] | None = None
    logprobs: NDArray[np.void] | None = None
    reasoning: str | None = None
    choices: Mapping[str, FilledSpan] = field(default_factory=dict)
