"""Convert the arguments of Model's methods to requests, and the results of runs to public results.

A request is a checked description of the work. A run executes it on a stream of the library.
"""

from __future__ import annotations

import builtins
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from ..chat.prompt import Prompt, split_trailing_spaces
from ..chat.template import Messages
from ..checks import (
    check_flag,
    check_kind,
    check_number,
    check_one_of,
    check_several,
    check_whole,
    did_you_mean,
    naming,
    short_repr,
    wrong,
)
from ..choices.label_set import ANCHOR, ChoiceResult, LabelSet
from ..choices.prepared_labels import ChoiceTokens
from ..choices.token_tree import TokenTreePayload
from ..errors import (
    ContextFullError,
    InvalidArgumentError,
    NativeFaultError,
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
from ..sampling.params import MAX_SEED, Sampling
from ..structured.masks import Masks
from ..structured.shape import Gbnf, Shape, is_shape, shape_of
from ..structured.skeleton import Skeleton, SpanSamplerPlan
from .filling import ON_LIMIT, FillRequest
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

PROMPT = "a string, a Prompt, token ids or a list of messages"
"""The kinds of prompts, for error messages."""

MODES = {"greedy": TRIE_ARGMAX, "sample": TRIE_SAMPLE, "best": TRIE_BEST_LEAF}


@dataclass(frozen=True)
class TokenLogprob:
    """A generated token and its log-probability.

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


def check_keywords(
    method: str, given: Mapping[str, Any], known: Set[str], own: Set[str] = frozenset()
) -> None:
    """Raise TypeError for an unknown keyword argument, and suggest the most similar known one.

    `own` are the method's own parameters; the suggestion may name one of them, too.
    """
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known | own)
            if "shape" in own and name in SHAPE_WORDS:
                hint = "pass it as the second argument, shape"
            raise TypeError(f"{method}() has no keyword {name!r}" + (f"; {hint}" if hint else ""))


def check_prompts(prompts: Any, one: str, name: str = "prompts") -> None:
    """Check that prompts are a list or another iterable, and not a single string.

    `one` is the method for one prompt, for the message.
    """
    check_several(name, prompts, f"a list of {name}", f"for one {name[:-1]} use {one}()")


def lora_option(adapters: Iterable[tuple[str | os.PathLike[str], float]]) -> str | None:
    """Return LoRA adapters in the form of the library's option; None if there are none."""
    listed = []
    for adapter in check_several("lora", adapters, "a list of pairs of a file and a scale"):
        try:
            file, scale = adapter
            path, scale = os.fsdecode(file), float(scale)
            path.encode()  # JSON needs UTF-8
        except (OverflowError, TypeError, ValueError):
            raise InvalidArgumentError(
                f"every item of lora must be a pair of a file and a scale, got {adapter!r}"
            ) from None
        if not math.isfinite(scale):
            raise InvalidArgumentError(
                f"the scale of LoRA adapter {path!r} must be a finite number, got {scale}"
            )
        listed.append({"path": path, "scale": scale})
    return json.dumps(listed) if listed else None


def prompt_tokens(session: Session, prompt: AnyPrompt, **variables: Any) -> Tokens:
    """Return the tokens of a prompt of any kind. A prompt must have at least one token.

    `variables` are variables of the chat template, for a conversation.
    """
    if isinstance(prompt, str | Prompt):
        tokens: Tokens = session.prompt_tokens(prompt)
    elif _is_conversation(prompt):
        tokens = session.chat().tokens(cast(Messages, prompt), **variables)
    else:
        tokens = checked_tokens(prompt)
    found = token_array(tokens)
    if len(found) == 0:
        raise InvalidArgumentError("the prompt is empty: it must have at least one token")
    return found


def continued_by(
    session: Session, labels: LabelSet[Any], prompt: AnyPrompt, **variables: Any
) -> tuple[ChoiceTokens, AnyPrompt, str]:
    """Return the tokens of labels after a prompt, the prompt before them, and the labels' lead.

    `variables` are variables of the chat template. With them, a conversation becomes tokens.

    A label continues a prompt with the tokens that the whole text would have. Spaces at the end of
    the prompt therefore become the lead, a part of each label. A tokenizer that cannot write a
    space before one of the labels leaves them in the prompt, and so do prompts of tokens.
    """
    shorter, lead = split_spaces(session, prompt, **variables)
    if lead:
        try:
            return session.choices.tokens_of(labels, lead), shorter, lead
        except InvalidArgumentError:
            shorter = prompt_tokens(session, prompt, **variables)
    return session.choices.tokens_of(labels), shorter, ""


def split_spaces(session: Session, prompt: AnyPrompt, **variables: Any) -> tuple[AnyPrompt, str]:
    """Return a prompt without the spaces at its end, and these spaces.

    A conversation becomes tokens, and the spaces are those at the end of the chat template.
    """
    if isinstance(prompt, str | Prompt):
        return split_trailing_spaces(prompt)
    if _is_conversation(prompt):
        return session.chat().split(cast(Messages, prompt), **variables)
    return prompt, ""


def checked_tokens(prompt: Any) -> Tokens:
    """Check that a prompt may be a list of token ids; the error names all kinds of prompts."""
    if not _is_listed(prompt):
        hint = "a conversation is a list of messages" if isinstance(prompt, Mapping) else ""
        raise wrong("prompt", PROMPT, prompt, hint)
    first = prompt[0] if isinstance(prompt, Sequence) and len(prompt) else 0
    if isinstance(first, str | Prompt):
        hint = "for several prompts use the method whose name ends in _many"
        raise wrong("prompt", PROMPT, prompt, hint)
    tokens: Tokens = prompt
    return tokens


def _is_conversation(prompt: Any) -> bool:
    return _is_listed(prompt) and len(prompt) > 0 and isinstance(prompt[0], Mapping)


def _is_listed(value: Any) -> bool:
    is_sequence = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    return is_sequence or (hasattr(value, "__array__") and np.ndim(value) == 1)


def checked_cache(cache: CacheOptions | None) -> CacheOptions | None:
    """Check that an argument is a CacheOptions or None."""
    if cache is not None:
        check_kind("cache", cache, CacheOptions, "a CacheOptions or None")
    return cache


def generate_request(
    session: Session,
    prompt: AnyPrompt,
    /,
    *,
    method: str = "generate",
    shape: Any = None,
    speculation: Speculation | None = None,
    stop: str | Sequence[str] | None = None,
    **given: Any,
) -> GenerationRequest:
    """Return the request of :meth:`Model.generate <eliza_ffi.model.Model.generate>`."""
    check_keywords(method, given, TEXT_KEYWORDS)
    if speculation is not None:
        check_kind("speculation", speculation, Speculation, "a Speculation or None")
        library = session.binding.library
        if not library.probe(f"{PREFIX}llm_mtp_supported"):
            raise NotSupportedError(
                f"{library.path} has no speculative decoding: leave speculation out"
            )
        given.update(speculation.settings())
    if isinstance(shape, Gbnf):
        given["grammar"] = shape.grammar
    elif shape is not None:
        with naming("shape"):
            given["constraint"] = _masks_of(session, shape)
    return _request(session, prompt, stop=_stop_texts(stop), **given)


def _request(
    session: Session,
    prompt: AnyPrompt,
    /,
    *,
    sampling: Sampling | None = None,
    cache: CacheOptions | None = None,
    min_p: float = 0.0,
    seed: int | None = None,
    **more: Any,
) -> GenerationRequest:
    _ = session.ctx  # raises if the model is closed or belongs to the parent process
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
        n_gpu_layers=session.n_gpu_layers,
        sampling=sampling,
        disable_thinking=sampling is not None and sampling.disable_thinking,
        **more,
    )


def _masks_of(session: Session, shape: Any) -> Masks:
    if hasattr(shape, "start") and hasattr(shape, "n_words") and not isinstance(shape, type):
        masks: Masks = shape
        return masks
    if not is_shape(shape):
        is_skeleton = hasattr(shape, "script") or (isinstance(shape, Mapping) and "spans" in shape)
        hint = "for a skeleton use fill()" if is_skeleton else ""
        raise wrong("shape", SHAPE, shape, hint)
    return shape_of(shape).masks(session.guidance())


SHAPE = "a JSON Schema as a mapping, a class, a Regex, a Lark, a Gbnf or masks"
"""The kinds of shapes for generated text, for error messages."""


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
    /,
    *,
    mode: str | None = None,
    temperature: float = 1.0,
    probabilities: bool = False,
    tokenization: str = "canonical",
    heal_prompt: bool = False,
    method: str = "choose",
    **more: Any,
) -> GenerationRequest:
    """Return the request of :meth:`Model.choose <eliza_ffi.model.Model.choose>`."""
    if mode is not None:
        check_one_of("mode", mode, MODES)
    check_one_of("tokenization", tokenization, ("canonical", "any"))
    check_flag("probabilities", probabilities)
    check_flag("heal_prompt", heal_prompt)
    trie_modes = session.binding.trie_modes()
    if not trie_modes & STOP_AT_LEAF:
        raise NotSupportedError(f"{session.binding.library.path} has no token-trie sampler")
    check_keywords(method, more, CHOICE_KEYWORDS)
    if heal_prompt and tokenization != "any":
        raise InvalidArgumentError('heal_prompt=True needs tokenization="any"')
    if more.get("sampling") is None:
        check_number("temperature", temperature, 0)
        if mode != "sample" and temperature not in (0, 1):
            raise InvalidArgumentError(
                f'temperature={temperature} needs mode="sample", because other modes do not sample'
            )
        more["temperature"] = temperature
    _ = session.ctx  # raises if the model is closed or belongs to the parent process
    constraint: Constraint
    lead = ""
    if tokenization == "any":
        if probabilities:
            raise InvalidArgumentError(
                'probabilities must be False with tokenization="any"; use rank for several labels'
            )
        if not heal_prompt:
            prompt, lead = split_spaces(session, prompt)
        constraint = TextChoices(tuple(lead + text for text in labels.texts))
        mode = _mode_of_spellings(session, labels, mode, more.get("max_tokens", 0), heal_prompt)
    else:
        constraint, prompt, lead = continued_by(session, labels, prompt)
    if mode is None:
        mode = "best" if trie_modes & (1 << TRIE_BEST_LEAF) else "greedy"
    return _request(
        session,
        prompt,
        constraint=constraint,
        lead=lead,
        choice_mode=MODES[mode] | STOP_AT_LEAF,
        heal_prompt=heal_prompt,
        score_choices=probabilities,
        **more,
    )


def searches_spellings(request: GenerationRequest) -> bool:
    """Return whether the request compares labels by the sum over all their spellings."""
    is_best = request.choice_mode & ~STOP_AT_LEAF == TRIE_BEST_LEAF
    return is_best and isinstance(request.constraint, TextChoices)


def _mode_of_spellings(
    session: Session, labels: LabelSet[Any], mode: str | None, max_tokens: int, heal_prompt: bool
) -> str:
    """Return the mode of a choice among labels that any tokens may spell."""
    needs_tokens = [n for n, v in (("heal_prompt", heal_prompt), ("max_tokens", max_tokens)) if v]
    if mode == "best" and needs_tokens:
        raise InvalidArgumentError(
            f'mode="best" with tokenization="any" sums over all spellings of a label: leave '
            f"{needs_tokens[0]} out, or use another mode"
        )
    if mode is None:
        can_search = session.binding.supports("rank_texts") and not needs_tokens
        mode = "best" if can_search else "greedy"
    check_any_tokenization(session, labels, "rank_texts" if mode == "best" else "set_text_choices")
    return mode


MOST_TOKENS = 1024
"""The default of `max_tokens` for structured answers."""


def fill_request(
    session: Session,
    prompt: AnyPrompt,
    shape: Any,
    /,
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
    """Return the request of :meth:`Model.fill <eliza_ffi.model.Model.fill>` for a skeleton."""
    check_keywords(method, more, FILL_KEYWORDS, FILL_OWN)
    if isinstance(shape, Mapping) and shape:
        shape = Skeleton.from_dict(shape)
    if not hasattr(shape, "script"):
        raise wrong("shape", FILLABLE, shape, _hint_for_shape(shape))
    if sampler_plan is None:
        sampler_plan = SpanSamplerPlan()
    elif not isinstance(sampler_plan, SpanSamplerPlan):
        sampler_plan = SpanSamplerPlan.from_dict(sampler_plan)
    if check_whole("retries", retries, 0):
        raise InvalidArgumentError(
            f"retries must be 0 for a skeleton, whose answers are always valid, got {retries}"
        )
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
    """A request for an answer of a shape.

    Attributes
    ----------
    shape : Shape
    generation : GenerationRequest
    retries : int
        How many times to try again if the answer is invalid.
    """

    shape: Shape[Any]
    generation: GenerationRequest
    retries: int = 0

    def again(self) -> ShapeRequest:
        """Return the request of the next try, which samples its tokens."""
        generation = _sampled(self.generation, self.retries)
        return replace(self, generation=generation, retries=self.retries - 1)


FILLABLE = (
    "a Skeleton or its JSON form, a non-empty JSON Schema as a mapping, a class, a Regex or a Lark"
)
"""The kinds of arguments that `fill` takes, for error messages."""


def _hint_for_shape(given: Any) -> str:
    """Return the next step for an argument that `fill` does not take, or an empty string."""
    if isinstance(given, Gbnf):
        return "for a GBNF grammar use generate(prompt, shape=...)"
    if isinstance(given, list | tuple):
        return "for a list of labels use choose()"
    if isinstance(given, str) and given.lstrip().startswith("{"):
        return "read JSON text with json.loads() first"
    return ""


RETRY_TEMPERATURE = 0.7
"""The temperature of retries, unless the request has its own temperature."""

RETRY_SEED = 1_000_003
"""The seed from which the seeds of retries are computed, unless the request has its own seed."""


def _sampled(args: GenerationRequest, n_left: int) -> GenerationRequest:
    """Return a request that samples, with a seed that depends on the retries left.

    So the same request with the same seed has the same retries.
    """
    plain = {name: getattr(args, name) for name in PLAIN_SAMPLING}
    sampling = args.sampling or Sampling(**plain)
    # With the model's own seed, if it has one, the retry would sample the same tokens again.
    seed = (RETRY_SEED if sampling.seed is None else sampling.seed) + n_left
    temperature = sampling.temperature or RETRY_TEMPERATURE
    sampling = replace(sampling, temperature=temperature, seed=seed % (MAX_SEED + 1))
    return replace(args, temperature=temperature, sampling=sampling)


def shape_request(
    session: Session,
    prompt: AnyPrompt,
    given: Any,
    /,
    *,
    on_limit: OnLimit = "error",
    retries: int = 0,
    method: str = "fill",
    **more: Any,
) -> ShapeRequest:
    """Return the request of :meth:`Model.fill <eliza_ffi.model.Model.fill>` for a shape."""
    with naming("shape"):
        shape = shape_of(given)
    check_keywords(method, more, FILL_KEYWORDS, FILL_OWN)
    check_one_of("on_limit", on_limit, ON_LIMIT)
    retries = check_whole("retries", retries, 0)
    if retries and method == "fill_stream":
        raise InvalidArgumentError(
            "fill_stream has no retries, because it has already yielded the fields: use fill"
        )
    more.setdefault("max_tokens", MOST_TOKENS)
    for name in ("sampler_plan", "logprobs"):
        if more.pop(name, None) not in (None, False):
            raise InvalidArgumentError(f"{name} is for skeletons only, and this shape is none")
    with naming("shape"):
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
"""The sampling settings of a stream's configuration, with the values that switch them off."""

TEXT_KEYWORDS = frozenset((*TextSettings.__annotations__, "max_tokens"))
CHOICE_KEYWORDS = frozenset(ChoiceSettings.__annotations__)
FILL_KEYWORDS = frozenset((*FillSettings.__annotations__, "on_span"))
FILL_OWN = frozenset(("shape",))

SHAPE_WORDS = ("skeleton", "schema", "regex", "lark")
"""Keywords that users may try in place of `shape`."""


def generation_of(session: Session, result: RunResult) -> GenerationResult:
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
    return tuple(
        token_logprob(
            session,
            own,
            tuple(token_logprob(session, other) for other in others if other[0] >= 0),
        )
        for own, *others in rows.tolist()
    )


def token_logprob(
    session: Session, entry: tuple[int, float], top: tuple[TokenLogprob, ...] = ()
) -> TokenLogprob:
    """Return a token and its log-probability with the token's text."""
    token, logprob = entry
    if not session.binding.supports("vocabulary"):  # an older library
        # Some tokenizers drop a space at the beginning, so the token is read after an anchor.
        anchor = session.tokenize(ANCHOR)
        text = session.detokenize([*anchor, token], True)
        text = text[len(session.detokenize(anchor, True)) :]
        return TokenLogprob(token, text, logprob, top, text.encode("utf-8", "surrogatepass"))
    vocabulary = session.vocabulary()
    spelled = vocabulary.texts[token]
    added = b"" if token in vocabulary.controls else spelled
    return TokenLogprob(token, spelled.decode("utf-8", "replace"), logprob, top, added)


def choice_of(
    labels: LabelSet[Any],
    args: GenerationRequest,
    result: RunResult,
    seconds: float,
) -> ChoiceResult[Any]:
    """Return the result of a run of a :func:`choice_request`, which took `seconds` seconds.

    Raises
    ------
    ContextFullError
        If the context was full before the label ended.
    InvalidArgumentError
        If the request has no labels, or `max_tokens` ended the generation inside a label.
    NativeFaultError
        If the generated text is not one of the labels.
    """
    if not args.has_choices:
        raise InvalidArgumentError("the request has no labels, so its result is not a choice")
    # Check the finish reason first, because a truncated label may be equal to a shorter label.
    if result.finish_reason == "context_full":
        raise ContextFullError(
            f"the context was full inside a label, after {short_repr(result.text)}: "
            f"shorten the prompt or raise n_ctx"
        )
    if result.finish_reason == "length":
        longest = _longest(args)
        room = "" if longest is None else f", or raise it to {longest}, the longest label's length"
        raise InvalidArgumentError(
            f"max_tokens={args.max_tokens} ended the generation inside a label, after "
            f"{short_repr(result.text)}: leave it at 0{room}"
        )
    index = _chosen(labels, args, result)
    if index is None:
        raise NativeFaultError(
            f"the generated text must be one of the {len(labels.texts)} labels, got "
            f"{short_repr(result.text)} (finish reason {result.finish_reason})"
        )
    stats = result.stats
    logprob = math.nan if result.leaf is None else result.leaf.logprob
    probabilities = _probabilities(labels, args, result)
    return ChoiceResult(
        value=labels.values[index],
        index=index,
        text=labels.texts[index],
        logprob=logprob,
        tokens=result.tokens,
        forward_passes=-1 if stats is None else stats.passes_after_prompt,
        seconds=seconds,
        probabilities=probabilities,
        stats=stats,
        proven=_is_proven(args.choice_mode, index, logprob, probabilities),
    )


def _is_proven(
    mode: int, index: int, logprob: float, probabilities: Mapping[Any, float] | None
) -> bool:
    """Return whether no other label can be more probable than the chosen one."""
    if mode & ~STOP_AT_LEAF == TRIE_BEST_LEAF or logprob >= math.log(0.5):
        return True
    values = [] if probabilities is None else list(probabilities.values())
    return bool(values) and values[index] == max(values)


def _longest(args: GenerationRequest) -> int | None:
    given = args.constraint
    if isinstance(given, PreparedChoices):
        return given.longest
    if isinstance(given, TokenTreePayload):
        return max(len(leaf.tokens) for leaf in given.leaves())
    return None


def _chosen(labels: LabelSet[Any], args: GenerationRequest, result: RunResult) -> int | None:
    """Return the index of the generated label; None if the text is not a label."""
    leaf, given = result.leaf, args.constraint
    if isinstance(given, TokenTreePayload):
        of_tokens = {leaf.tokens: leaf.name for leaf in given.leaves()}
        return labels.place_of(of_tokens.get(result.tokens, ""))
    if leaf is None:  # the library rejected the labels, and a grammar constrained the text instead
        return labels.place_of(result.text.removeprefix(args.lead))
    if isinstance(given, TextChoices):
        return labels.place_of(leaf.name.removeprefix(args.lead))
    return int(leaf.name)


def _probabilities(
    labels: LabelSet[Any], args: GenerationRequest, result: RunResult
) -> Mapping[Any, float] | None:
    if result.leaf_logprobs is None:
        return None
    probabilities = np.exp(result.leaf_logprobs).tolist()
    if isinstance(args.constraint, TokenTreePayload):  # its leaves are sorted by name
        names = [leaf.name for leaf in args.constraint.leaves()]
        of_name = dict(zip(names, probabilities, strict=True))
        probabilities = [of_name[text] for text in labels.texts]
    return dict(zip(labels.keys, probabilities, strict=True))


def _all_sampling(sampling: Sampling | None, given: Mapping[str, Any]) -> Sampling | None:
    """Return all sampling settings; None if the stream's configuration can express them."""
    plain = {name: given[name] for name in PLAIN_SAMPLING if name in given}
    named = {name: given[name] for name in ("min_p", "seed") if name in given}
    if sampling is None:
        return Sampling(**plain, **named) if named else None
    twice = [*named, *(name for name, value in plain.items() if value != PLAIN_SAMPLING[name])]
    if twice:
        raise InvalidArgumentError(
            f"{twice[0]} is given twice: set it in sampling or as an argument, not in both"
        )
    return sampling


def _check_ranges(more: Mapping[str, Any]) -> None:
    """Check the ranges of the sampling settings in a stream's configuration."""
    for name, least, most in (
        ("temperature", 0, math.inf),
        ("top_p", 0, 1),
        ("repeat_penalty", -math.inf, math.inf),
    ):
        if name in more:
            check_number(name, more[name], least, most)
    if "top_k" in more:
        check_whole("top_k", more["top_k"])


def check_any_tokenization(session: Session, labels: LabelSet[Any], call: str) -> None:
    """Check that any tokens may spell these labels, for a method of the library's binding."""
    if not session.binding.supports(call):
        path = session.binding.library.path
        does = "cannot rank labels with" if call == "rank_texts" else "does not support"
        raise NotSupportedError(f'{path} {does} tokenization="any"')
    for i, text in enumerate(labels.texts):
        if "\0" in text:
            raise InvalidArgumentError(
                f'labels[{i}] must not have NUL characters with tokenization="any"'
            )
