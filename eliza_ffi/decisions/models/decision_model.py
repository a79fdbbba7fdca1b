"""Models that were made for decisions: asked in their own template, read at their own labels.

A GGUF file of such a model names its type in ``<arch>.decision.type`` and has a second template,
named ``systemone``. The template writes a question with its options and their labels, each label
one token, and ends where the answer begins: the answer is the softmax over the labels' logits
there, at the temperature that the file has for the question's type and number of options.

Types differ in their labels, in the order of the options, and in what else a prompt shows:

=============== ===================== ================================================
type            labels                besides
=============== ===================== ================================================
openjev         A-Z, a-z              the template writes the labels; true comes first
lev             A, B, ..., AA, ...    a choice is asked in two orders, and averaged; a noul is read
                                      at nine ratings, A = no to I = yes; keys of JSON are sorted
nimble          A, B, ..., AA, ...    every prompt shows all questions
pplx-decider    A, B, ..., AA, ...
lfm2-d1         yes/no, 0-9, codes    several spellings, of which the likeliest counts; true comes
                                      first; the input may be None
=============== ===================== ================================================

Nothing here runs a model: :meth:`DecisionModel.ask` gives prompts with the tokens to be read behind
them, and :meth:`QuestionPrompts.probabilities` takes what was read there.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...chat.template import ChatTemplate
from ...chat.tokens import ChatTokenizer
from ...chat.vocabulary import Detokenize, Tokenize
from ...errors import ChatTemplateError, InvalidArgumentError, ModelError, NotSupportedError
from .gguf_metadata import MetadataValue, read_metadata
from .option_labels import OptionLabel, code_labels, letter_labels, typed_labels
from .systemone import SystemoneQuestion, json_copy, read_state

__all__ = ["DecisionModel", "DecisionPrompt", "QuestionPrompts"]

ARCHITECTURE = "general.architecture"
TEMPLATE = "tokenizer.chat_template.systemone"
N_RATINGS = 9  # of a noul, where it is rated
MAX_OPTIONS = 255

# What a template of conversations is given; one named systemone asks for none of it.
NO_CONVERSATION = ({"role": "user", "content": ""},)


@dataclass(frozen=True)
class _Type:
    """What models of a type have in common.

    Attributes
    ----------
    labels : str
        ``"letters"``, ``"codes"`` or ``"typed"``, as in :mod:`.option_labels`.
    is_told_labels : bool
        Whether the template is given the labels; otherwise it writes them itself.
    true_first : bool
    two_orders : bool
        Whether a choice is asked a second time with its options reversed.
    rates_nouls : bool
    sorts_keys : bool
    shows_all : bool
        Whether a prompt lists all questions that are asked.
    takes_none : bool
        Whether there may be no input.
    buckets : tuple of (int, str)
        Names of temperatures by the most options that they are for.
    """

    labels: str = "codes"
    is_told_labels: bool = True
    true_first: bool = False
    two_orders: bool = False
    rates_nouls: bool = False
    sorts_keys: bool = False
    shows_all: bool = False
    takes_none: bool = False
    buckets: tuple[tuple[float, str], ...] = (
        *((2, "2"), (5, "3_5"), (10, "6_10")),
        (math.inf, "11"),
    )


TYPES = {
    "openjev": _Type(labels="letters", is_told_labels=False, true_first=True),
    "lev": _Type(
        two_orders=True,
        rates_nouls=True,
        sorts_keys=True,
        buckets=((8, "small"), (26, "mid"), (math.inf, "large")),
    ),
    "nimble": _Type(shows_all=True),
    "pplx-decider": _Type(),
    "lfm2-d1": _Type(labels="typed", true_first=True, takes_none=True),
}

REFUSED = {
    "kev": "compares hidden states of the question and of its options",
    "laya": "has a score for each option in place of an embedding",
    "clef": "has a head of its own that reads all questions at once",
    "lfm2-d1-omni": "has a score for each option in place of an embedding",
}
"""Types that are not read at labels, and how they are."""


@dataclass(frozen=True)
class DecisionPrompt:
    """A question in one order of its options, as tokens.

    Attributes
    ----------
    tokens : tuple of int
        All of the prompt: the template writes what the model begins a text with.
    labels : tuple of tuple of int
        For each answer, in the order shown, the tokens that stand for it: the likeliest counts.
    """

    tokens: tuple[int, ...]
    labels: tuple[tuple[int, ...], ...]

    @functools.cached_property
    def read(self) -> tuple[int, ...]:
        """The tokens whose logits are wanted behind the prompt, each once."""
        return tuple(dict.fromkeys(itertools.chain.from_iterable(self.labels)))

    def scores(self, logits: Sequence[float]) -> list[float]:
        """Return the score of each answer from the logits of `read`, or their log-softmax."""
        by_token = {token: float(logit) for token, logit in zip(self.read, logits, strict=True)}
        return [max(by_token[token] for token in tokens) for tokens in self.labels]


@dataclass(frozen=True)
class QuestionPrompts:
    """A question as prompts, and how what is read behind them becomes probabilities.

    Attributes
    ----------
    question : SystemoneQuestion
    prompts : tuple of DecisionPrompt
        One; or two, the second with the options in the opposite order.
    temperature : float
    order : tuple of int
        Which of the question's options each answer of the first prompt is. Empty where the answers
        are ratings, from no to yes.
    """

    question: SystemoneQuestion
    prompts: tuple[DecisionPrompt, ...]
    temperature: float
    order: tuple[int, ...]

    def probabilities(self, logits: Sequence[Sequence[float]]) -> list[float]:
        """Return the probability of each of the question's options, in their order.

        Parameters
        ----------
        logits
            For each prompt those of its tokens `read`; any constant may be added to a row, so that
            log-probabilities will do.

        Raises
        ------
        InvalidArgumentError
            If there are not as many as were asked for, or one is not a number.
        """
        try:
            scores = [prompt.scores(row) for prompt, row in zip(self.prompts, logits, strict=True)]
        except ValueError:
            asked = ", ".join(str(len(prompt.read)) for prompt in self.prompts)
            raise InvalidArgumentError(
                f"the question {self.question.id!r} is read at {asked} logits"
            ) from None
        answers = [0.0] * len(scores[0])
        for i, row in enumerate(scores):
            p = self._softmax(row)
            for j, each in enumerate(reversed(p) if i else p):
                answers[j] += each / len(scores)
        if not self.order:
            true = sum(i * p for i, p in enumerate(answers)) / (len(answers) - 1)
            return [true, 1.0 - true]
        return [answers[self.order.index(i)] for i in range(len(answers))]

    def _softmax(self, scores: Sequence[float]) -> list[float]:
        highest = max(scores)
        if not math.isfinite(highest) or any(map(math.isnan, scores)):
            raise InvalidArgumentError(f"the logits of {self.question.id!r} are not all numbers")
        weights = [math.exp((score - highest) / self.temperature) for score in scores]
        total = sum(weights)
        return [weight / total for weight in weights]


@dataclass(frozen=True)
class _Shown:
    """A question as a prompt shows it: which of its options come in which order, with labels."""

    question: SystemoneQuestion
    order: tuple[int, ...]
    labels: list[OptionLabel]


class DecisionModel:
    """A model that was made for decisions.

    Parameters
    ----------
    type
        As the file names it: one of ``openjev``, ``lev``, ``nimble``, ``pplx-decider`` and
        ``lfm2-d1``.
    template
        The source of the template named ``systemone``. It runs in the sandbox of
        :mod:`eliza_ffi.chat.sandbox`.
    temperatures
        By question type (``"choice"``), or type and bucket (``"choice.3_5"``, ``"choice.small"``).
    tokenize, detokenize
        As :class:`~eliza_ffi.chat.ChatTokenizer`.

    Raises
    ------
    NotSupportedError
        If models of this type are not read at labels, or Jinja2 is not installed.
    ModelError
        If the vocabulary lacks the labels, or a temperature is none.
    ChatTemplateError
        If the template is not a valid one.

    Notes
    -----
    A control token is read where the template wrote it, and nowhere else: what questions and input
    spell like one is plain text. Where nothing does, the tokens are those of the whole text.
    """

    def __init__(
        self,
        type: str,
        template: str,
        temperatures: Mapping[str, Any],
        tokenize: Tokenize,
        detokenize: Detokenize,
    ) -> None:
        self.type = type
        self._type = _type_named(type)
        self.temperatures = {
            name: _temperature(name, value) for name, value in temperatures.items()
        }
        self._prompts = ChatTokenizer(ChatTemplate(template), tokenize, detokenize)
        self._tokens_of = functools.partial(_plain_tokens, tokenize)
        self._labels: list[OptionLabel] | None = None
        if self._type.labels == "letters":
            self._labels = letter_labels(self._tokens_of)
        elif self._type.labels == "codes":
            self._labels = code_labels(self._tokens_of)
            if self._type.rates_nouls and len(self._labels) < N_RATINGS:
                raise ModelError(f"the vocabulary has only {len(self._labels)} labels of one token")

    @classmethod
    def of(
        cls, facts: Mapping[str, Any], tokenize: Tokenize, detokenize: Detokenize
    ) -> DecisionModel | None:
        """Return a model that was made for decisions, and None of any other.

        Parameters
        ----------
        facts
            What :meth:`Model.describe` says under ``"model"``: ``path`` and ``decision_type``.
        tokenize, detokenize

        Raises
        ------
        NotSupportedError, ModelError, ChatTemplateError
            As above, and if the file cannot be read or is damaged. The texts name the file.
        """
        path, named = facts.get("path"), facts.get("decision_type")
        if not path or not named:
            return None
        if not Path(path).is_file():
            raise ModelError(
                f"the model's file {path} is gone: it says how the model is asked for decisions"
            )
        entries = read_metadata(path, _is_wanted)
        prefix = f"{entries.get(ARCHITECTURE)}.decision."
        try:
            return cls(
                named,
                _template(named, entries),
                {
                    name.removeprefix(f"{prefix}temperature."): value
                    for name, value in entries.items()
                    if name.startswith(f"{prefix}temperature.")
                },
                tokenize,
                detokenize,
            )
        except (ChatTemplateError, ModelError, NotSupportedError) as error:
            raise type(error)(f"the model {path} was made for decisions: {error}") from error

    @property
    def max_options(self) -> int:
        """The most options that a question may have."""
        return MAX_OPTIONS if self._labels is None else len(self._labels)

    def ask(self, questions: Sequence[SystemoneQuestion], state: Any) -> list[QuestionPrompts]:
        """Return questions about an input as prompts.

        Parameters
        ----------
        questions
            Each with an id of its own.
        state
            The input: a text or other JSON.

        Raises
        ------
        InvalidArgumentError
            If the input is None for a model that needs one, or is not JSON or has images in it; if
            two questions have one id, or one has more options than the model has labels; or if
            something spells a control token where it cannot be told from the template's.
        ChatTemplateError
            If the template fails or refuses.
        """
        if state is None and not self._type.takes_none:
            raise InvalidArgumentError(f"a model of type {self.type} needs an input, not None")
        state = self._json(read_state(state))
        counted = Counter(question.id for question in questions)
        for id, n in counted.items():
            if n > 1:
                raise InvalidArgumentError(f"two questions have the id {id!r}")
        shown = [self._shown(question) for question in questions]
        more: dict[str, Any] = {"state": state, "images": []}
        if self._type.shows_all:
            more["questions"] = [self._variables(each) for each in shown]
        return [self._prompts_of(each, more) for each in shown]

    def temperature(self, question: SystemoneQuestion) -> float:
        """Return what a question's logits are divided by; 1 where the file does not say."""
        n = len(question.options)
        bucket = next(name for most, name in self._type.buckets if n <= most)
        by_type = self.temperatures.get(question.type, 1.0)
        return self.temperatures.get(f"{question.type}.{bucket}", by_type)

    def _shown(self, question: SystemoneQuestion) -> _Shown:
        n = len(question.options)
        if n > self.max_options:
            raise InvalidArgumentError(
                f"the question {question.id!r} has {n} options: this model of type {self.type} has "
                f"labels for {self.max_options}"
            )
        false_first = question.type == "noul" and not self._type.true_first
        order = tuple(reversed(range(n)) if false_first else range(n))
        if self._labels is None:
            labels = typed_labels(self._tokens_of, question)
        else:
            labels = self._labels[:n]
        return _Shown(question, order, labels)

    def _prompts_of(self, shown: _Shown, more: Mapping[str, Any]) -> QuestionPrompts:
        """Return the prompts of a question; `more` is what all of a request are given."""
        question, orders = shown.question, [shown.order]
        if self._type.two_orders and question.type == "choice" and len(question.options) > 1:
            orders.append(shown.order[::-1])
        is_rated = self._type.rates_nouls and question.type == "noul"
        read = (self._labels or [])[:N_RATINGS] if is_rated else shown.labels
        prompts = []
        for order in orders:
            variables = {**self._variables(replace(shown, order=order)), **more}
            tokens = self._tokens(variables, question.id)
            prompts.append(DecisionPrompt(tokens, tuple(label.tokens for label in read)))
        order = () if is_rated else shown.order
        return QuestionPrompts(question, tuple(prompts), self.temperature(question), order)

    def _variables(self, shown: _Shown) -> dict[str, Any]:
        """Return what the template is told of a question."""
        question, options = shown.question, []
        for i, label in zip(shown.order, shown.labels, strict=True):
            key, description = question.options[i]
            option = {"key": key, "description": description}
            if self._type.is_told_labels:
                option["label"] = label.text
            options.append(option)
        variables = {
            "id": question.id,
            "type": question.type,
            "instructions": question.instructions,
            "options": options,
        }
        return {name: self._json(value) for name, value in variables.items()}

    def _json(self, value: Any) -> Any:
        return json_copy(value, sort=True) if self._type.sorts_keys else value

    def _tokens(self, variables: dict[str, Any], id: str) -> tuple[int, ...]:
        try:
            tokens = self._prompts.tokens(NO_CONVERSATION, **variables)
        except ChatTemplateError as error:
            raise ChatTemplateError(f"the question {id!r}: {error}") from error
        except InvalidArgumentError as error:
            raise InvalidArgumentError(
                f"the question {id!r} or the input spells a control token, and the model's "
                "template uses them so that it cannot be told from the template's own: take it out"
            ) from error
        if not tokens:
            raise ChatTemplateError(f"the question {id!r}: the model's template wrote nothing")
        return tuple(tokens)


def _type_named(type: str) -> _Type:
    if type in TYPES:
        return TYPES[type]
    how = f", which {REFUSED[type]}" if type in REFUSED else ""
    raise NotSupportedError(f"its type is {type!r}{how}: supported are {', '.join(TYPES)}")


def _is_wanted(name: str) -> bool:
    return name in (ARCHITECTURE, TEMPLATE) or ".decision." in name


def _template(type: str, entries: Mapping[str, MetadataValue]) -> str:
    _type_named(type)  # says more than that there is no template
    if TEMPLATE not in entries:
        raise ModelError("it has no template named systemone")
    return str(entries[TEMPLATE])


def _temperature(name: str, value: Any) -> float:
    try:
        temperature = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        temperature = math.nan
    if not 0.0 < temperature < math.inf:
        raise ModelError(f"its temperature {name} is {value!r}, and must be a number above 0")
    return temperature


def _plain_tokens(tokenize: Tokenize, text: str) -> list[int]:
    return tokenize(text, False, False)
