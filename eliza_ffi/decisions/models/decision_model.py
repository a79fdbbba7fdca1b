"""Decision models: the prompts of models that are trained to answer questions.

``docs/reference/decision-models.md`` describes the types. This module runs no model:
:meth:`DecisionModel.ask` returns prompts with what to read, the logits of tokens after the prompt
or the rows of tokens in it, and :meth:`QuestionPrompts.probabilities` takes these values.
"""

from __future__ import annotations

import itertools
import math
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..._lazy import lazy_property
from ...chat.template import ChatTemplate
from ...chat.tokens import ChatTokenizer
from ...chat.vocabulary import Detokenize, Tokenize
from ...checks import naming
from ...errors import ChatTemplateError, InvalidArgumentError, ModelError, NotSupportedError
from ..probabilities import tempered
from .gguf_metadata import read_metadata
from .marked_prompts import MASK, SEPARATOR, JointPrompt, MarkedFormat, MarkedPrompt
from .systemone import SystemoneQuestion, json_copy, read_state

ARCHITECTURE = "general.architecture"
TEMPLATE = "tokenizer.chat_template.systemone"
N_RATINGS = 9  # the number of labels of a noul, for types that rate nouls
MAX_LABELS = 255

YES_NO = {"true": ["yes", "Yes", "YES"], "false": ["no", "No", "NO"]}
PAIRS = ["".join(pair) for pair in itertools.product(string.ascii_uppercase, repeat=2)]
CODES = [*string.ascii_uppercase, *PAIRS]
NUMBERS = [
    *(f"{i:02}" for i in range(100)),
    *string.ascii_lowercase,
    *(f"#{i}" for i in range(200)),
]
SUBSTITUTES = [*string.ascii_uppercase, *NUMBERS, *PAIRS]

# Chat templates require messages. A template named systemone ignores them.
NO_CONVERSATION = ({"role": "user", "content": ""},)


@dataclass(frozen=True)
class _Type:
    """Hold the properties of a type of decision models."""

    labels: str = "codes"  # "letters", "codes", "typed" (several spellings, one counts) or "marks"
    true_first: bool = False
    two_orders: bool = False  # of the options of a choice, whose answers are averaged
    rates_nouls: bool = False  # on nine labels, A = no to I = yes
    sorts_keys: bool = False  # of JSON
    shows_all: bool = False  # all questions in every prompt
    takes_none: bool = False  # as input
    is_joint: bool = False  # one prompt asks all questions, with the options sorted by their keys
    # Pairs of a maximum number of options and the name of the temperature for it.
    buckets: tuple[tuple[float, str], ...] = ((2, "2"), (5, "3_5"), (10, "6_10"), (math.inf, "11"))


TYPES = {
    "openjev": _Type("letters", true_first=True),
    "lev": _Type(
        two_orders=True,
        rates_nouls=True,
        sorts_keys=True,
        buckets=((8, "small"), (26, "mid"), (math.inf, "large")),
    ),
    "nimble": _Type(shows_all=True),
    "pplx-decider": _Type(),
    "lfm2-d1": _Type("typed", true_first=True, takes_none=True),
    "kev": _Type("marks"),
    "laya": _Type("marks"),
    "lfm2-d1-omni": _Type("marks", takes_none=True),
    "clef": _Type("marks", true_first=True, sorts_keys=True, is_joint=True),
}

UNSUPPORTED = {"vllm-d3": "is newer than the llama.cpp of this version"}
"""Types that cannot be read, with the reason."""


class OptionLabel(NamedTuple):
    """The label of an option, and the tokens of its spellings. The highest logit counts."""

    text: str
    tokens: tuple[int, ...]


TokensOf: TypeAlias = Callable[[str], list[int]]
"""Tokenizes plain text that continues other text."""


@dataclass(frozen=True)
class DecisionPrompt:
    """Hold the tokens of a question's whole prompt, and the tokens of each answer's label, in the
    order shown. A label's score is the highest logit of its tokens."""

    tokens: tuple[int, ...]
    labels: tuple[tuple[int, ...], ...]

    @lazy_property
    def read(self) -> tuple[int, ...]:
        """The tokens whose logits after the prompt are needed, without duplicates."""
        return tuple(dict.fromkeys(itertools.chain.from_iterable(self.labels)))

    def scores(self, logits: Sequence[float]) -> list[float]:
        """Return the score of each answer, from the logits of `read` or their log-softmax."""
        by_token = {token: float(logit) for token, logit in zip(self.read, logits, strict=True)}
        return [max(by_token[token] for token in tokens) for tokens in self.labels]


@dataclass(frozen=True)
class QuestionPrompts:
    """Hold the prompts of a question, and convert the model's output to probabilities. `order` has,
    for each answer of the first prompt, the index of the option. It is empty for ratings from no to
    yes. A second prompt has the opposite order."""

    question: SystemoneQuestion
    prompts: tuple[DecisionPrompt | MarkedPrompt | JointPrompt, ...]
    temperature: float
    order: tuple[int, ...]

    def probabilities(self, values: Sequence[Any]) -> list[float]:
        """Return the probability of each option, in the question's order. `values` has the model's
        output for each prompt, as the prompt's `read` says: logits or log-probabilities of tokens,
        or rows of positions."""
        scores = [prompt.scores(read) for prompt, read in zip(self.prompts, values, strict=True)]
        try:
            first, *others = np.exp(tempered(scores, self.temperature))
        except InvalidArgumentError:
            raise InvalidArgumentError(
                f"the question {self.question.id!r}: invalid scores {scores!r:.80}"
            ) from None
        answers = np.mean([first, *(p[::-1] for p in others)], axis=0)
        if not self.order:
            true = float(answers @ np.linspace(0.0, 1.0, len(answers)))
            return [true, 1.0 - true]
        in_own_order: list[float] = answers[np.argsort(self.order)].tolist()
        return in_own_order


class DecisionModel:
    """Write prompts in the format of a decision model.

    `type` is the type that the file names, `template` the source of the template named
    ``systemone``. `metadata` has entries of the file: the temperatures by question type
    (``"temperature.choice"``), or by question type and bucket (``"temperature.choice.3_5"``), and
    those that types without labels need.

    Raise NotSupportedError for an unsupported type, and ModelError if labels or marks are missing
    from the vocabulary, or an entry of the metadata is missing or wrong.
    """

    def __init__(
        self,
        type: str,
        template: str,
        metadata: Mapping[str, Any],
        tokenize: Tokenize,
        detokenize: Detokenize,
    ) -> None:
        self.type = type
        self._type = _type_named(type)
        self.temperatures = {
            name.removeprefix("temperature."): _temperature(name, value)
            for name, value in metadata.items()
            if name.startswith("temperature.")
        }
        self.marked: MarkedFormat | None = None
        if self._type.labels == "marks":
            self.marked = MarkedFormat(type, tokenize, detokenize, metadata)
            tokenize, detokenize = self.marked.tokenize, self.marked.detokenize
            template = self.marked.preamble + template
        self._prompts = ChatTokenizer(ChatTemplate(template), tokenize, detokenize)
        self._tokens_of: TokensOf = lambda text: tokenize(text, False, False)
        self._labels: list[OptionLabel] | None = None
        if self._type.labels in ("letters", "codes"):
            self._labels = fixed_labels(self._type.labels, self._tokens_of)
            if self._type.rates_nouls and len(self._labels) < N_RATINGS:
                raise ModelError(
                    f"models of type {type} need {N_RATINGS} labels of one token, but the "
                    f"vocabulary has only {len(self._labels)}"
                )

    @classmethod
    def of(
        cls, facts: Mapping[str, Any], tokenize: Tokenize, detokenize: Detokenize
    ) -> DecisionModel | None:
        """Read a decision model from its file; None for any other model. `facts` is the field
        ``"model"`` of :meth:`Model.describe`. Errors name the file."""
        path, named = facts.get("path"), facts.get("decision_type")
        if not path or not named:
            return None
        if not Path(path).is_file():
            raise ModelError(
                f"the model's file {path} is gone; decisions need its template and temperatures"
            )
        entries = read_metadata(path, _is_wanted)
        prefix = f"{entries.get(ARCHITECTURE)}.decision."
        own = {name.removeprefix(prefix): value for name, value in entries.items()}
        try:
            _type_named(named)  # report an unsupported type before a missing template
            if TEMPLATE not in entries:
                raise ModelError("the file has no template named systemone")
            return cls(named, str(entries[TEMPLATE]), own, tokenize, detokenize)
        except (ChatTemplateError, ModelError, NotSupportedError) as error:
            raise type(error)(f"the decision model {path} cannot be used: {error}") from error

    @property
    def is_joint(self) -> bool:
        """Whether all questions have the same prompt, which is read once."""
        return self._type.is_joint

    @property
    def max_options(self) -> int:
        return MAX_LABELS if self._labels is None else len(self._labels)

    def ask(self, questions: Sequence[SystemoneQuestion], state: Any) -> list[QuestionPrompts]:
        """Write the prompts of questions with different ids about an input, which is any JSON.

        Raise InvalidArgumentError if the input is not JSON or contains images, if a question has
        more options than the model has labels, or if text looks like the template's own control
        tokens.
        """
        if state is None and not self._type.takes_none:
            with naming("input"):
                raise InvalidArgumentError(f"a model of type {self.type} needs an input, got None")
        shared: dict[str, Any] = {"state": self._copy(read_state(state)), "images": []}
        if self._type.shows_all or self.is_joint:
            shared["questions"] = [self._variables(each, self._order(each)) for each in questions]
        if self.is_joint:
            return self._joint_prompts(questions, shared)
        return [self._prompts_of(each, shared) for each in questions]

    def temperature(self, question: SystemoneQuestion) -> float:
        """Return the temperature of a question; 1 if the file has none for it."""
        n = len(question.options)
        bucket = next(name for most, name in self._type.buckets if n <= most)
        by_type = self.temperatures.get(question.type, 1.0)
        return self.temperatures.get(f"{question.type}.{bucket}", by_type)

    def _order(self, question: SystemoneQuestion) -> tuple[int, ...]:
        order = tuple(range(len(question.options)))
        if self.is_joint and question.type == "choice":
            return tuple(sorted(order, key=lambda i: question.options[i][0]))
        return order[::-1] if question.type == "noul" and not self._type.true_first else order

    def _labels_of(self, question: SystemoneQuestion) -> list[OptionLabel]:
        n = len(question.options)
        if n > self.max_options:
            raise InvalidArgumentError(
                f"the question {question.id!r}: expected at most {self.max_options} options for "
                f"a decision model of type {self.type}, got {n}"
            )
        if self.marked is not None:
            return [OptionLabel("", ())] * n
        return typed_labels(self._tokens_of, question) if self._labels is None else self._labels[:n]

    def _prompts_of(
        self, question: SystemoneQuestion, shared: Mapping[str, Any]
    ) -> QuestionPrompts:
        """Return the prompts of a question. `shared` has the variables of all prompts."""
        order = self._order(question)
        orders = [order]
        if self._type.two_orders and question.type == "choice" and len(question.options) > 1:
            orders.append(order[::-1])
        is_rated = self._type.rates_nouls and question.type == "noul"
        labels = (self._labels or [])[:N_RATINGS] if is_rated else self._labels_of(question)
        variables = [{**self._variables(question, each), **shared} for each in orders]
        prompts = tuple(self._prompt(each, question, labels) for each in variables)
        temperature = self.temperature(question)
        return QuestionPrompts(question, prompts, temperature, () if is_rated else order)

    def _variables(self, question: SystemoneQuestion, order: Sequence[int]) -> dict[str, Any]:
        options = []
        for i, label in zip(order, self._labels_of(question), strict=True):
            key, description = map(self._copy, question.options[i])
            option = {"key": key, "description": description}
            if self._type.labels in ("codes", "typed"):  # others are in the template
                option["label"] = label.text
            options.append(dict(sorted(option.items())) if self._type.sorts_keys else option)
        variables = {
            "id": question.id if self.type == "kev" else self._copy(question.id),
            "type": question.type,
            "instructions": self._copy(question.instructions),
            "options": options,
        }
        return dict(sorted(variables.items())) if self._type.sorts_keys else variables

    def _copy(self, value: Any) -> Any:
        if self.marked is not None:
            return self.marked.copy(value)
        return json_copy(value, sort=True) if self._type.sorts_keys else value

    def _prompt(
        self, variables: dict[str, Any], question: SystemoneQuestion, labels: list[OptionLabel]
    ) -> DecisionPrompt | MarkedPrompt:
        with _about(f"the question {question.id!r}"):
            tokens = self._tokens(variables)
            if self.marked is not None:
                return self.marked.prompt(tokens, question)
            return DecisionPrompt(tuple(tokens), tuple(label.tokens for label in labels))

    def _joint_prompts(
        self, questions: Sequence[SystemoneQuestion], variables: Mapping[str, Any]
    ) -> list[QuestionPrompts]:
        assert self.marked is not None
        with _about("the questions"):
            tokens = self._tokens(variables)
        prompts = self.marked.joint_prompts(tokens, questions)
        return [
            QuestionPrompts(each, (prompt,), self.temperature(each), self._order(each))
            for each, prompt in zip(questions, prompts, strict=True)
        ]

    def _tokens(self, variables: Mapping[str, Any]) -> list[int]:
        tokens = self._prompts.tokens(NO_CONVERSATION, **variables)
        if not tokens:
            raise ChatTemplateError("the model's template produced no text")
        return tokens


@contextmanager
def _about(what: str) -> Iterator[None]:
    """Put the subject of a prompt before the message of a template's error."""
    try:
        yield
    except ChatTemplateError as error:
        raise ChatTemplateError(f"{what}: {error}") from error
    except InvalidArgumentError as error:
        raise InvalidArgumentError(
            f"{what} or the input contains the text of a control token, and the template makes it "
            "indistinguishable from its own; remove that text"
        ) from error


def _type_named(type: str) -> _Type:
    if type in TYPES:
        return TYPES[type]
    reason = f", which {UNSUPPORTED[type]}" if type in UNSUPPORTED else ""
    raise NotSupportedError(f"unsupported type {type!r}{reason}; supported: {', '.join(TYPES)}")


def _is_wanted(name: str) -> bool:
    return name in (ARCHITECTURE, TEMPLATE, MASK, SEPARATOR) or ".decision." in name


def _temperature(name: str, value: Any) -> float:
    try:
        temperature = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        temperature = math.nan
    if not 0.0 < temperature < math.inf:
        raise ModelError(f"the entry {name} must be a number above 0, got {value!r}")
    return temperature


def fixed_labels(kind: str, tokens_of: TokensOf) -> list[OptionLabel]:
    """Return A to Z and a to z ("letters", which must be one token), or the 255 first of A to Z and
    AA to ZZ that are one token ("codes")."""
    codes = string.ascii_uppercase + string.ascii_lowercase if kind == "letters" else CODES
    labels = [OptionLabel(code, tuple(tokens_of(code))) for code in codes]
    single = [label for label in labels if len(label.tokens) == 1]
    if kind == "letters" and single != labels:
        other = next(label for label in labels if label not in single)
        raise ModelError(f"the label {other.text!r} must be one token, got {len(other.tokens)}")
    return single[:MAX_LABELS]


def typed_labels(tokens_of: TokensOf, question: SystemoneQuestion) -> list[OptionLabel]:
    """Return yes and no for a noul, digits for a score, and codes for the options of a choice."""
    keys = [key for key, _ in question.options]
    if question.type == "choice":
        return _codes(tokens_of, keys)
    spellings = [YES_NO.get(key, [key]) for key in keys]
    tokens = [tuple(_single(tokens_of, each)) for each in spellings]
    if () in tokens:
        raise ModelError(f"the label {spellings[tokens.index(())][0]!r} must be one token")
    return list(map(OptionLabel, keys, tokens))


def _codes(tokens_of: TokensOf, keys: list[str]) -> list[OptionLabel]:
    """Return a code of one token for each key: the suited one or the first free substitute."""
    suited: Iterable[str] = (f"{i:02}" for i in range(len(keys)))
    if all(len(key) == 1 and key in string.ascii_letters for key in keys):
        suited = keys
    elif len(keys) <= len(string.ascii_uppercase):
        suited = string.ascii_uppercase[: len(keys)]
    labels: list[OptionLabel] = []
    taken: set[int] = set()
    # All keys share this iterator. A substitute that is rejected for one key, because it is taken
    # or not one token, need not be tried for another key.
    substitutes = iter(SUBSTITUTES)
    for each in suited:
        for code in itertools.chain((each,), substitutes):
            tokens = tokens_of(code)
            if len(tokens) == 1 and tokens[0] not in taken:
                taken.add(tokens[0])
                after_space = [t for t in _single(tokens_of, (" " + code,)) if t != tokens[0]]
                labels.append(OptionLabel(code, (tokens[0], *after_space)))
                break
        else:
            raise InvalidArgumentError(f"the vocabulary has too few labels for {len(keys)} options")
    return labels


def _single(tokens_of: TokensOf, texts: Iterable[str]) -> list[int]:
    several = map(tokens_of, texts)
    return list(dict.fromkeys(tokens[0] for tokens in several if len(tokens) == 1))
