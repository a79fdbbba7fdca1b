"""Calibrations: what makes the probabilities of a model's answers mean what they say.

A model's own probabilities are uncalibrated: mostly too sure, and drawn to options that it likes
whatever the input. A calibration is fitted once, by :func:`~eliza_ffi.decisions.fitting.calibrate`,
for one model and one list of questions, on inputs whose right answers are known. What it does to
the probabilities P of a question's options is one of

============================  ==================================================================
method                        what is done
============================  ==================================================================
none                          nothing
temperature                   softmax(log P / T), T fitted (Guo et al. 2017), with a prior at 1
contextual                    P relative to that of inputs that say nothing (Zhao et al. 2021)
batch                         P relative to its mean over the examples (Zhou et al. 2023): right
                              only where the options are as common elsewhere as among these
unconditional                 scores relative to an empty input (SGLang; Holtzman et al. 2021)
contextual+temperature, ...   that, and then a temperature
============================  ==================================================================

:mod:`eliza_ffi.decisions.scoring` has the formulas. A temperature changes how sure answers are and
never which one is the likeliest; the others may change that, too.
"""

from __future__ import annotations

import hashlib
import math
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from ..chat.prompt import Prompt
from ..checks import check_each, check_kind, check_path, check_text, check_whole, wrong
from ..errors import InvalidArgumentError
from ..structured.json_text import json_text, read_json
from .asking import How, WritePrompt, orders_of
from .examples import named_questions
from .prompts import LABEL_STYLES, Asked, AskedQuestion, LabelStyle, ask, option_count
from .questions import Choice, Labels, Predicate, Question, Score
from .scoring import (
    LEAST_TEMPERATURE,
    MOST_TEMPERATURE,
    RULES,
    Array,
    QuestionScores,
    Rule,
    check_rule,
    relative_to,
    tempered,
)
from .wire import question_from, question_to

__all__ = [
    "METHODS",
    "Calibration",
    "CalibrationMethod",
    "QuestionCalibration",
    "as_calibration",
    "how_asked",
    "prompt_name",
    "wording_hash",
]

CalibrationMethod = Literal[
    "none",
    "temperature",
    "contextual",
    "contextual+temperature",
    "batch",
    "batch+temperature",
    "unconditional",
    "unconditional+temperature",
]
"""What can be done to the probabilities of a question's options."""

METHODS: tuple[CalibrationMethod, ...] = get_args(CalibrationMethod)
"""All of these, the simpler first."""

_PROBE_INPUT = "A first line.\nA second one."

_PROBES: tuple[AskedQuestion, ...] = (
    Predicate("It is so.", "so", if_true="it is", if_false="it is not"),
    Choice("Which?", [("one", "the first"), ("true", None), (True, None)], "which"),
    Score("How much?", [("little", "next to nothing"), "some", "much"], "much"),
)

FORMAT, VERSION = "eliza-ffi decision calibration", 1


@dataclass(frozen=True, kw_only=True)
class QuestionCalibration:
    """What is done to the probabilities of one question's options.

    Attributes
    ----------
    question : mapping
        The question as JSON, by :func:`~eliza_ffi.decisions.wire.question_to`.
    method : str
        One of :data:`METHODS`.
    n_examples : int
        How many examples it was fitted and judged on.
    nll : mapping of str to float
        For each method that was tried, the mean of -log p of the right options, by
        cross-validation: each example is judged by what was fitted without it.
    temperature : float
        1 where none was fitted.
    baseline : tuple of float, or None
        The log-probabilities that others are relative to: of inputs that say nothing, or the mean
        of the examples.
    empty_joint : tuple of tuple of float, or None
        For each order of the options the joint scores of an empty input.
    """

    question: Mapping[str, Any]
    method: CalibrationMethod
    n_examples: int
    nll: Mapping[str, float]
    temperature: float = 1.0
    baseline: tuple[float, ...] | None = None
    empty_joint: tuple[tuple[float, ...], ...] | None = None

    @property
    def is_at_bound(self) -> bool:
        """Whether the temperature stands at a bound: another one, beyond, would fit better."""
        return self.temperature in (LEAST_TEMPERATURE, MOST_TEMPERATURE)

    @cached_property
    def n_options(self) -> int:
        """How many options the question has."""
        return option_count(_asked(self.question))

    def apply(self, scores: QuestionScores, rule: Rule) -> Array:
        """Return calibrated log-probabilities, shape [n_options]; see :meth:`Calibration.apply`."""
        check_kind("scores", scores, QuestionScores, "a QuestionScores")
        for one in scores.orders:
            if len(one.legal) != self.n_options:
                raise InvalidArgumentError(
                    f"the calibration is of {self.n_options} options, not {len(one.legal)}"
                )
        if self.empty_joint is not None:
            values = scores.unconditional_log_probabilities(self.empty_joint)
        else:
            values = scores.log_probabilities(rule)
        if self.baseline is not None:
            values = relative_to(values, self.baseline)
        return tempered(values, self.temperature)


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What was fitted for one model and one list of questions.

    Attributes
    ----------
    model : str
        The model's fingerprint, by :func:`~eliza_ffi.decisions.fingerprint.fingerprint_of`.
    rule : str
        The scoring rule.
    labels : str
        What the model answers with, ``"text"`` or ``"letters"``.
    orders : int
        In how many orders the options are shown.
    prompt : str
        The name of the function that makes prompts; ``"default"`` for ours.
    questions : tuple of QuestionCalibration
        For each question with one answer; :class:`~eliza_ffi.decisions.Labels` come to as many of
        these as there are labels.
    wording : str or None
        What the prompts are known by beside that name, by :func:`wording_hash`; None where nobody
        noted it, and then it is not checked.
    """

    model: str
    rule: Rule
    labels: LabelStyle
    orders: int
    prompt: str
    questions: tuple[QuestionCalibration, ...]
    wording: str | None = None

    @property
    def needs_whole_rows(self) -> bool:
        """Whether it needs scores that take whole rows of logits."""
        return self.rule != "legal" or any(
            question.empty_joint is not None for question in self.questions
        )

    def apply(self, question_index: int, scores: QuestionScores) -> Array:
        """Return the calibrated log-probabilities of a question's options.

        Parameters
        ----------
        question_index
            Among the questions with one answer each.
        scores
            What the model said, asked in the way that :meth:`check` has checked, and with whole
            rows of logits where :attr:`needs_whole_rows`.

        Returns
        -------
        array, shape [n_options]
            Their exponentials sum to 1.

        Raises
        ------
        InvalidArgumentError
            If the scores are of other options or orders, or lack what is needed.
        """
        place = check_whole("question_index", question_index, 0, len(self.questions) - 1)
        return self.questions[place].apply(scores, self.rule)

    def check(self, model_fingerprint: str, questions: Sequence[Question], how: How) -> None:
        """Check that this was fitted for what is going to be asked.

        Parameters
        ----------
        model_fingerprint
        questions
            Compared by what they ask, in their order; their names do not matter.
        how

        Raises
        ------
        InvalidArgumentError
            If not; the text names what differs.
        """
        check_text("model_fingerprint", model_fingerprint)
        check_kind("how", how, How, "a How")
        check_each("questions", questions, (Predicate, Choice, Score, Labels), "a question")
        for what, fitted, given in (
            ("another model", self.model, model_fingerprint),
            ("other labels", self.labels, how.labels),
            ("another number of orders", self.orders, how.orders),
            ("another prompt", self.prompt, prompt_name(how.prompt)),
        ):
            if fitted != given:
                raise InvalidArgumentError(
                    f"the calibration is for {what}: {fitted!r}, not {given!r}"
                )
        if self.wording not in (None, wording_hash(how.prompt)):
            raise InvalidArgumentError(
                f"the calibration is for other prompts: those of {self.prompt!r} were worded "
                "otherwise when it was fitted"
            )
        asked = named_questions(questions)
        if len(asked) != len(self.questions):
            raise InvalidArgumentError(
                f"the calibration is for {len(self.questions)} questions, not {len(asked)}"
            )
        for (name, question), calibrated in zip(asked, self.questions, strict=True):
            given_fields, fitted_fields = question_to(question), calibrated.question
            differing = [
                field
                for field in sorted(given_fields.keys() | fitted_fields.keys())
                if field != "name" and given_fields.get(field) != fitted_fields.get(field)
            ]
            if differing:
                raise InvalidArgumentError(
                    f"the calibration is for another question than {name!r}: "
                    f"what differs is {', '.join(differing)}"
                )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a JSON file. Who reads at the same time reads all of the old one or of this.

        Raises
        ------
        OSError
            If it cannot be written; a file that was there is left as it was.
        """
        target = Path(check_path("path", path))
        content = asdict(self)
        head = {"format": FORMAT, "version": VERSION, "sha256": _digest(content)}
        text = json_text({**head, "calibration": content})
        draft = target.with_name(f"{target.name}.{uuid.uuid4().hex}.tmp")
        try:
            with draft.open("x", encoding="utf-8") as file:
                file.write(text + "\n")
                file.flush()
                os.fsync(file.fileno())
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Calibration:
        """Read what :meth:`save` wrote.

        Raises
        ------
        InvalidArgumentError
            If the file is no calibration, cut short or damaged, or of another format's version.
        OSError
            If it cannot be read.
        """
        raw = Path(check_path("path", path)).read_bytes()
        try:
            return _calibration(_content(raw))
        except (InvalidArgumentError, KeyError, OverflowError) as error:
            said = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise InvalidArgumentError(f"{path} is no usable calibration: {said}") from error


def as_calibration(given: Any, name: str = "calibration") -> Calibration | None:
    """Return a calibration given as such or as the path of its file; None stays None.

    Parameters
    ----------
    given
    name
        The argument's name.

    Raises
    ------
    InvalidArgumentError
        If it is neither, or as :meth:`Calibration.load`.
    OSError
        If the file cannot be read.
    """
    if given is None or isinstance(given, Calibration):
        return given
    if not isinstance(given, str | os.PathLike):
        raise wrong(name, "a Calibration, the path of its file or None", given)
    return Calibration.load(check_path(name, given))


def how_asked(
    calibration: Calibration | None = None,
    *,
    labels: LabelStyle | None = None,
    orders: int | None = None,
    rule: Rule | None = None,
    prompt: WritePrompt | None = None,
) -> tuple[How, Rule]:
    """Return how questions are put and scored: what is None is the calibration's, or the default.

    Raises
    ------
    InvalidArgumentError
        If one is out of range, or the rule is another than the calibration's. The rest of what it
        was fitted for is checked by :meth:`Calibration.check`.
    """
    if calibration is not None:
        labels = calibration.labels if labels is None else labels
        orders = calibration.orders if orders is None else orders
        rule = calibration.rule if rule is None else rule
    how = How("text" if labels is None else labels, 1 if orders is None else orders, prompt)
    rule = check_rule("legal" if rule is None else rule)
    if calibration is not None and rule != calibration.rule:
        raise InvalidArgumentError(
            f"the calibration is for another rule: {calibration.rule!r}, not {rule!r}"
        )
    return how, rule


def prompt_name(prompt: Any) -> str:
    """Return what a calibration knows a function that makes prompts by; None is ours."""
    if prompt is None:
        return "default"
    return str(getattr(prompt, "__qualname__", type(prompt).__qualname__))


def wording_hash(prompt: WritePrompt | None) -> str:
    """Return a hash of the prompts that come of an input and questions that are always the same.

    Two functions of one name, such as lambdas, differ in it, and so do the words of two versions
    of one. A function that fails on these is known by its error.
    """
    prompts: list[Any] = []
    for question in _PROBES:
        n_options = option_count(question)
        for labels in LABEL_STYLES:
            for order in (range(n_options), range(n_options)[::-1]):
                asked = ask(question, labels, tuple(order))
                prompts.append(_worded(prompt, asked))
    return hashlib.sha256(repr(prompts).encode("utf-8", "backslashreplace")).hexdigest()[:16]


def _worded(prompt: WritePrompt | None, asked: Asked) -> Any:
    if prompt is None:
        return f"{_PROBE_INPUT}\n\n{asked.text}"
    try:
        written = prompt(_PROBE_INPUT, asked)
    except Exception as error:  # whatever it is, it is no reason not to ask what it can
        return type(error).__name__
    if isinstance(written, str):
        return written
    if isinstance(written, Prompt):
        return written.parts
    try:
        return [dict(message) for message in written]
    except (TypeError, ValueError) as error:  # as above
        return type(error).__name__


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json_text(content).encode()).hexdigest()


def _content(raw: bytes) -> dict[str, Any]:
    """Return what is in a file, checked for damage."""
    try:
        said = read_json(raw.decode())
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"not text: {error}") from None
    if not isinstance(said, dict) or said.get("format") != FORMAT:
        raise InvalidArgumentError(f"its format is not {FORMAT!r}")
    if said.get("version") != VERSION:
        raise InvalidArgumentError(
            f"it is of version {said.get('version')!r}, and {VERSION} is what is read here"
        )
    content: dict[str, Any] = _of_kind(dict, said["calibration"], "calibration")
    if said.get("sha256") != _digest(content):
        raise InvalidArgumentError("damaged: its sha256 is another")
    return content


def _calibration(content: dict[str, Any]) -> Calibration:
    questions = _of_kind(list, content["questions"], "questions")
    wording = content.get("wording")
    how = How(labels=content["labels"], orders=_of_kind(int, content["orders"], "orders"))
    return Calibration(
        model=_of_kind(str, content["model"], "model"),
        rule=_one_of(RULES, content["rule"], "rule"),
        labels=how.labels,
        orders=how.orders,
        prompt=_of_kind(str, content["prompt"], "prompt"),
        questions=tuple(_question_calibration(each, how.orders) for each in questions),
        wording=None if wording is None else _of_kind(str, wording, "wording"),
    )


def _question_calibration(content: Any, n_orders: int) -> QuestionCalibration:
    _of_kind(dict, content, "a question")
    question = _asked(_of_kind(dict, content["question"], "question"))
    n_options = option_count(question)
    baseline, empty_joint = content["baseline"], content["empty_joint"]
    if empty_joint is not None:
        n_orders = len(orders_of(question, n_orders))
        if len(_of_kind(list, empty_joint, "empty_joint")) != n_orders:
            raise InvalidArgumentError(f"empty_joint must be of {n_orders} orders")
    nll = _of_kind(dict, content["nll"], "nll")
    method: CalibrationMethod = _one_of(METHODS, content["method"], "method")
    needed = {"contextual": "baseline", "batch": "baseline", "unconditional": "empty_joint"}
    for field in ("baseline", "empty_joint"):
        if (content[field] is not None) != (needed.get(method.partition("+")[0]) == field):
            raise InvalidArgumentError(f"{field} does not go with {method}")
    return QuestionCalibration(
        question=content["question"],
        method=method,
        n_examples=_of_kind(int, content["n_examples"], "n_examples"),
        nll={
            _one_of(METHODS, name, "nll"): _numbers([value], 1, "nll")[0]
            for name, value in nll.items()
        },
        temperature=_temperature(content["temperature"]),
        baseline=None if baseline is None else _numbers(baseline, n_options, "baseline"),
        empty_joint=None
        if empty_joint is None
        else tuple(_numbers(one, n_options, "empty_joint") for one in empty_joint),
    )


def _asked(question: Mapping[str, Any]) -> AskedQuestion:
    asked = question_from(question)
    if isinstance(asked, Labels):
        raise InvalidArgumentError("labels are calibrated as a question for each")
    return asked


def _temperature(value: Any) -> float:
    (temperature,) = _numbers([value], 1, "temperature")
    if not LEAST_TEMPERATURE <= temperature <= MOST_TEMPERATURE:
        raise InvalidArgumentError(
            f"temperature must be {LEAST_TEMPERATURE} to {MOST_TEMPERATURE}, not {temperature}"
        )
    return temperature


def _numbers(values: Any, n: int, what: str) -> tuple[float, ...]:
    _of_kind(list, values, what)
    if len(values) != n:
        raise InvalidArgumentError(f"{what} must have {n} numbers, not {len(values)}")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isinf(value):
            raise InvalidArgumentError(f"{what} must be finite numbers, not {value!r}")
    return tuple(float(value) for value in values)


def _of_kind(kind: type[Any], value: Any, what: str) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise InvalidArgumentError(f"{what} must be {kind.__name__}, not {type(value).__name__}")
    return value


def _one_of(allowed: Sequence[Any], value: Any, what: str) -> Any:
    if value not in allowed:
        raise InvalidArgumentError(f"{what} must be one of {', '.join(allowed)}, not {value!r}")
    return value
