"""Calibrations, which make the probabilities of a model's answers match their accuracy.

A model's own probabilities are usually overconfident, and they favour some options regardless of
the input. You fit a calibration once, with :func:`~eliza_ffi.decisions.calibrate`, for one model
and one list of questions, on labelled examples. For each question it changes the probabilities P of
the options by one of these methods:

============================  ==================================================================
method                        effect on the probabilities
============================  ==================================================================
none                          unchanged
temperature                   softmax(log P / T), T fitted (Guo et al. 2017), with a prior at 1
contextual                    P divided by P of content-free inputs (Zhao et al. 2021)
batch                         P divided by the mean of P over the examples (Zhou et al. 2023);
                              valid only if other inputs have the same proportions of options
unconditional                 scores relative to an empty input (SGLang; Holtzman et al. 2021)
contextual+temperature, ...   the first method, then a temperature
head                          a linear classifier on the hidden state after the prompt returns the
                              probabilities (:mod:`.heads`); the options are not scored at all
head+batch+temperature        the head's probabilities, times a power of the probabilities of the
                              method batch (:data:`BATCH_WEIGHT`), then a temperature
frequencies                   every input gets the frequencies of the right options in the examples:
                              a last resort if everything else is worse
============================  ==================================================================

:mod:`eliza_ffi.decisions.scoring` contains the formulas. A temperature changes the confidence of an
answer, but not which option is the most probable one. The other methods can change both.
"""

from __future__ import annotations

import hashlib
import math
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from ..._lazy import lazy_property
from ...chat.prompt import Prompt
from ...checks import (
    check_each,
    check_kind,
    check_number,
    check_one_of,
    check_path,
    check_several,
    check_text,
    check_whole,
)
from ...errors import InvalidArgumentError
from ...structured.json_text import json_text, read_json
from ..asking import WantedHidden, orders_of
from ..examples import named_questions
from ..layout import PROMPT_FORMATS, PROMPT_ORDERS, PromptFormat, PromptOrder, Shot, frame
from ..prompt_settings import DEFAULT_PROMPT, OptionPrior, PromptSettings, WritePrompt
from ..prompts import ANSWER_STYLES, AnswerStyle, AskedQuestion, RenderedQuestion, ask, option_count
from ..questions import Choice, MultiLabel, Predicate, Question, Score, Value
from ..scoring import (
    LEAST_TEMPERATURE,
    MOST_TEMPERATURE,
    Array,
    QuestionScores,
    Rule,
    check_rule,
    relative_to,
    tempered,
)
from ..wire import question_from, question_to
from .heads import Head
from .thresholds import CertifiedThreshold, ConformalSets

T = TypeVar("T")

CalibrationMethod = Literal[
    "none",
    "temperature",
    "contextual",
    "contextual+temperature",
    "batch",
    "batch+temperature",
    "unconditional",
    "unconditional+temperature",
    "head",
    "head+batch+temperature",
    "frequencies",
]
"""A method that changes the probabilities of a question's options."""

METHODS: tuple[CalibrationMethod, ...] = get_args(CalibrationMethod)
"""All methods, simpler ones first."""

BATCH_WEIGHT = 0.5
"""The exponent of the option's own probabilities in the method ``head+batch+temperature``."""

_PROBE_INPUT = "A first line.\nA second one."

_PROBE_SHOTS = (Shot("An example.", 0), Shot("Another.", 1))

_PROBES: tuple[AskedQuestion, ...] = (
    Predicate("It is so.", "so", if_true="it is", if_false="it is not"),
    Choice("Which?", [("one", "the first"), ("true", None), (True, None)], "which"),
    Score("How much?", [("little", "next to nothing"), "some", "much"], "much"),
)

FORMAT, VERSION = "eliza-ffi decision calibration", 3


@dataclass(frozen=True, kw_only=True)
class QuestionCalibration:
    """Hold the calibration of one question.

    Attributes
    ----------
    question : mapping
        The question as JSON, from :func:`~eliza_ffi.decisions.question_to`.
    method : str
        One of :data:`METHODS`.
    n_examples : int
        The number of examples on which the calibration was fitted and evaluated.
    shares : tuple of float
        The share of each option among the answers to these examples, by cross-validation.
    mean_probability : float
        The mean probability of these answers.
    nll : mapping of str to float
        For each method that was tried, the mean of -log p of the right options in nats, by
        cross-validation: each example is evaluated with a fit that did not use it.
    temperature : float
        The fitted temperature; 1 if none was fitted.
    baseline : tuple of float, or None
        The log-probabilities that are subtracted from the log-probabilities of the options. For
        ``"contextual"`` they are the logarithms of the mean probabilities over content-free inputs,
        for ``"batch"`` over the examples. For ``"frequencies"`` they are the result.
    empty_joint : tuple of tuple of float, or None
        For each order of the options, the joint scores of an empty input.
    examples : tuple of (str, int)
        The examples in the prompt: the texts of inputs, and the indices of the right options.
    head : Head or None
        The classifier of the methods ``"head"`` and ``"head+batch+temperature"``.
    threshold : CertifiedThreshold or None
        The probability above which few answers are wrong, if a risk was given.
    sets : ConformalSets or None
        The sets of options that rarely miss the right one, if a risk was given.
    margin : float or None
        The decision ends before all orders of the options are asked if the log-probability of the
        best option exceeds the second-best one by the margin. None if all orders are always asked.
    """

    question: Mapping[str, Any]
    method: CalibrationMethod
    n_examples: int
    nll: Mapping[str, float]
    shares: tuple[float, ...]
    mean_probability: float
    temperature: float = 1.0
    baseline: tuple[float, ...] | None = None
    empty_joint: tuple[tuple[float, ...], ...] | None = None
    examples: tuple[tuple[str, int], ...] = ()
    head: Head | None = None
    threshold: CertifiedThreshold | None = None
    sets: ConformalSets | None = None
    margin: float | None = None

    @property
    def shots(self) -> tuple[Shot, ...]:
        """The examples in the prompt."""
        return tuple(Shot(text, option) for text, option in self.examples)

    @property
    def is_at_bound(self) -> bool:
        """Whether the temperature is at a bound. A temperature beyond the bound may fit better."""
        return self.temperature in (LEAST_TEMPERATURE, MOST_TEMPERATURE)

    @lazy_property
    def asked(self) -> AskedQuestion:
        """The question."""
        return _asked(self.question)

    @property
    def scores_options(self) -> bool:
        """Whether it needs the scores of the options."""
        return self.method != "head"

    @property
    def values(self) -> tuple[Value, ...]:
        """The values of the options, or the labels of a score's levels."""
        return self.asked.values

    @property
    def n_options(self) -> int:
        """The number of options of the question."""
        return len(self.values)

    def apply(self, scores: QuestionScores, rule: Rule) -> Array:
        """Return the calibrated log-probabilities; see :meth:`Calibration.apply`."""
        check_kind("scores", scores, QuestionScores, "a QuestionScores")
        of_head = None if self.head is None else self._of_head(self.head, scores)
        if of_head is not None and not self.scores_options:
            return of_head
        for one in scores.orders:
            if len(one.legal) != self.n_options:
                raise InvalidArgumentError(
                    f"scores: expected {self.n_options} options, got {len(one.legal)}"
                )
        if self.method == "frequencies":
            return np.array(self.baseline)
        if self.empty_joint is not None:
            values = scores.unconditional_log_probabilities(self.empty_joint)
        else:
            values = scores.log_probabilities(rule)
        if self.baseline is not None:
            values = relative_to(values, self.baseline)
        if of_head is not None:
            values = of_head + BATCH_WEIGHT * values
        return tempered(values, self.temperature)

    def sets_of(self, probabilities: Array) -> Sequence[Sequence[int]]:
        """Return the options that may be right, for each row; for a score, a range of levels."""
        assert self.sets is not None
        is_score = isinstance(self.asked, Score)
        return (self.sets.intervals if is_score else self.sets.sets)(probabilities)

    def _of_head(self, head: Head, scores: QuestionScores) -> Array:
        expected = head.weights.shape[:2]
        if scores.hidden is None or scores.hidden.shape != expected:
            got = "none" if scores.hidden is None else f"shape {list(scores.hidden.shape)}"
            raise InvalidArgumentError(
                f"scores: the head needs hidden states of shape {list(expected)}, got {got}"
            )
        result: Array = head.log_probabilities(scores.hidden[:, None])[0]
        return result

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON data."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        for name in ("head", "threshold", "sets"):
            values[name] = _unless_none(values[name], lambda part: part.to_dict())
        return values


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Hold a calibration for one model and one list of questions.

    Attributes
    ----------
    model : str
        The fingerprint of the model.
    rule : str
        The scoring rule.
    answer_style : str
        The labels that the model answers with, ``"text"`` or ``"letters"``.
    orders : int
        The number of orders in which the options are shown.
    prompt : str
        The name of the function that writes the prompts; ``"default"`` for the built-in prompts.
    prompt_order, prompt_format, prior : str
        The settings of built-in prompts, as in :meth:`~eliza_ffi.Model.decide`.
    questions : tuple of QuestionCalibration
        One for each question with a single answer. :class:`~eliza_ffi.decisions.MultiLabel` have
        one for each label.
    wording : str or None
        The hash of the prompts, from :func:`wording_hash`. If it is None, only the name of the
        function is checked.
    """

    model: str
    rule: Rule
    answer_style: AnswerStyle
    orders: int
    prompt: str
    questions: tuple[QuestionCalibration, ...]
    prompt_order: PromptOrder = "input-first"
    prompt_format: PromptFormat = "chat"
    prior: OptionPrior = "none"
    wording: str | None = None

    def prompt_arguments(self) -> dict[str, Any]:
        """Return the arguments for the prompts for which the calibration was fitted."""
        names = ["answer_style", "orders"]
        if self.prompt != DEFAULT_PROMPT:
            return {name: getattr(self, name) for name in names}
        examples = tuple((each.asked, each.shots) for each in self.questions if each.examples)
        names += ["prompt_order", "prompt_format", "prior"]
        return {name: getattr(self, name) for name in names} | {"examples": examples}

    @property
    def needs_whole_rows(self) -> bool:
        """Whether it needs scores over the whole vocabulary, which take whole rows of logits."""
        return any(
            question.scores_options
            and (self.rule != "constrained" or question.empty_joint is not None)
            for question in self.questions
        )

    @property
    def asked(self) -> tuple[AskedQuestion, ...]:
        """The questions that it was fitted for. Labels are a predicate for each label."""
        return tuple(each.asked for each in self.questions)

    @property
    def stops_early(self) -> bool:
        """Whether decisions can end before all orders of the options are asked."""
        return any(each.margin is not None for each in self.questions)

    @property
    def can_certify(self) -> bool:
        """Whether it was fitted with a risk, so that answers can be certified."""
        return all(question.threshold is not None for question in self.questions)

    @property
    def wanted_hidden(self) -> WantedHidden | None:
        """The hidden states that the heads need; None if there is no head."""
        layers = tuple(() if each.head is None else each.head.layers for each in self.questions)
        is_scored = tuple(each.scores_options for each in self.questions)
        return WantedHidden(layers, is_scored) if any(layers) else None

    def apply(self, question_index: int, scores: QuestionScores) -> Array:
        """Return the calibrated log-probabilities of a question's options, shape [n_options].

        `scores` are for the model, questions and settings that :meth:`check` accepts. If
        :attr:`needs_whole_rows` is true, they contain joint scores.
        """
        index = check_whole("question_index", question_index, 0, len(self.questions) - 1)
        return self.questions[index].apply(scores, self.rule)

    def check(
        self, model_fingerprint: str, questions: Sequence[Question], how: PromptSettings
    ) -> None:
        """Check that the calibration was fitted for this model, these questions and settings.

        The questions are compared in order, without their names. If anything differs,
        InvalidArgumentError names the difference.
        """
        check_text("model_fingerprint", model_fingerprint)
        check_kind("how", how, PromptSettings, "a PromptSettings")
        check_each("questions", questions, (Predicate, Choice, Score, MultiLabel), "a question")
        for name, found in {"model": model_fingerprint, **how.described()}.items():
            fitted = getattr(self, name)
            if fitted != found:
                what = "number of orders" if name == "orders" else name.replace("_", " ")
                raise InvalidArgumentError(
                    f"the calibration is for another {what}: expected {fitted!r}, got {found!r}"
                )
        if self.wording not in (None, wording_hash(how.prompt)):
            raise InvalidArgumentError(
                f"the calibration is for other prompts: {self.prompt!r} wrote different text "
                "when the calibration was fitted"
            )
        asked = named_questions(questions)
        if len(asked) != len(self.questions):
            raise InvalidArgumentError(
                f"the calibration is for {len(self.questions)} questions, got {len(asked)}"
            )
        for (name, question), calibrated in zip(asked, self.questions, strict=True):
            own, fitted_on = question_to(question), calibrated.question
            names = sorted((own.keys() | fitted_on.keys()) - {"name"})
            differing = [each for each in names if own.get(each) != fitted_on.get(each)]
            if differing:
                raise InvalidArgumentError(
                    f"the calibration is for another question: {name!r} differs in "
                    f"{', '.join(differing)}"
                )
            if how.shots_of(question) != calibrated.shots:
                raise InvalidArgumentError(
                    f"the calibration is for other examples in the prompt of {name!r}"
                )

    @property
    def digest(self) -> str:
        """A hash of the calibration."""
        return _digest(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON data."""
        return vars(self) | {"questions": [each.to_dict() for each in self.questions]}

    def to_text(self) -> str:
        """Return the calibration as the text of its file."""
        head = {"format": FORMAT, "version": VERSION, "sha256": self.digest}
        return json_text({**head, "calibration": self.to_dict()})

    @classmethod
    def from_text(cls, text: str | bytes) -> Calibration:
        """Read a text that :meth:`to_text` returned."""
        try:
            raw = text if isinstance(text, bytes) else check_text("text", text).encode()
            return _calibration(_content(raw))
        except UnicodeEncodeError as error:
            raise InvalidArgumentError(f"not Unicode text: {error}") from None
        except KeyError as error:
            raise InvalidArgumentError(f"{error} is missing") from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the calibration to a JSON file, which is replaced atomically.

        Raises
        ------
        OSError
            If the file cannot be written. An existing file is then left unchanged.
        """
        replace_file(Path(check_path("path", path)), self.to_text() + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Calibration:
        """Read a file that :meth:`save` wrote.

        Raises
        ------
        InvalidArgumentError
            If the file is not a calibration, is truncated or damaged, or has another version of
            the format.
        OSError
            If the file cannot be read.
        """
        raw = Path(check_path("path", path)).read_bytes()
        try:
            return cls.from_text(raw)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{path} is not a usable calibration: {error}") from error


def replace_file(target: Path, text: str) -> None:
    """Write a text file, or leave an existing one unchanged if that fails."""
    draft = target.with_name(f"{target.name}.{uuid.uuid4().hex}.tmp")
    try:
        with draft.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def as_calibration(calibration: Any) -> Calibration | None:
    """Return a calibration, which is read from a file if a path is given. None stays None."""
    if calibration is None or isinstance(calibration, Calibration):
        return calibration
    expected = "a Calibration, the path of a calibration file or None"
    check_kind("calibration", calibration, (str, os.PathLike), expected)
    return Calibration.load(check_path("calibration", calibration))


def rule_of(calibration: Calibration | None, rule: Rule | None) -> Rule:
    """Return the rule, or else the rule of the calibration, or else ``"constrained"``."""
    if calibration is None:
        return check_rule("constrained" if rule is None else rule)
    if rule is not None and check_rule(rule) != calibration.rule:
        raise InvalidArgumentError(
            f"the calibration is for another rule: expected {calibration.rule!r}, got {rule!r}"
        )
    return calibration.rule


def wording_hash(prompt: WritePrompt | None) -> str:
    """Return a hash of the prompts for a fixed input and a fixed list of questions.

    It distinguishes two functions with the same name, such as lambdas, and two versions of a
    function that write different text. If a function raises an exception for a question, the type
    of the exception is hashed instead of the prompt.
    """
    prompts: list[Any] = []
    for question in _PROBES:
        order = range(option_count(question))
        for style in ANSWER_STYLES:
            for each in (order, order[::-1]):
                prompts.append(_worded(prompt, ask(question, style, each)))
    return hashlib.sha256(repr(prompts).encode("utf-8", "backslashreplace")).hexdigest()[:16]


def _worded(prompt: WritePrompt | None, asked: RenderedQuestion) -> Any:
    if prompt is None:
        return [
            (each.turns, each.with_input(_PROBE_INPUT))
            for form in PROMPT_FORMATS
            for order in PROMPT_ORDERS
            for each in (frame(asked, form, order), frame(asked, form, order, _PROBE_SHOTS))
        ]
    try:
        written = prompt(_PROBE_INPUT, asked)
    except Exception as error:  # it may still work for the real questions
        return type(error).__name__
    if isinstance(written, str | Prompt):
        return written.parts if isinstance(written, Prompt) else written
    try:
        return [dict(message) for message in written]
    except (TypeError, ValueError) as error:  # not a list of messages
        return type(error).__name__


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json_text(content).encode()).hexdigest()


def _content(raw: bytes) -> dict[str, Any]:
    """Return the contents of a file after checking its format, version and hash."""
    try:
        file = read_json(raw.decode("utf-8-sig"))  # Notepad adds a byte order mark
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"not UTF-8 text: {error}") from None
    if not isinstance(file, dict) or file.get("format") != FORMAT:
        raise InvalidArgumentError(f"the field 'format' must be {FORMAT!r}")
    if file.get("version") != VERSION:
        raise InvalidArgumentError(f"expected version {VERSION}, got {file.get('version')!r}")
    content = _object("calibration", file["calibration"])
    if file.get("sha256") != _digest(content):
        raise InvalidArgumentError("damaged: the field 'sha256' does not match the contents")
    return content


def _calibration(content: Mapping[str, Any]) -> Calibration:
    how = PromptSettings(
        answer_style=content["answer_style"],
        orders=content["orders"],
        order=content["prompt_order"],
        format=content["prompt_format"],
        prior=content["prior"],
    )
    settings = how.described() | {"prompt": check_text("prompt", content["prompt"])}
    return Calibration(
        **settings,
        model=check_text("model", content["model"]),
        rule=check_rule(content["rule"]),
        questions=tuple(
            _question_calibration(each, how.orders)
            for each in check_each("questions", content["questions"], dict, "an object")
        ),
        wording=_unless_none(content.get("wording"), partial(check_text, "wording")),
    )


_FIELD_OF_METHOD = {
    "contextual": "baseline",
    "batch": "baseline",
    "frequencies": "baseline",
    "unconditional": "empty_joint",
    "head": "head",
}


def _question_calibration(content: Mapping[str, Any], n_orders: int) -> QuestionCalibration:
    question = _asked(content["question"])
    n_options = option_count(question)
    method: Any = check_one_of("method", content["method"], METHODS)
    needed = {_FIELD_OF_METHOD.get(part) for part in method.split("+")}
    for field in ("baseline", "empty_joint", "head"):
        if (content[field] is not None) != (field in needed):
            verb = "needs" if field in needed else "does not use"
            raise InvalidArgumentError(f"the method {method} {verb} {field}")
    empty_joint = content["empty_joint"]
    if empty_joint is not None:
        n_orders = len(orders_of(question, n_orders))
        if len(check_kind("empty_joint", empty_joint, list, "a list")) != n_orders:
            raise InvalidArgumentError(
                f"empty_joint must have {n_orders} orders, got {len(empty_joint)}"
            )
        empty_joint = tuple(_numbers("empty_joint", one, n_options) for one in empty_joint)
    nll = _object("nll", content["nll"])
    head = _unless_none(content["head"], lambda data: Head.from_dict(_object("head", data)))
    sets = _unless_none(content["sets"], ConformalSets.from_dict)
    for field, n in (("head", head and len(head.bias)), ("sets", sets and sets.n_options)):
        if n not in (None, n_options):
            raise InvalidArgumentError(f"{field} must have {n_options} options, got {n}")
    return QuestionCalibration(
        question=content["question"],
        method=method,
        n_examples=check_whole("n_examples", content["n_examples"], 0),
        nll={check_one_of("nll", name, METHODS): _float("nll", nll[name]) for name in nll},
        shares=_numbers("shares", content["shares"], n_options),
        mean_probability=_float("mean_probability", content["mean_probability"], 0, 1),
        temperature=_float(
            "temperature", content["temperature"], LEAST_TEMPERATURE, MOST_TEMPERATURE
        ),
        baseline=_unless_none(content["baseline"], partial(_numbers, "baseline", n=n_options)),
        empty_joint=empty_joint,
        examples=tuple(
            (check_text("an example", text), check_whole("its option", option, 0, n_options - 1))
            for text, option in check_kind("examples", content["examples"], list, "a list")
        ),
        head=head,
        threshold=_unless_none(content["threshold"], CertifiedThreshold.from_dict),
        sets=sets,
        margin=_unless_none(content["margin"], partial(_float, "margin", least=0)),
    )


def _asked(question: Mapping[str, Any]) -> AskedQuestion:
    asked = question_from(question)
    if isinstance(asked, MultiLabel):
        raise InvalidArgumentError(
            "a calibration must have a predicate for each label, got a labels question"
        )
    return asked


def _unless_none(value: Any, read: Callable[[Any], T]) -> T | None:
    return None if value is None else read(value)


def _object(name: str, value: Any) -> dict[str, Any]:
    return check_kind(name, value, dict, "an object")


def _float(name: str, value: Any, least: float = -math.inf, most: float = math.inf) -> float:
    return float(check_number(name, value, least, most))


def _numbers(name: str, values: Any, n: int) -> tuple[float, ...]:
    listed = check_several(name, values, "a list of numbers")
    numbers = tuple(_float(name, value) for value in listed)
    if len(numbers) != n:
        raise InvalidArgumentError(f"{name} must have {n} numbers, got {len(numbers)}")
    return numbers
