"""Requests: what Model's methods are asked to do, checked and tokenized.

A request is frozen. A :class:`~.run.Run` executes it on a stream of the library.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

import numpy as np

from ..chat.prompt import Prompt, split_trailing_spaces
from ..chat.template import Messages
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
    check_several,
    check_text,
    check_whole,
    did_you_mean,
    naming,
    wrong,
)
from ..choices.label_set import LabelSet
from ..choices.token_tree import TokenTreePayload
from ..errors import InvalidArgumentError, ModelNotFoundError, NotSupportedError
from ..library.abi import PREFIX
from ..library.cffi_values import CONFIG_CHECKS, token_array
from ..library.protocol import (
    STOP_AT_LEAF,
    TRIE_ARGMAX,
    TRIE_BEST_LEAF,
    TRIE_SAMPLE,
    PreparedChoices,
    StreamConfig,
    Tokens,
)
from ..sampling.params import MAX_SEED, Sampling
from ..structured.masks import Masks
from ..structured.placed_span import Script
from ..structured.sampler_plan import SpanSamplerPlan, SpanSampling
from ..structured.shape import Gbnf, Shape, is_shape, shape_of
from ..structured.skeleton import Skeleton
from .options import (
    AnyPrompt,
    CacheOptions,
    ChoiceSettings,
    FillOptions,
    OnLimit,
    Speculation,
    StreamSettings,
    TextSettings,
)

if TYPE_CHECKING:
    from .session import Session

MAX_LOGPROBS = 1024

NONE = type(None)

USUAL_PLAN = SpanSamplerPlan()


@dataclass(frozen=True)
class TextChoices:
    """Labels that may be written with any tokens that spell them, as under a grammar."""

    texts: tuple[str, ...]  # the labels

    def __post_init__(self) -> None:
        object.__setattr__(self, "texts", check_each("texts", self.texts, str, "a string"))


class Fillable(Protocol):
    """A skeleton, or an object whose next span may depend on the spans filled so far."""

    @property
    def n_spans(self) -> int:
        """The largest possible number of spans."""

    def script(self) -> Script:
        """Return a generator of the spans, in order."""

    def parse(self, text: str) -> Any:
        """Return the value of an answer; raise InvalidArgumentError if it is not JSON."""


Constraint: TypeAlias = "PreparedChoices | TokenTreePayload | TextChoices | Masks | Fillable"
"""What an answer may be: a label of a set, what token masks allow, or a filled skeleton."""


def _check_constraint(name: str, value: Any) -> Constraint:
    if isinstance(value, PreparedChoices | TokenTreePayload | TextChoices):
        return value
    is_skeleton = hasattr(value, "script") and hasattr(value, "n_spans")
    has_masks = hasattr(value, "start") and hasattr(value, "n_words")
    if isinstance(value, type) or not (is_skeleton or has_masks):
        expected = "labels, a skeleton, or masks with n_words and start() like structured.Masks"
        raise wrong(name, expected, value)
    found: Constraint = value
    return found


USUAL: dict[Any, type[Any]] = {
    check_whole: int,
    check_text: NONE,
    check_flag: bool,
    check_number: float,
}

REQUEST_FIELDS: FieldChecks = {
    **{name: (USUAL[check], check) for name, check in CONFIG_CHECKS.items()},
    "choice_mode": (int, check_whole),
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
    "logprobs": (NONE, partial(check_whole, least=0, most=MAX_LOGPROBS)),
    "on_refused_choices": (NONE, partial(check_one_of, allowed=("raise", "grammar"))),
    "on_text": (NONE, check_callable),
}
"""The checks of the fields, for :func:`~eliza_ffi.checks.check_fields`."""


@dataclass(frozen=True, eq=False)
class Request(StreamConfig):
    """A prompt, the configuration of the stream that continues it, and what to write."""

    prompt_tokens: Tokens = ()
    # All sampling settings in one object. They replace the configuration's settings.
    sampling: Sampling | None = None
    # Labels: the text begins with a label. Masks: before each token, a mask says which tokens are
    # allowed.
    constraint: Constraint | None = None
    # How the label is chosen: ``TRIE_ARGMAX``, ``TRIE_SAMPLE`` or ``TRIE_BEST_LEAF``, or-ed with
    # ``STOP_AT_LEAF`` to end the generation after the label.
    choice_mode: int = TRIE_ARGMAX
    # Spaces before the label that have no tokens in the prompt. Results leave them out.
    lead: str = ""
    # Whether to compute the probability of every label before the choice.
    score_choices: bool = False
    # Strings that end the generation. The stop string and all text after it are left out.
    stop: tuple[str, ...] = ()
    # How the model writes reasoning. The results then separate it from the text, and `stop` has no
    # effect on it. None = the text includes the reasoning.
    reasoning: WrittenReasoning | None = None
    # If this is a number n, compute the log-probability of every generated token, and of the n most
    # probable tokens at the same position.
    logprobs: int | None = None
    # Whether the prompt's last token and the beginning of the answer may merge into other tokens
    # (token healing). Only for TextChoices, skeletons, and masks whose answers begin with a choice.
    heal_prompt: bool = False
    # For skeletons: the sampling settings of single spans. With None, choices, numbers and booleans
    # also use the settings of the request.
    sampler_plan: SpanSamplerPlan | None = USUAL_PLAN
    # What to do if a structured answer does not end within `max_tokens`. ``"error"``: raise an
    # error. ``"close"``: end it in a short valid way; in a skeleton, end the free values, and still
    # write the fixed text and the choices that follow.
    on_limit: str = "error"
    # What to do if the library rejects the labels: raise TokenTrieError, or log a warning and
    # continue with the grammar alone (``"grammar"``).
    on_refused_choices: str = "raise"
    on_text: Callable[[str], Any] | None = None  # called with each piece of text

    def __post_init__(self) -> None:
        check_fields(self, REQUEST_FIELDS)
        if self.gbnf_grammar is not None and self.masks is not None:
            raise InvalidArgumentError("pass either token masks or a grammar, got both")
        if self.stop and not all(isinstance(text, str) and text for text in self.stop):
            raise InvalidArgumentError(f"stop must be non-empty strings, got {self.stop!r:.80}")
        if self.max_tokens < 0:
            raise InvalidArgumentError(f"max_tokens must be 0 or more, got {self.max_tokens}")
        if self.on_limit is not Request.on_limit:  # the default needs no check
            check_one_of("on_limit", self.on_limit, ON_LIMIT)
        skeleton: Any = self.constraint
        if hasattr(skeleton, "script"):
            if self.sampler_plan is not None:
                check_kind("sampler_plan", self.sampler_plan, SpanSamplerPlan, "a SpanSamplerPlan")
                self.sampler_plan.check(skeleton.n_spans)
            _ = self.span_sampling  # checks the settings

    @property
    def masks(self) -> Masks | None:
        """The constraint if it is token masks, otherwise None."""
        given: Any = self.constraint
        return given if hasattr(given, "n_words") else None

    @property
    def span_sampling(self) -> SpanSampling:
        """The sampling settings of the free spans of a skeleton."""
        given = self.sampling or self
        return SpanSampling(given.temperature, given.top_k, given.top_p)


ON_LIMIT = ("error", "close")
"""What to do with an answer that does not end within `max_tokens`: raise an error or close it."""

PROMPT = "a string, a Prompt, token ids or a list of messages"
"""The kinds of prompts, for error messages."""

MODES = {"greedy": TRIE_ARGMAX, "sample": TRIE_SAMPLE, "best": TRIE_BEST_LEAF}


def check_keywords(
    method: str, given: Mapping[str, Any], known: Set[str], own: Set[str] = frozenset()
) -> None:
    """Raise TypeError for an unknown keyword argument, and suggest the most similar known one.

    `own` are the method's own parameters; the suggestion may name one of them, too.
    """
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known | own)
            raise TypeError(f"{method}() has no keyword {name!r}" + (f"; {hint}" if hint else ""))


def check_prompts(prompts: Any, one: str, name: str = "prompts") -> Iterable[Any]:
    """Check that prompts are a list or another iterable, and not a single string.

    `one` is the method for one prompt, for the message.
    """
    return check_several(name, prompts, f"a list of {name}", f"for one {name[:-1]} use {one}()")


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
        if not os.path.lexists(path):
            raise ModelNotFoundError(f"no such file: {path}; expected a LoRA adapter")
        if not math.isfinite(scale):
            raise InvalidArgumentError(
                f"the scale of LoRA adapter {path!r} must be a finite number, got {scale}"
            )
        listed.append({"path": path, "scale": scale})
    return json.dumps(listed) if listed else None


def prompt_tokens(session: Session, prompt: AnyPrompt, *, close_reasoning: bool = False) -> Tokens:
    """Return the tokens of a prompt of any kind. A prompt must have at least one token.

    `close_reasoning` is as in :meth:`~eliza_ffi.chat.ChatTokenizer.tokens`, for a conversation.
    """
    tokens: Tokens
    if isinstance(prompt, str | Prompt):
        tokens = session.prompt_tokens(prompt)
    elif _is_conversation(prompt):
        conversation = cast(Messages, prompt)
        tokens = session.chat().tokens(conversation, close_reasoning=close_reasoning)
    else:
        tokens = token_array(checked_tokens(prompt))
    if not len(tokens):
        raise InvalidArgumentError("the prompt is empty: it must have at least one token")
    return tokens


def continued_by(
    session: Session, labels: LabelSet[Any], prompt: AnyPrompt
) -> tuple[PreparedChoices, AnyPrompt, str]:
    """Return the tokens of labels after a prompt, the prompt before them, and the labels' lead.

    A conversation becomes tokens, and a label follows it without reasoning. A label continues a
    prompt with the tokens that the whole text would have. Spaces at the end of
    the prompt therefore become the lead, a part of each label. A tokenizer that cannot write a
    space before one of the labels leaves them in the prompt, and so do prompts of tokens.
    """
    shorter, lead = split_spaces(session, prompt)
    if lead:
        try:
            return session.choices.tokens_of(labels, lead), shorter, lead
        except InvalidArgumentError:
            shorter = prompt_tokens(session, prompt, close_reasoning=True)
    return session.choices.tokens_of(labels), shorter, ""


def split_spaces(session: Session, prompt: AnyPrompt) -> tuple[AnyPrompt, str]:
    """Return a prompt without the spaces at its end, and these spaces.

    A conversation becomes tokens without reasoning before the answer, and the spaces are those at
    the end of the chat template.
    """
    if isinstance(prompt, str | Prompt):
        return split_trailing_spaces(prompt)
    if _is_conversation(prompt):
        return session.chat().split(cast(Messages, prompt), close_reasoning=True)
    return prompt, ""


def checked_tokens(prompt: Any) -> Tokens:
    """Check that a prompt may be a list of token ids; the error names all kinds of prompts."""
    is_sequence = isinstance(prompt, Sequence) and not isinstance(prompt, str | bytes)
    if not (is_sequence or (hasattr(prompt, "__array__") and np.ndim(prompt) == 1)):
        hint = "a conversation is a list of messages" if isinstance(prompt, Mapping) else ""
        raise wrong("prompt", PROMPT, prompt, hint)
    first = prompt[0] if isinstance(prompt, Sequence) and len(prompt) else 0
    if isinstance(first, str | Prompt):
        hint = "for several prompts use the method whose name ends in _many"
        raise wrong("prompt", PROMPT, prompt, hint)
    tokens: Tokens = prompt
    return tokens


def _is_conversation(prompt: Any) -> bool:
    return isinstance(prompt, Sequence) and len(prompt) > 0 and isinstance(prompt[0], Mapping)


def checked_cache(cache: CacheOptions) -> CacheOptions:
    """Check that an argument is a CacheOptions."""
    return check_kind("cache", cache, CacheOptions, "a CacheOptions or None")


def generate_request(
    session: Session,
    prompt: AnyPrompt,
    /,
    *,
    method: str = "generate",
    schema: Any = None,
    speculation: Speculation | None = None,
    stop: str | Sequence[str] | None = None,
    **given: Any,
) -> Request:
    """Return the request of :meth:`Model.generate <eliza_ffi.model.Model.generate>`."""
    check_keywords(method, given, STREAM_KEYWORDS if method == "stream" else TEXT_KEYWORDS)
    if speculation is not None:
        check_kind("speculation", speculation, Speculation, "a Speculation or None")
        library = session.binding.library
        if not library.probe(f"{PREFIX}llm_mtp_supported"):
            raise NotSupportedError(
                f"{library.path} has no speculative decoding: leave speculation out"
            )
        given.update(speculation.settings())
    if isinstance(schema, Gbnf):
        given["gbnf_grammar"] = schema.grammar
    elif schema is not None:
        with naming("schema"):
            given["constraint"] = _masks_of(session, schema)
    is_constrained = schema is not None
    return _request(session, prompt, is_constrained, stop=_stop_texts(stop), **given)


def _request(
    session: Session,
    prompt: AnyPrompt,
    is_constrained: bool,
    /,
    *,
    sampling: Sampling | None = None,
    cache: CacheOptions | None = None,
    **given: Any,
) -> Request:
    """Return a request. A constrained answer to a conversation follows without reasoning."""
    if cache is not None:
        given.update(checked_cache(cache).settings())
    sampling = _all_sampling(sampling, given)
    disable_thinking = sampling is not None and sampling.disable_thinking
    closes = is_constrained or disable_thinking
    return Request(
        prompt_tokens=prompt_tokens(session, prompt, close_reasoning=closes),
        n_gpu_layers=session.n_gpu_layers,
        sampling=sampling,
        disable_thinking=disable_thinking,
        **given,
    )


def _masks_of(session: Session, schema: Any) -> Masks:
    if hasattr(schema, "start") and hasattr(schema, "n_words") and not isinstance(schema, type):
        masks: Masks = schema
        return masks
    if not is_shape(schema):
        is_skeleton = hasattr(schema, "script") or (
            isinstance(schema, Mapping) and "spans" in schema
        )
        hint = "for a skeleton use fill()" if is_skeleton else ""
        raise wrong("schema", SCHEMAS, schema, hint)
    return shape_of(schema).masks(session.guidance())


SCHEMAS = "a JSON Schema as a mapping, a class, a Regex, a Lark, a Gbnf or masks"
"""The kinds of schemas for generated text, for error messages."""


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
) -> Request:
    """Return the request of :meth:`Model.choose <eliza_ffi.model.Model.choose>`."""
    if mode is not None:
        check_one_of("mode", mode, MODES)
    check_one_of("tokenization", tokenization, ("canonical", "any"))
    probabilities = check_flag("probabilities", probabilities)
    heal_prompt = check_flag("heal_prompt", heal_prompt)
    trie_modes = session.binding.trie_modes
    if not trie_modes & STOP_AT_LEAF:
        raise NotSupportedError(f"{session.binding.library.path} has no token-trie sampler")
    check_keywords(method, more, CHOICE_KEYWORDS)
    if heal_prompt and tokenization != "any":
        raise InvalidArgumentError('heal_prompt=True needs tokenization="any"')
    if more.get("sampling") is None:
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
        mode = _mode_of_spellings(labels, mode, more.get("max_tokens", 0), heal_prompt)
    else:
        constraint, prompt, lead = continued_by(session, labels, prompt)
    if mode is None:
        mode = "best" if trie_modes & (1 << TRIE_BEST_LEAF) else "greedy"
    request = _request(
        session,
        prompt,
        True,
        constraint=constraint,
        lead=lead,
        choice_mode=MODES[mode] | STOP_AT_LEAF,
        heal_prompt=heal_prompt,
        score_choices=probabilities,
        **more,
    )
    given = request.temperature
    if mode != "sample" and given not in (0, 1):
        raise InvalidArgumentError(
            f'temperature={given} needs mode="sample", because other modes do not sample'
        )
    return request


def searches_spellings(request: Request) -> bool:
    """Return whether the request compares labels by the sum over all their spellings."""
    is_best = request.choice_mode & ~STOP_AT_LEAF == TRIE_BEST_LEAF
    return is_best and isinstance(request.constraint, TextChoices)


def _mode_of_spellings(
    labels: LabelSet[Any], mode: str | None, max_tokens: int, heal_prompt: bool
) -> str:
    """Return the mode of a choice among labels that any tokens may spell."""
    needs_tokens = [n for n, v in (("heal_prompt", heal_prompt), ("max_tokens", max_tokens)) if v]
    if mode == "best" and needs_tokens:
        raise InvalidArgumentError(
            f'mode="best" with tokenization="any" sums over all spellings of a label: leave '
            f"{needs_tokens[0]} out, or use another mode"
        )
    if mode is None:
        mode = "greedy" if needs_tokens else "best"
    check_any_tokenization(labels)
    return mode


MAX_TOKENS = 1024
"""The default of `max_tokens` for structured answers."""


def fill_request(
    session: Session,
    prompt: AnyPrompt,
    schema: Any,
    /,
    *,
    sampler_plan: SpanSamplerPlan | Mapping[str, Any] | None = None,
    max_tokens: int = MAX_TOKENS,
    on_limit: OnLimit = "error",
    retries: int = 0,
    logprobs: bool = False,
    heal_prompt: bool = False,
    method: str = "fill",
    **more: Any,
) -> Request:
    """Return the request of :meth:`Model.fill <eliza_ffi.model.Model.fill>` for a skeleton."""
    check_keywords(method, more, FILL_KEYWORDS, FILL_OWN)
    if isinstance(schema, Mapping) and schema:
        schema = Skeleton.from_dict(schema)
    if not hasattr(schema, "script"):
        raise wrong("schema", FILLABLE, schema, _hint_for_schema(schema))
    if sampler_plan is None:
        sampler_plan = SpanSamplerPlan()
    elif not isinstance(sampler_plan, SpanSamplerPlan):
        sampler_plan = SpanSamplerPlan.from_dict(sampler_plan)
    if check_whole("retries", retries, 0):
        raise InvalidArgumentError(
            f"retries must be 0 for a skeleton, whose answers are always valid, got {retries}"
        )
    return _request(
        session,
        prompt,
        True,
        constraint=schema,
        sampler_plan=sampler_plan,
        max_tokens=check_whole("max_tokens", max_tokens, 0),
        on_limit=on_limit,
        logprobs=0 if check_flag("logprobs", logprobs) else None,
        heal_prompt=heal_prompt,
        **more,
    )


FILLABLE = (
    "a Skeleton or its JSON form, a non-empty JSON Schema as a mapping, a class, a Regex or a Lark"
)
"""The kinds of arguments that `fill` takes, for error messages."""


def _hint_for_schema(given: Any) -> str:
    """Return the next step for an argument that `fill` does not take, or an empty string."""
    if isinstance(given, Gbnf):
        return "for a GBNF grammar use generate(prompt, schema=...)"
    if isinstance(given, list | tuple):
        return "for a list of labels use choose()"
    if isinstance(given, str) and given.lstrip().startswith("{"):
        return "read JSON text with json.loads() first"
    return ""


RETRY_TEMPERATURE = 0.7
"""The temperature of retries, unless the request has its own temperature."""

RETRY_SEED = 1_000_003
"""The seed from which the seeds of retries are computed, unless the request has its own seed."""


def sampled_again(args: Request, n_left: int) -> Request:
    """Return the request of the next try, which samples, with a seed for the retries left.

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
) -> tuple[Request, Shape[Any], int]:
    """Return the request of :meth:`Model.fill <eliza_ffi.model.Model.fill>` for a schema.

    With it, return how to read the answer, and how many times to try again if it is not valid.
    """
    check_keywords(method, more, FILL_KEYWORDS, FILL_OWN)
    retries = check_whole("retries", retries, 0)
    if retries and method == "fill_stream":
        raise InvalidArgumentError(
            "fill_stream has no retries, because it has already yielded the fields: use fill"
        )
    more.setdefault("max_tokens", MAX_TOKENS)
    for name in ("sampler_plan", "logprobs"):
        if more.pop(name, None) not in (None, False):
            raise InvalidArgumentError(f"{name} is for skeletons only, and this schema is none")
    with naming("schema"):
        shape = shape_of(given)
        more["constraint"] = shape.masks(session.guidance())
    return _request(session, prompt, True, on_limit=on_limit, **more), shape, retries


PLAIN_SAMPLING: Mapping[str, Any] = {
    "temperature": 0.0,
    "top_p": 1.0,
    "top_k": 0,
    "repeat_penalty": 1.0,
}
"""The sampling settings of a stream's configuration, with the values that switch them off."""

RANGES = {"temperature": (0, math.inf), "top_p": (0, 1), "min_p": (0, 1)}
"""The ranges of sampling settings that are numbers."""

STREAM_KEYWORDS = frozenset((*StreamSettings.__annotations__, "max_tokens"))
TEXT_KEYWORDS = STREAM_KEYWORDS.union(TextSettings.__annotations__)
CHOICE_KEYWORDS = frozenset(ChoiceSettings.__annotations__)
FILL_KEYWORDS = frozenset(FillOptions.__annotations__)
FILL_OWN = frozenset(("schema",))


def _all_sampling(sampling: Sampling | None, given: dict[str, Any]) -> Sampling | None:
    """Return all sampling settings; None if the stream's configuration can express them.

    Removes the settings from `given` that the configuration cannot express.
    """
    for name, (least, most) in RANGES.items():
        if name in given:
            given[name] = check_number(name, given[name], least, most)
    if "top_k" in given:
        given["top_k"] = check_whole("top_k", given["top_k"])
    min_p, seed = given.pop("min_p", 0), given.pop("seed", None)
    named = {"min_p": min_p} if min_p else {}
    if seed is not None:
        named["seed"] = seed
    if sampling is None and not named:
        return None
    plain = {name: given[name] for name in PLAIN_SAMPLING if name in given}
    if sampling is None:
        return Sampling(**plain, **named)
    check_kind("sampling", sampling, Sampling, "a Sampling or None")
    twice = [*named, *(name for name, value in plain.items() if value != PLAIN_SAMPLING[name])]
    if twice:
        raise InvalidArgumentError(
            f"{twice[0]} is given twice: set it in sampling or as an argument, not in both"
        )
    return sampling


def check_any_tokenization(labels: LabelSet[Any]) -> None:
    """Check that any tokens may spell these labels."""
    for i, text in enumerate(labels.texts):
        if "\0" in text:
            raise InvalidArgumentError(
                f'labels[{i}] must not have NUL characters with tokenization="any"'
            )
