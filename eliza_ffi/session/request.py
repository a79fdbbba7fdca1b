"""A request for a generation, and its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

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
    Tokens,
    TrieLeaf,
)
from ..sampling.params import Sampling
from ..structured.masks import Masks

__all__ = ["REQUEST_FIELDS", "Constraint", "GenerationRequest", "RunResult", "TextChoices"]

MOST_LOGPROBS = 1024

NONE = type(None)


@dataclass(frozen=True)
class TextChoices:
    """Labels that may be cut into tokens in every way, as a grammar of the labels allows.

    Attributes
    ----------
    texts : tuple of str
    heal_prompt : bool
        Whether the prompt's last token may be spelled anew together with the label.
    """

    texts: tuple[str, ...]
    heal_prompt: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "texts", check_each("texts", self.texts, str, "a string"))
        check_flag("heal_prompt", self.heal_prompt)


Constraint: TypeAlias = "PreparedChoices | TokenTreePayload | TextChoices | Masks"
"""A limit on the tokens of a generation: a set of labels, or masks."""


def _check_constraint(name: str, value: Any) -> Constraint:
    if isinstance(value, PreparedChoices | TokenTreePayload | TextChoices):
        return value
    if isinstance(value, type) or not hasattr(value, "start") or not hasattr(value, "n_words"):
        expected = "labels or masks with n_words and start(), as eliza_ffi.structured.Masks"
        raise wrong(name, expected, value)
    masks: Masks = value
    return masks


REQUEST_FIELDS: FieldChecks = {
    **dict.fromkeys(
        (
            *("max_tokens", "top_k", "slot_id", "draft_min", "draft_max", "gpu_layers"),
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
    "score_choices": (bool, check_flag),
    "stop": (tuple, partial(check_each, kind=str, expected="a string")),
    "logprobs": (NONE, partial(check_whole, least=0, most=MOST_LOGPROBS)),
    "on_refused_choices": (NONE, partial(check_one_of, allowed=("raise", "grammar"))),
    "on_text": (NONE, check_callable),
}
"""As :func:`~eliza_ffi.checks.check_fields` takes them."""


@dataclass(frozen=True, eq=False)
class GenerationRequest:
    """A prompt, and how the text after it is generated.

    Attributes
    ----------
    prompt_tokens : sequence of int or array of int, shape [n]
    max_tokens : int
        0 = no limit except the context's length.
    temperature, top_p, top_k, repeat_penalty
        As in :class:`~eliza_ffi.sampling.Sampling`. All other settings are those of the
        context's options.
    sampling : Sampling or None
        All settings at once, in place of those four.
    grammar : str or None
        A grammar in GBNF with the start rule ``root``.
    constraint : PreparedChoices, TokenTreePayload, TextChoices, Masks or None
        Labels: the generation begins with one of them. Masks: every token is one that the masks
        allow.
    choice_mode : int
        How a label is chosen: ``TRIE_ARGMAX``, ``TRIE_SAMPLE`` or ``TRIE_BEST_LEAF``, or-ed with
        ``STOP_AT_LEAF`` to end the generation after the label.
    score_choices : bool
        Whether to compute the probability of every label before the choice.
    stop : tuple of str
        Texts that end the generation. The stop text and all text after it are left out.
    logprobs : int or None
        Compute the log-probability of every token, and of this many most probable tokens beside it.
    slot_id : int
        The KV slot, for one generation at a time; -1 = any free slot.
    cache_key : str or None
        The name of a slot, if `slot_id` is -1.
    cache_type_k, cache_type_v : str or None
        Types of the KV cache, such as ``"q8_0"``; None = f16.
    draft_min, draft_max : int
        The least and the most tokens of a speculative draft; 0 = no speculation.
    drafter : str or None
        The file of the draft model.
    disable_thinking : bool
        Never sample ``<think>``.
    gpu_layers : int
        -1 = all. The first request of a context decides.
    on_refused_choices : {"raise", "grammar"}
        If the library refuses the labels: raise :class:`~eliza_ffi.errors.TokenTrieError`, or log
        a warning and continue with the grammar alone.
    on_text : callable or None
        Called with each piece of text.

    Raises
    ------
    InvalidArgumentError
        If a field has a wrong type or value, or there are masks and a grammar.
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
    score_choices: bool = False
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    slot_id: int = -1
    cache_key: str | None = None
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    draft_min: int = 0
    draft_max: int = 0
    drafter: str | None = None
    disable_thinking: bool = False
    gpu_layers: int = -1
    on_refused_choices: str = "raise"
    on_text: Callable[[str], Any] | None = None

    def __post_init__(self) -> None:
        check_fields(self, REQUEST_FIELDS)
        if self.masks is not None and self.grammar is not None:
            raise InvalidArgumentError("give either masks or a grammar, not both")
        if not all(isinstance(text, str) and text for text in self.stop):
            raise InvalidArgumentError(f"stop must be non-empty texts, not {self.stop!r:.80}")
        if self.max_tokens < 0:
            raise InvalidArgumentError(f"max_tokens must be 0 or more, not {self.max_tokens}")

    @property
    def masks(self) -> Masks | None:
        """The masks, if the constraint is masks."""
        given = self.constraint
        if isinstance(given, PreparedChoices | TokenTreePayload | TextChoices):
            return None
        return given

    @property
    def has_choices(self) -> bool:
        """Whether the generation begins with a label."""
        return self.constraint is not None and self.masks is None

    def config(self) -> StreamConfig:
        """Return the part of the request that the library's `open` takes."""
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
            n_gpu_layers=self.gpu_layers,
            cache_type_k=self.cache_type_k,
            cache_type_v=self.cache_type_v,
        )


@dataclass(frozen=True, eq=False)
class RunResult:
    """The result of a run of a request.

    Attributes
    ----------
    text : str
    tokens : tuple of int
    prompt_tokens : int
        How many tokens the prompt has.
    drafted, accepted : int
        How many tokens were drafted, and how many of these were right.
    stats : StreamStats or None
        None if the library does not count.
    finish_reason : str
        See :class:`~eliza_ffi.library.StreamStats`.
    leaf : TrieLeaf or None
        The chosen label, if there was one and the library can tell.
    leaf_logprobs : array of float64, shape [labels], or None
        With `score_choices`, the natural logarithm of the probability of each label among the
        labels.
    logprobs : array of (token, logprob), shape [tokens, 1 + n], or None
        With `logprobs` = n: every token, then the most probable tokens beside it; -1 and nan if
        unknown.
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
