"""Arguments and results of elizaOS's runner, and conversions to this package's own types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import FieldChecks, check_fields, check_kind, check_text
from ..choices.token_tree import TokenTreePayload
from ..errors import InvalidArgumentError
from ..library.protocol import StreamConfig, StreamStats, Tokens, TrieLeaf
from ..model import Model
from ..sampling.params import Sampling
from ..session.generation import Generation
from ..session.options import AnyPrompt
from ..session.requests import REQUEST_FIELDS, Constraint, Request, generate_request
from ..structured.masks import Masks

TOKEN_TREE_FIELDS = {"token_tree_payload", "token_tree_mode", "token_tree_path", "on_trie_error"}
"""Fields of the runner's arguments that are not keywords of :meth:`Model.generate`."""

RENAMED = {
    "choice_mode": "token_tree_mode",
    "score_choices": "score_leaves",
    "on_refused_choices": "on_trie_error",
    "on_text": "on_text_chunk",
}
"""The fields of a request that have another name in elizaOS."""

OWN = ("constraint", "heal_prompt", "lead", "on_limit", "reasoning", "sampler_plan")
"""The fields of a request that elizaOS's arguments lack. A constraint has a field for each of its
kinds there. Tokens of payloads have no lead, and elizaOS separates reasoning itself."""

NAMES = {
    each.name: RENAMED.get(each.name, each.name) for each in fields(Request) if each.name not in OWN
}
"""The elizaOS names of a request's fields."""

NONE = type(None)

FIELDS: FieldChecks = {
    **{NAMES[name]: check for name, check in REQUEST_FIELDS.items() if name in NAMES},
    "masks": REQUEST_FIELDS["constraint"],
    "token_tree_payload": (
        NONE,
        partial(check_kind, kind=TokenTreePayload, expected="a TokenTreePayload or None"),
    ),
    "token_tree_path": (NONE, check_text),
}
"""The checks of the fields below, for :func:`~eliza_ffi.checks.check_fields`."""


@dataclass(frozen=True, eq=False)
class FfiStreamingGenerateArgs:
    """The arguments of one generation.

    `masks` exclude a payload and a grammar.

    Attributes
    ----------
    prompt_tokens : sequence of int or array of int, shape [n]
    slot_id, max_tokens, sampling, stop, logprobs
        As in :meth:`Model.generate <eliza_ffi.model.Model.generate>`; `stop` is a tuple.
    temperature, top_p, top_k, repeat_penalty, gbnf_grammar, prompt_cache_key, disable_thinking,
    draft_min, draft_max, mtp_drafter_path, n_gpu_layers, cache_type_k, cache_type_v
        See :class:`~eliza_ffi.library.StreamConfig`.
    token_tree_payload : TokenTreePayload or None
        Choices; the output begins with one of them.
    token_tree_mode : int
        0 = take the most probable allowed token at each step, 1 = sample from the allowed tokens,
        2 = take the choice with the highest probability as a whole. Add
        :data:`~eliza_ffi.library.STOP_AT_LEAF` to end the generation after the choice.
    token_tree_path : str or None
        Use only the payload's descriptors with this path; None = all.
    masks : Masks or None
        An object that computes the allowed tokens before each token.
    score_leaves : bool
        Compute the probability of every choice before choosing.
    on_trie_error : {"raise", "grammar"}
        If the library rejects the payload, raise :class:`~eliza_ffi.errors.TokenTrieError`, or log
        a warning and generate with the grammar alone.
    on_text_chunk : callable or None
        Called with each piece of text, never with an empty one. The asynchronous runner awaits the
        result if it is awaitable. An exception ends the generation.
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
    sampling: Sampling | None = None
    token_tree_payload: TokenTreePayload | None = None
    token_tree_mode: int = 0
    token_tree_path: str | None = None
    masks: Masks | None = None
    score_leaves: bool = False
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    on_trie_error: str = "raise"
    on_text_chunk: Callable[[str], Any] | None = None

    def __post_init__(self) -> None:
        check_fields(self, FIELDS)
        for name in ("token_tree_payload", "gbnf_grammar"):
            if self.masks is not None and getattr(self, name) is not None:
                raise InvalidArgumentError(f"expected at most one constraint, got masks, {name}")
        self._request_for(None)  # checks the other fields

    @classmethod
    def of(cls, request: Request) -> FfiStreamingGenerateArgs:
        """Convert a request of this package to elizaOS's arguments."""
        constraint = request.constraint
        return cls(
            **{name: getattr(request, ours) for ours, name in NAMES.items()},
            token_tree_payload=constraint if isinstance(constraint, TokenTreePayload) else None,
            masks=request.masks,
        )

    def config(self) -> StreamConfig:
        """Return the configuration for opening the stream."""
        return self._request_for(None)

    def to_request(self) -> Request:
        """Convert these arguments to a request of this package.

        Raises
        ------
        TokenTrieError
            If no descriptor of the payload has the path `token_tree_path`.
        """
        payload = self.token_tree_payload
        if payload is not None and self.token_tree_path is not None:
            payload = payload.select(self.token_tree_path)
        return self._request_for(payload or self.masks)

    def _request_for(self, constraint: Constraint | None) -> Request:
        same = {ours: getattr(self, name) for ours, name in NAMES.items()}
        return Request(**same, constraint=constraint)


@dataclass(frozen=True)
class Usage:
    """Token counts. The runner counts them itself, so they do not depend on the library."""

    prompt_tokens: int
    completion_tokens: int
    drafted: int
    accepted: int


@dataclass(frozen=True, eq=False)
class FfiStreamingResult:
    """The result of a generation.

    Attributes
    ----------
    text : str
    tokens : tuple of int
    usage : Usage
    stats, finish_reason
        See :class:`~eliza_ffi.GenerationResult`.
    leaf : TrieLeaf or None
        The choice, if there was one and the library reports it.
    leaf_logprobs : array of float64, shape [choices], or None
        With `score_leaves`, the natural logarithm of the probability of each choice.
    logprobs : array of (token, logprob), shape [tokens, 1 + n], or None
        In each row the generated token, then the n most probable tokens at its position. Unknown
        entries are -1 and nan.
    """

    text: str
    tokens: tuple[int, ...]
    usage: Usage
    stats: StreamStats | None
    finish_reason: str
    leaf: TrieLeaf | None
    leaf_logprobs: NDArray[np.float64] | None = None
    logprobs: NDArray[np.void] | None = None

    @classmethod
    def of(cls, result: Generation) -> FfiStreamingResult:
        """Convert a result of this package to elizaOS's result."""
        usage = Usage(
            prompt_tokens=result.prompt_tokens,
            completion_tokens=len(result.tokens),
            drafted=result.drafted,
            accepted=result.accepted,
        )
        same = {
            each.name: getattr(result, each.name) for each in fields(cls) if each.name != "usage"
        }
        return cls(usage=usage, **same)


def generate_args(model: Model, prompt: AnyPrompt, **settings: Any) -> FfiStreamingGenerateArgs:
    """Return the runner's arguments for a prompt and the model's settings.

    `prompt` and `settings` are as in
    :meth:`Model.generate <eliza_ffi.model.Model.generate>`. The fields of
    :class:`FfiStreamingGenerateArgs` for token trees are also allowed: `token_tree_payload`,
    `token_tree_mode`, `token_tree_path` and `on_trie_error`.

    >>> generate_args(model, "Once", max_tokens=3).max_tokens
    3
    """
    check_kind("model", model, Model, "a Model")
    token_tree = {name: settings.pop(name) for name in TOKEN_TREE_FIELDS & settings.keys()}
    request = generate_request(model.session, prompt, method="generate_args", **settings)
    return replace(FfiStreamingGenerateArgs.of(request), **token_tree)
