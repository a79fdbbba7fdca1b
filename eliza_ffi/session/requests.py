"""What is asked of a model, as what the runner is handed, and what comes back. Pure functions."""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from ..chat.prompt import Prompt
from ..chat.template import Messages
from ..checks import (
    check_flag,
    check_kind,
    check_number,
    check_one_of,
    check_several,
    check_whole,
    did_you_mean,
    short_repr,
    wrong,
)
from ..choices.label_set import ANCHOR, ChoiceResult, LabelSet
from ..choices.token_tree import TokenTreePayload
from ..errors import (
    ContextFullError,
    InvalidArgumentError,
    NativeFault,
    NotSupportedError,
)
from ..library.abi import PREFIX
from ..library.binding import token_array
from ..library.protocol import (
    STOP_AT_LEAF,
    TRIE_ARGMAX,
    TRIE_BEST_LEAF,
    TRIE_SAMPLE,
    PreparedChoices,
    StreamStats,
    Tokens,
)
from ..sampling.params import Sampling
from ..structured.masks import Masks
from ..structured.shape import Gbnf, Shape, is_shape, shape_of
from ..structured.skeleton import Skeleton, SpanOverride, SpanSamplerPlan
from .filling import ON_LIMIT, Fillable, FillRequest
from .options import (
    AnyPrompt,
    CacheOptions,
    ChoiceSettings,
    FillSettings,
    OnLimit,
    Speculation,
    TextSettings,
)
from .request import Constraint, GenerationRequest, RunResult, TextChoices

if TYPE_CHECKING:
    from .session import Session

__all__ = [
    "GenerationResult",
    "ShapeRequest",
    "TokenLogprob",
    "Tries",
    "check_keywords",
    "check_prompts",
    "checked_cache",
    "checked_tokens",
    "choice_of",
    "choice_request",
    "fill_request",
    "generate_request",
    "generation_of",
    "lora_option",
    "prompt_tokens",
    "shape_request",
]

PROMPT = "a string, a Prompt, token ids or a list of messages"
"""Everything that can be a prompt, for errors."""

MODES = {"greedy": TRIE_ARGMAX, "sample": TRIE_SAMPLE, "best": TRIE_BEST_LEAF}


@dataclass(frozen=True)
class TokenLogprob:
    """A token, and how likely the model found it where it came.

    Attributes
    ----------
    token : int
    text : str
        Bytes that are no whole character come out as U+FFFD.
    logprob : float
        Natural logarithm of its probability among all tokens, before any sampling; nan for tokens
        of choices.
    top : tuple of TokenLogprob
        The likeliest tokens in its place, the likeliest first; as many as were asked for.
    """

    token: int
    text: str
    logprob: float
    top: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True)
class GenerationResult:
    """A generated text.

    Attributes
    ----------
    text : str
    tokens : tuple of int
        All that were generated, those of a stop's text included.
    finish_reason : str
        ``"end"`` (the model ended it), ``"length"`` (`max_tokens`), ``"stop"`` (a text of `stop`
        came) or ``"context_full"``.
    prompt_tokens : int
    stats : StreamStats or None
        None where the library does not count.
    logprobs : tuple of TokenLogprob, or None
        Of every token; None unless asked for.
    """

    text: str
    tokens: tuple[int, ...]
    finish_reason: str
    prompt_tokens: int
    stats: StreamStats | None
    logprobs: tuple[TokenLogprob, ...] | None = None

    def __repr__(self) -> str:
        size = f"{len(self.tokens)} tokens"
        return f"{type(self).__name__}({short_repr(self.text)}, {size}, {self.finish_reason})"


def check_keywords(
    method: str, given: Mapping[str, Any], known: Set[str], own: Set[str] = frozenset()
) -> None:
    """Raise TypeError for a keyword that a method does not have, naming the nearest it has.

    Parameters
    ----------
    method
    given
        The keywords, without those that are parameters of the method.
    known
        All names of keywords.
    own
        Parameters of the method, which a misspelt keyword may stand for.
    """
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known | own)
            if "shape" in own and name in SHAPE_WORDS:
                hint = "pass it as the second argument, shape"
            raise TypeError(f"{method}() has no keyword {name!r}" + (f"; {hint}" if hint else ""))


def check_prompts(prompts: Any, one: str, name: str = "prompts") -> None:
    """Check that prompts are a list or another iterable, and not a single string.

    Parameters
    ----------
    prompts
    one
        The method for one prompt.
    name
        The argument's name.
    """
    check_several(name, prompts, f"a list of {name}", f"for one {name[:-1]} use {one}()")


def lora_option(adapters: Iterable[tuple[str | os.PathLike[str], float]]) -> str | None:
    """Return LoRA adapters as the library's option has them; None if there are none."""
    listed = []
    for adapter in check_several("lora", adapters, "a list of pairs of a file and a scale"):
        try:
            file, scale = adapter
            path, scale = os.fsdecode(file), float(scale)
            path.encode()  # what is not UTF-8 is no JSON
        except (OverflowError, TypeError, ValueError):
            raise InvalidArgumentError(
                f"a LoRA adapter is a pair of its file and a scale, not {adapter!r}"
            ) from None
        if not math.isfinite(scale):
            raise InvalidArgumentError(f"the scale of {path!r} is {scale}")
        listed.append({"path": path, "scale": scale})
    return json.dumps(listed) if listed else None


def prompt_tokens(session: Session, prompt: AnyPrompt) -> Tokens:
    """Return the tokens of a prompt.

    Raises
    ------
    InvalidArgumentError
        If it is no prompt, or there is nothing in it.
    """
    if isinstance(prompt, str | Prompt):
        tokens: Tokens = session.prompt_tokens(prompt)
    elif _is_conversation(prompt):
        tokens = session.chat().tokens(prompt)
    else:
        tokens = checked_tokens(prompt)
    found = token_array(tokens)
    if len(found) == 0:
        raise InvalidArgumentError("the prompt is empty: there is nothing to go on from")
    return found


def _is_conversation(prompt: Any) -> TypeGuard[Messages]:
    return _is_listed(prompt) and len(prompt) > 0 and isinstance(prompt[0], Mapping)


def checked_tokens(prompt: Any) -> Tokens:
    """Check that a prompt which is no text can be tokens, and say what to do if it is not."""
    if not _is_listed(prompt):
        hint = "a conversation is a list of messages" if isinstance(prompt, Mapping) else ""
        raise wrong("prompt", PROMPT, prompt, hint)
    first = prompt[0] if isinstance(prompt, Sequence) and len(prompt) else 0
    if isinstance(first, str | Prompt):
        hint = "for several prompts use the method whose name ends in _many"
        raise wrong("prompt", PROMPT, prompt, hint)
    tokens: Tokens = prompt
    return tokens


def _is_listed(value: Any) -> bool:
    is_sequence = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    return is_sequence or (hasattr(value, "__array__") and np.ndim(value) == 1)


def checked_cache(cache: CacheOptions | None) -> CacheOptions | None:
    """Check options of the cache, which may be left out."""
    if cache is not None:
        check_kind("cache", cache, CacheOptions, "a CacheOptions or None")
    return cache


def generate_request(
    session: Session,
    prompt: AnyPrompt,
    *,
    method: str = "generate",
    shape: Any = None,
    speculation: Speculation | None = None,
    stop: str | Sequence[str] | None = None,
    **given: Any,
) -> GenerationRequest:
    """Return the request of a text; parameters as :meth:`~eliza_ffi.model.Model.generate`."""
    check_keywords(method, given, TEXT_KEYWORDS)
    if speculation is not None:
        check_kind("speculation", speculation, Speculation, "a Speculation or None")
        _check_speculates(session)
        given.update(speculation.settings())
    if isinstance(shape, Gbnf):
        given["grammar"] = shape.grammar
    elif shape is not None:
        given["constraint"] = _masks_of(session, shape)
    return _request(session, prompt, stop=_stop_texts(stop), **given)


def _request(
    session: Session,
    prompt: AnyPrompt,
    *,
    sampling: Sampling | None = None,
    cache: CacheOptions | None = None,
    min_p: float = 0.0,
    seed: int | None = None,
    **more: Any,
) -> GenerationRequest:
    _ = session.ctx  # is it open, and ours?
    _check_ranges(more)
    if sampling is not None:
        check_kind("sampling", sampling, Sampling, "a Sampling or None")
    cache = checked_cache(cache)
    if cache is not None:
        more.update(cache.settings())
    named: dict[str, Any] = {"min_p": min_p} if check_number("min_p", min_p, 0, 1) else {}
    if seed is not None:
        named["seed"] = seed
    sampling = _all_sampling(sampling, {**more, **named})
    return GenerationRequest(
        prompt_tokens=prompt_tokens(session, prompt),
        gpu_layers=session.gpu_layers,
        sampling=sampling,
        disable_thinking=sampling is not None and sampling.disable_thinking,
        **more,
    )


def _masks_of(session: Session, shape: Any) -> Masks:
    if hasattr(shape, "start") and hasattr(shape, "n_words") and not isinstance(shape, type):
        masks: Masks = shape
        return masks
    if not is_shape(shape):
        raise wrong("shape", SHAPE, shape)
    return shape_of(shape).masks(session.guidance())


SHAPE = "a JSON Schema as a mapping, a class, a Regex, a Lark, a Gbnf or masks"
"""Everything that can be the shape of a text, for errors."""


def _stop_texts(stop: Any) -> tuple[str, ...]:
    if stop is None:
        return ()
    if isinstance(stop, str):
        return (stop,)
    return tuple(check_several("stop", stop, "a string, a list of strings or None"))


def choice_request(
    session: Session,
    prompt: AnyPrompt,
    labels: LabelSet[Any],
    *,
    mode: str = "greedy",
    temperature: float = 1.0,
    probabilities: bool = False,
    tokenization: str = "own",
    heal_prompt: bool = False,
    method: str = "choose",
    **more: Any,
) -> GenerationRequest:
    """Return the request of a choice; parameters as :meth:`~eliza_ffi.model.Model.choose`."""
    check_one_of("mode", mode, MODES)
    check_one_of("tokenization", tokenization, ("own", "any"))
    check_flag("probabilities", probabilities)
    check_flag("heal_prompt", heal_prompt)
    if not session.binding.trie_modes() & STOP_AT_LEAF:
        raise NotSupportedError(f"{session.binding.library.path} has no token-trie sampler")
    check_keywords(method, more, CHOICE_KEYWORDS)
    if more.get("sampling") is None:
        more["temperature"] = temperature
    _ = session.ctx  # is it open, and ours?
    constraint: Constraint
    if tokenization == "any":
        _check_text_choices(session, labels, mode, probabilities)
        constraint = TextChoices(labels.texts, heal_prompt)
    else:
        constraint = session.choices.tokens_of(labels)
    return _request(
        session,
        prompt,
        constraint=constraint,
        choice_mode=MODES[mode] | STOP_AT_LEAF,
        score_choices=probabilities,
        **more,
    )


MOST_TOKENS = 1024
"""Of a structured answer, unless `max_tokens` says otherwise."""


def fill_request(
    session: Session,
    prompt: AnyPrompt,
    shape: Any,
    *,
    sampler_plan: SpanSamplerPlan | Mapping[str, Any] | None = None,
    max_tokens: int = MOST_TOKENS,
    on_limit: OnLimit = "error",
    retries: int = 0,
    logprobs: bool = False,
    heal_prompt: bool = False,
    method: str = "fill",
    **more: Any,
) -> FillRequest:
    """Return the request of a skeleton; parameters as :meth:`~eliza_ffi.model.Model.fill`."""
    check_keywords(method, more, FILL_KEYWORDS, FILL_OWN)
    if isinstance(shape, Mapping) and shape:
        shape = Skeleton.from_dict(shape)
    if not hasattr(shape, "script"):
        raise wrong("shape", FILLABLE, shape)
    if sampler_plan is None:
        sampler_plan = SpanSamplerPlan()
    elif not isinstance(sampler_plan, SpanSamplerPlan):
        sampler_plan = SpanSamplerPlan.from_dict(sampler_plan)
    if check_whole("retries", retries, 0):
        raise InvalidArgumentError("retries is for shapes: every answer of a skeleton is valid")
    return FillRequest(
        skeleton=shape,
        generation=_request(session, prompt, **more),
        sampler_plan=sampler_plan,
        max_tokens=max_tokens,
        on_limit=on_limit,
        logprobs=logprobs,
        heal_prompt=heal_prompt,
    )


@dataclass(frozen=True, eq=False)
class ShapeRequest:
    """What the runner is handed for an answer of a shape: a skeleton to fill, or masks.

    Attributes
    ----------
    shape : Shape
    args : FillRequest or GenerationRequest
    retries : int
        How often an answer that is not valid is tried again.
    """

    shape: Shape[Any]
    args: FillRequest | GenerationRequest
    retries: int = 0

    def again(self) -> ShapeRequest:
        """Return the request of another try, which samples."""
        args = self.args
        if isinstance(args, FillRequest):
            generation = _sampled(args.generation, self.retries)
            plan = _sampling_plan(args.skeleton, generation)
            args = replace(args, generation=generation, sampler_plan=plan)
        else:
            args = _sampled(args, self.retries)
        return replace(self, args=args, retries=self.retries - 1)


FILLABLE = (
    "a Skeleton, its JSON form with spans, a JSON Schema with keywords, a class, Regex or Lark"
)
"""Everything that can be filled, for errors."""


class Tries:
    """The tries of an answer of a shape, one after the other. Any thread may cancel them.

    Parameters
    ----------
    request
    begin
        From what the runner is handed to a run of it.

    Attributes
    ----------
    request : ShapeRequest
        Of the last try.
    run
        The last try.
    """

    def __init__(self, request: ShapeRequest, begin: Callable[[Any], Any]) -> None:
        self.request = request
        self.run = begin(request.args)
        self._begin = begin
        self._lock = threading.Lock()
        self._is_cancelled = False

    def again(self) -> bool:
        """Begin another try; returns whether there is one."""
        with self._lock:
            if not self.request.retries or self._is_cancelled:
                return False
            self.request = self.request.again()
            self.run = self._begin(self.request.args)
            return True

    def cancel(self) -> None:
        """End the try that is running; no other follows."""
        with self._lock:
            self._is_cancelled = True
            self.run.cancel()


RETRY_TEMPERATURE = 0.7
"""Of another try, unless the request has a temperature of its own."""

RETRY_SEED = 1_000_003
"""The tries that follow the first have seeds of their own, the same ones in every run."""


def _sampled(args: GenerationRequest, n_left: int) -> GenerationRequest:
    """Return the request of a text with a temperature, and with draws of its own."""
    temperature = args.temperature or RETRY_TEMPERATURE
    # A model with a seed would draw the same tokens again.
    sampling = Sampling(
        temperature=temperature, top_k=args.top_k, top_p=args.top_p, seed=RETRY_SEED + n_left
    )
    return replace(args, temperature=temperature, sampling=sampling)


def _sampling_plan(skeleton: Fillable, args: GenerationRequest) -> SpanSamplerPlan:
    """Return the plan by which choices are sampled as every other token is."""
    sampling = args.temperature, args.top_k, args.top_p
    return SpanSamplerPlan(tuple(SpanOverride(i, *sampling) for i in range(skeleton.n_spans)))


def shape_request(
    session: Session,
    prompt: AnyPrompt,
    given: Any,
    *,
    on_limit: OnLimit = "error",
    retries: int = 0,
    method: str = "fill",
    **more: Any,
) -> ShapeRequest:
    """Return the request of a shape, given as to :func:`~eliza_ffi.structured.shape_of`.

    A closed schema is answered by a skeleton, everything else under llguidance's masks. Parameters
    as :meth:`~eliza_ffi.model.Model.fill`.
    """
    shape = shape_of(given)
    check_keywords(method, more, FILL_KEYWORDS, FILL_OWN)
    check_one_of("on_limit", on_limit, ON_LIMIT)
    retries = check_whole("retries", retries, 0)
    if retries and method == "fill_stream":
        raise InvalidArgumentError("fill_stream has no retries: its fields have been given out")
    more.setdefault("max_tokens", MOST_TOKENS)
    if shape.skeleton is not None:
        args = fill_request(session, prompt, shape.skeleton, method=method, **more)
        if more.get("sampler_plan") is None:
            plan = _sampling_plan(shape.skeleton, args.generation)
            args = replace(args, sampler_plan=plan)
        return ShapeRequest(shape, replace(args, on_limit=on_limit), retries)
    for name in ("sampler_plan", "logprobs", "heal_prompt"):
        if more.pop(name, None) not in (None, False):
            raise InvalidArgumentError(
                f"{name} is for skeletons and closed schemas, and this shape is neither"
            )
    masks = shape.masks(session.guidance())
    close = masks.close if on_limit == "close" else None
    shape = replace(shape, relaxed=masks.relaxed, close=close)
    return ShapeRequest(shape, _request(session, prompt, constraint=masks, **more), retries)


PLAIN_SAMPLING: Mapping[str, Any] = {
    "temperature": 0.0,
    "top_p": 1.0,
    "top_k": 0,
    "repeat_penalty": 1.0,
}
"""What a stream is opened with, and what each is where it is off."""

TEXT_KEYWORDS = frozenset((*TextSettings.__annotations__, "max_tokens"))
CHOICE_KEYWORDS = frozenset(ChoiceSettings.__annotations__)
FILL_KEYWORDS = frozenset((*FillSettings.__annotations__, "on_span"))
FILL_OWN = frozenset(("shape",))

SHAPE_WORDS = ("skeleton", "schema", "regex", "lark")
"""Keywords that users try for `shape`."""


def generation_of(session: Session, result: RunResult) -> GenerationResult:
    """Return what a run of :func:`generate_request` came to."""
    return GenerationResult(
        text=result.text,
        tokens=result.tokens,
        finish_reason=result.finish_reason,
        prompt_tokens=result.prompt_tokens,
        stats=result.stats,
        logprobs=_token_logprobs(session, result),
    )


def _token_logprobs(session: Session, result: RunResult) -> tuple[TokenLogprob, ...] | None:
    if result.logprobs is None:
        return None

    # Some tokenizers drop the space that a text begins with.
    anchor = session.tokenize(ANCHOR)
    n_anchor = len(session.detokenize(anchor, True))
    text_of: dict[int, str] = {}

    def told(entry: tuple[int, float], top: tuple[TokenLogprob, ...] = ()) -> TokenLogprob:
        token, logprob = entry
        if token not in text_of:
            text_of[token] = session.detokenize([*anchor, token], True)[n_anchor:]
        return TokenLogprob(token, text_of[token], logprob, top)

    return tuple(
        told(own, tuple(told(other) for other in others if other[0] >= 0))
        for own, *others in result.logprobs.tolist()
    )


def choice_of(
    choices: LabelSet[Any],
    args: GenerationRequest,
    result: RunResult,
    elapsed: float,
) -> ChoiceResult[Any]:
    """Return the choice that a run of :func:`choice_request` came to.

    Parameters
    ----------
    choices, args, result
    elapsed
        Seconds it took.

    Raises
    ------
    ContextFullError
        If the context was full before the choice was made.
    InvalidArgumentError
        If it was no choice, or `max_tokens` ended the generation before that.
    NativeFault
        If it was none of the choices.
    """
    if not args.has_choices:
        raise InvalidArgumentError("the generation was not one of choices")
    # First, because what was cut off within one choice may spell another in full.
    if result.finish_reason == "context_full":
        raise ContextFullError(
            f"the context was full inside the choice, after {result.text!r}: "
            f"shorten the prompt or raise n_ctx"
        )
    if result.finish_reason == "length":
        longest = _longest(args)
        room = "" if longest is None else f" or raise it to the longest choice's {longest} tokens"
        raise InvalidArgumentError(
            f"max_tokens ended the generation inside the choice, after {result.text!r}: "
            f"leave it at 0{room}"
        )
    index = _chosen(choices, args, result)
    if index is None:
        raise NativeFault(
            f"the generation ended ({result.finish_reason}) on {result.text!r}, "
            f"which is none of the {len(choices.texts)} choices"
        )
    stats = result.stats
    return ChoiceResult(
        value=choices.values[index],
        index=index,
        text=result.text,
        logprob=math.nan if result.leaf is None else result.leaf.logprob,
        tokens=result.tokens,
        forward_passes=-1 if stats is None else stats.passes_after_prompt,
        elapsed=elapsed,
        probabilities=_probabilities(choices, args, result),
        stats=stats,
    )


def _longest(args: GenerationRequest) -> int | None:
    given = args.constraint
    if isinstance(given, PreparedChoices):
        return given.longest
    if isinstance(given, TokenTreePayload):
        return max(len(leaf.tokens) for leaf in given.leaves())
    return None


def _chosen(choices: LabelSet[Any], args: GenerationRequest, result: RunResult) -> int | None:
    """Return the place of the choice that the generation ended on."""
    leaf, given = result.leaf, args.constraint
    if isinstance(given, TokenTreePayload):
        of_tokens = {leaf.tokens: leaf.name for leaf in given.leaves()}
        return choices.place_of(of_tokens.get(result.tokens, ""))
    if leaf is None:  # the library refused the choices, and a grammar did what they would
        return choices.place_of(result.text)
    return choices.place_of(leaf.name) if isinstance(given, TextChoices) else int(leaf.name)


def _probabilities(
    choices: LabelSet[Any], args: GenerationRequest, result: RunResult
) -> Mapping[Any, float] | None:
    if result.leaf_logprobs is None:
        return None
    probabilities = np.exp(result.leaf_logprobs).tolist()
    if isinstance(args.constraint, TokenTreePayload):  # which is in another order
        names = [leaf.name for leaf in args.constraint.leaves()]
        of_name = dict(zip(names, probabilities, strict=True))
        probabilities = [of_name[text] for text in choices.texts]
    return dict(zip(choices.keys, probabilities, strict=True))


def _all_sampling(sampling: Sampling | None, given: Mapping[str, Any]) -> Sampling | None:
    """Return all settings of the sampling; None if a stream's configuration has them all."""
    plain = {name: given[name] for name in PLAIN_SAMPLING if name in given}
    named = {name: given[name] for name in ("min_p", "seed") if name in given}
    if sampling is None:
        return Sampling(**plain, **named) if named else None
    twice = [*named, *(name for name, value in plain.items() if value != PLAIN_SAMPLING[name])]
    if twice:
        raise InvalidArgumentError(
            f"{twice[0]} is given twice: set it in sampling, or leave sampling out"
        )
    return sampling


def _check_ranges(more: Mapping[str, Any]) -> None:
    """Check the settings that a stream is opened with."""
    for name, least, most in (
        ("temperature", 0, math.inf),
        ("top_p", 0, 1),
        ("repeat_penalty", -math.inf, math.inf),
    ):
        if name in more:
            check_number(name, more[name], least, most)
    if "top_k" in more:
        check_whole("top_k", more["top_k"])


def _check_speculates(session: Session) -> None:
    library = session.binding.library
    if not library.probe(f"{PREFIX}llm_mtp_supported"):
        raise NotSupportedError(
            f"{library.path} has no speculative decoding: leave speculation out"
        )


def _check_text_choices(session: Session, choices: LabelSet[Any], mode: str, scored: bool) -> None:
    if not session.binding.supports("set_text_choices"):
        raise NotSupportedError(f"{session.binding.library.path} has no choices by text")
    if mode == "best" or scored:
        asked = 'mode="best"' if mode == "best" else "probabilities"
        raise InvalidArgumentError(
            f'{asked} needs one way to spell each choice: use tokenization="own"'
        )
    for i, text in enumerate(choices.texts):
        if "\0" in text:
            raise InvalidArgumentError(
                f'labels[{i}] has a NUL character, which tokenization="any" cannot spell'
            )
