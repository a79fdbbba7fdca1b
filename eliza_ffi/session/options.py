"""Options of requests: the KV slot, speculation, and keyword arguments of several methods."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, TypeVar

from ..chat.prompt import Prompt
from ..chat.template import Messages
from ..checks import check_path, check_text, check_whole
from ..hub import check_exists, find_model
from ..library.protocol import Tokens
from ..sampling.params import Sampling

if TYPE_CHECKING:
    from ..choices.label_set import LabelSet
    from ..structured.sampler_plan import SpanSamplerPlan

T = TypeVar("T")

AnyPrompt: TypeAlias = "str | Prompt | Tokens | Messages"
"""A string, a `Prompt`, token ids, or the messages of a conversation."""

ChoiceMode = Literal["greedy", "sample", "best"]
Tokenization = Literal["canonical", "any"]
OnLimit = Literal["error", "close"]

Strings: TypeAlias = "Sequence[str] | Iterator[str]"
"""Labels as strings. Not `Iterable[str]`, because an enum class is iterable, too."""

Labels: TypeAlias = "LabelSet[T] | type[T] | Sequence[T] | Iterator[T]"
"""Labels with values of the type `T`."""

MAX_DRAFTED = 256


@dataclass(frozen=True)
class CacheOptions:
    """The KV slot of a request, and the data types of its KV cache.

    >>> model.generate("Once", 5, cache=CacheOptions(key="story")).finish_reason
    'length'

    Attributes
    ----------
    slot : int
        The slot; -1 = the free slot that has the longest common beginning with the prompt.
        Requests for the same slot run one after the other.
    key : str or None
        The name of a slot, if `slot` is -1. Requests with the same name share a slot.
    type_k, type_v : str or None
        Data types of the keys and values in the KV cache, such as ``"q8_0"``; None = f16.

    Raises
    ------
    InvalidArgumentError
        If a field has a wrong type or value.
    """

    slot: int = -1
    key: str | None = None
    type_k: str | None = None
    type_v: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "slot", check_whole("slot", self.slot, -1))
        for name in ("key", "type_k", "type_v"):
            if getattr(self, name) is not None:
                check_text(name, getattr(self, name))

    def settings(self) -> dict[str, Any]:
        """Return the fields of a :class:`~eliza_ffi.session.Request`."""
        return {
            "slot_id": self.slot,
            "prompt_cache_key": self.key,
            "cache_type_k": self.type_k,
            "cache_type_v": self.type_v,
        }


@dataclass(frozen=True)
class Speculation:
    """Settings of speculative decoding: guess several tokens, check them in one forward pass.

    The generated tokens are the same as without speculation.

    >>> model.generate("Once", 5, speculation=Speculation(max_tokens=4)).finish_reason
    'length'

    Attributes
    ----------
    max_tokens : int
        Maximum number of tokens in a guess, 1 to 256.
    min_tokens : int
        Minimum number of tokens in a guess, at most `max_tokens`. Shorter guesses are discarded.
    drafter : str, os.PathLike or None
        A small model with the same vocabulary, or an MTP head or a Gemma 4 assistant for the
        model: a path or a name, as for :class:`~eliza_ffi.Model`. None = the model's own MTP head;
        if the model has none, the guess is the text that followed the same few tokens earlier in
        the prompt or in the generated text.

    Raises
    ------
    InvalidArgumentError
        If a field has a wrong type or value.
    """

    max_tokens: int = 16
    min_tokens: int = 1
    drafter: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        most = check_whole("max_tokens", self.max_tokens, 1, MAX_DRAFTED)
        object.__setattr__(self, "max_tokens", most)
        object.__setattr__(self, "min_tokens", check_whole("min_tokens", self.min_tokens, 1, most))
        if self.drafter is not None:
            check_path("drafter", self.drafter)

    def settings(self) -> dict[str, Any]:
        """Return the fields of a :class:`~eliza_ffi.session.Request`."""
        drafter = None if self.drafter is None else find_model(self.drafter)
        if drafter is not None:
            check_exists(drafter)
        return {
            "draft_max": self.max_tokens,
            "draft_min": self.min_tokens,
            "mtp_drafter_path": drafter,
        }


class StreamSettings(TypedDict, total=False):
    """Keyword arguments of :meth:`~eliza_ffi.Model.stream`."""

    temperature: float
    top_p: float
    top_k: int
    min_p: float
    seed: int | None
    stop: str | Sequence[str] | None
    logprobs: int | None
    schema: Any
    sampling: Sampling | None
    speculation: Speculation | None
    cache: CacheOptions | None
    timeout: float | None


class TextSettings(StreamSettings, total=False):
    """Keyword arguments of :meth:`~eliza_ffi.Model.generate`."""

    on_text: Callable[[str], Any] | None


class ChoiceSettings(TypedDict, total=False):
    """Keyword arguments of :meth:`~eliza_ffi.Model.choose`."""

    mode: ChoiceMode | None
    temperature: float
    probabilities: bool
    tokenization: Tokenization
    heal_prompt: bool
    max_tokens: int
    sampling: Sampling | None
    seed: int | None
    think: int
    cache: CacheOptions | None
    on_text: Callable[[str], Any] | None
    timeout: float | None


class RankOptions(TypedDict, total=False):
    """Keyword arguments of :meth:`~eliza_ffi.Model.rank` that do not change the result's type."""

    separator: str | None
    max_passes: int | None
    tokenization: Tokenization
    think: int
    cache: CacheOptions | None
    timeout: float | None


class RankSettings(RankOptions, total=False):
    """Keyword arguments of :meth:`~eliza_ffi.Model.rank_many`."""

    k: int
    level: int | None


class FillSettings(TypedDict, total=False):
    """Keyword arguments of :meth:`~eliza_ffi.Model.fill_many`."""

    max_tokens: int
    on_limit: OnLimit
    retries: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int | None
    sampling: Sampling | None
    logprobs: bool
    heal_prompt: bool
    sampler_plan: SpanSamplerPlan | Mapping[str, Any] | None
    think: int
    cache: CacheOptions | None
    timeout: float | None


class FillOptions(FillSettings, total=False):
    """Keyword arguments of :meth:`~eliza_ffi.Model.fill`."""

    on_span: Callable[[Any], Any] | None
