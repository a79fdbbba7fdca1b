"""Calibrations, which make the probabilities of a model's answers match their accuracy.

A model's own probabilities are usually overconfident, and they favour some options regardless of
the input. You fit a calibration once, with :func:`~eliza_ffi.learning.calibrate`, for one model
and one list of questions, on labelled examples. For each question it changes the probabilities P of
the options by one of these methods:

============================  ==================================================================
method                        effect on the probabilities
============================  ==================================================================
none                          unchanged
temperature                   softmax(log P / T), T fitted (Guo et al. 2017), with a prior at 1
batch                         P divided by the mean of P over the examples (Zhou et al. 2023);
                              valid only if other inputs have the same proportions of options
batch+temperature             batch, then a temperature
weights                       the log-probabilities of an encoder and of the option scores times
                              fitted weights, plus a fitted constant for each option
                              (:mod:`eliza_ffi.learning.weights`); only for a model with an encoder
head                          a linear classifier on hidden states of the prompt returns the
                              probabilities (:mod:`.heads`); the options are not scored at all
head+weights                  head, and the log-probabilities of an encoder and of the option scores
                              times fitted weights; a weight of 0 means that they are not needed
frequencies                   every input gets the frequencies of the right options in the examples:
                              a last resort if everything else is worse
============================  ==================================================================

:mod:`eliza_ffi.evidence.scoring` contains the formulas. A temperature changes the confidence of an
answer, but not which option is the most probable one. The other methods can change both.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._lazy import lazy_property
from ..chat.prompt import Prompt
from ..checks import (
    check_each,
    check_kind,
    check_path,
    check_text,
    check_whole,
    wrong,
)
from ..decisions.examples import named_questions
from ..decisions.layout import (
    PROMPT_FORMATS,
    PROMPT_ORDERS,
    PromptFormat,
    PromptOrder,
    Shot,
    frame,
)
from ..decisions.probabilities import Array, Floats, adjusted, log_softmax
from ..decisions.prompt_settings import DEFAULT_PROMPT, OptionPrior, PromptSettings, WritePrompt
from ..decisions.prompts import (
    ANSWER_STYLES,
    AnswerStyle,
    AskedQuestion,
    RenderedQuestion,
    ask,
    option_count,
)
from ..decisions.questions import Choice, MultiLabel, Predicate, Question, Score, Value
from ..decisions.wire import question_from, question_to
from ..errors import InvalidArgumentError
from ..structured.json_text import json_text, read_json
from .certificates import Automation, CertifiedThreshold, ConformalSets
from .costs import Costs
from .familiarity import Familiarity
from .features import Feature
from .heads import Head
from .json_fields import Count, JsonFields, read_file, replace_file
from .question_plan import WantedHidden
from .scoring import (
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    QuestionScores,
    ScoringRule,
    check_scoring,
    with_unseen,
)
from .self_training import SelfTraining

CalibrationMethod = Literal[
    "none",
    "temperature",
    "batch",
    "batch+temperature",
    "weights",
    "head",
    "head+weights",
    "frequencies",
]
"""A method that changes the probabilities of a question's options."""

METHODS: tuple[CalibrationMethod, ...] = get_args(CalibrationMethod)
"""All methods, simpler ones first."""

_PROBE_INPUT = "A first line.\nA second one."

_PROBE_SHOTS = (Shot("An example.", 0), Shot("Another.", 1))

_PROBES: tuple[AskedQuestion, ...] = (
    Predicate("It is so.", "so", if_true="it is", if_false="it is not"),
    Choice("Which?", [("one", "the first"), ("true", None), (True, None)], "which"),
    Score("How much?", [("little", "next to nothing"), "some", "much"], "much"),
)

FORMAT, VERSION = "eliza-ffi decision calibration", 3
CASCADE_FORMAT = "eliza-ffi cascade calibration 1"


@dataclass(frozen=True, kw_only=True)
class QuestionCalibration(JsonFields):
    """Hold the calibration of one question.

    Attributes
    ----------
    question : mapping
        The question as JSON, from :func:`~eliza_ffi.decisions.question_to`.
    method : str
        One of :data:`METHODS`.
    n_examples : int
        The number of examples on which the calibration was fitted and evaluated.
    nll : mapping of str to float
        For each method that was tried, the mean of -log p of the right options in nats, by
        cross-validation: each example is evaluated with a fit that did not use it.
    temperature : float
        The fitted temperature; 1 if none was fitted.
    baseline : tuple of float, or None
        The log-probabilities that are subtracted from the log-probabilities of the options. For
        ``"batch"`` they are the logarithms of the mean probabilities over the examples. For
        ``"frequencies"`` they are the result. For ``"weights"`` they are the negative
        constants.
    weights : tuple of float, or None
        For ``"weights"`` and ``"head+weights"``, the weight of each source, an encoder first. The
        constants of the latter, and the weight of the head, are included in the head.
    examples : tuple of (str, int)
        The examples in the prompt: the texts of inputs, and the indices of the right options.
    head : Head or None
        The classifier of the methods ``"head"`` and ``"head+weights"``.
    cost : float
        The approximate cost of an input, relative to an input without a calibration: the number of
        tokens from the input on, times the number of layers that read them.
    unseen : tuple of (int, float)
        With the method ``"head+weights"``, the options without an example, each with a factor by
        which the odds of the model's own probability are multiplied.
    threshold : CertifiedThreshold or None
        The probability above which few answers are wrong, if a risk was given.
    sets : ConformalSets or None
        The sets of options that rarely miss the right one, if a risk was given.
    familiarity : Familiarity or None
        Marks inputs that are unlike the examples. None without a head, and if an older version
        fitted the calibration.
    recentred : int or None
        For another wording of the question, the number of inputs that the head was re-centred on,
        0 before that; see :mod:`.rewording`. None for the wording of the fit.
    rows : SelfTraining or None
        The result of learning from unlabelled rows, if there were any. The other methods then start
        from the improved probabilities instead of the model's own.
    automation : Automation or None
        The accuracy, and the share of answers that need no person, on examples that the fit did not
        use (by cross-validation, or the half for the risk). None without labelled examples.
    costs : Costs or None
        The costs of the answers. With costs, the answer is the option with the least expected cost
        instead of the most probable one.
    """

    question: Mapping[str, Any]
    method: CalibrationMethod
    n_examples: Count
    nll: Mapping[CalibrationMethod, float]
    temperature: Annotated[float, (MIN_TEMPERATURE, MAX_TEMPERATURE)] = 1.0
    baseline: tuple[float, ...] | None = None
    weights: tuple[float, ...] | None = None
    examples: tuple[tuple[str, Count], ...] = ()
    head: Head | None = None
    cost: Annotated[float, (0.0,)] = 1.0
    unseen: tuple[tuple[Count, Annotated[float, (1e-300, 1.0)]], ...] = ()
    threshold: CertifiedThreshold | None = None
    sets: ConformalSets | None = None
    familiarity: Familiarity | None = None
    recentred: Count | None = None
    rows: SelfTraining | None = None
    automation: Automation | None = None
    costs: Costs | None = None

    @property
    def shots(self) -> tuple[Shot, ...]:
        """The examples in the prompt."""
        return tuple(Shot(text, option) for text, option in self.examples)

    @property
    def is_at_bound(self) -> bool:
        """Whether the temperature is at a bound. A temperature beyond the bound may fit better."""
        return self.temperature in (MIN_TEMPERATURE, MAX_TEMPERATURE)

    @lazy_property
    def asked(self) -> AskedQuestion:
        """The question."""
        return asked_question(self.question)

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features of the prompt that the heads need."""
        heads = (self.head, None if self.rows is None else self.rows.head)
        return tuple(dict.fromkeys(f for each in heads if each is not None for f in each.features))

    @property
    def scores_options(self) -> bool:
        """Whether it needs the scores of the options."""
        if self.rows is not None and self.rows.head is not None:
            return True
        if self.method == "head+weights":
            return self.weights is not None and self.weights[-1] != 0
        return self.method != "head"

    @property
    def needs_inputs(self) -> bool:
        """Whether the head can be re-centred on inputs, and is not yet."""
        return self.recentred == 0 and self.familiarity is not None

    def is_unfamiliar(self, scores: QuestionScores) -> bool | None:
        """Return whether an input is unlike the examples of the fit; None if it is not known."""
        if self.familiarity is None or self.recentred == 0 or scores.hidden is None:
            return None
        assert self.head is not None
        return self.familiarity.is_unfamiliar(self._states(self.head, scores)[:, 0])

    @property
    def values(self) -> tuple[Value, ...]:
        """The values of the options, or the labels of a score's levels."""
        return self.asked.values

    @property
    def n_options(self) -> int:
        """The number of options of the question."""
        return len(self.values)

    def apply(self, scores: QuestionScores, scoring: ScoringRule) -> Array:
        """Return the calibrated log-probabilities; see :meth:`Calibration.apply`."""
        check_kind("scores", scores, QuestionScores, "a QuestionScores")
        if self.head is not None and self.weights is None:
            return self._of_head(self.head, scores)
        for one in scores.orders:
            if len(one.constrained) != self.n_options:
                raise InvalidArgumentError(
                    f"scores: expected {self.n_options} options, got {len(one.constrained)}"
                )
        if self.method == "frequencies":
            return np.array(self.baseline)
        own = values = self._own(scores, check_scoring(scoring))
        if self.weights is not None:
            values = self._weighted(self.weights, scores, scoring)
        if self.head is not None:
            values = self._of_head(self.head, scores, values)
            return with_unseen(values, own, dict(self.unseen))
        return adjusted(values, self.baseline, self.temperature)

    def sets_of(self, probabilities: Array) -> Sequence[Sequence[int]]:
        """Return the options that may be right, for each row; for a score, a range of levels."""
        assert self.sets is not None
        is_score = isinstance(self.asked, Score)
        return (self.sets.intervals if is_score else self.sets.sets)(probabilities)

    def answers(self, probabilities: Array) -> NDArray[np.intp]:
        """Return the answers, as indices of options; `probabilities` has a row for each input."""
        if self.costs is not None:
            return self.costs.answers(probabilities)
        most: NDArray[np.intp] = probabilities.argmax(axis=1)
        return most

    def certifies(self, probabilities: Array) -> NDArray[np.bool_]:
        """Return which of the answers are certified; none without a threshold."""
        if self.threshold is None:
            return np.full(len(probabilities), False)
        return self.threshold.certifies(probabilities, self.costs)

    def _own(self, scores: QuestionScores, scoring: ScoringRule) -> Array:
        """Return the model's own log-probabilities, improved by unlabelled rows if any."""
        own = scores.log_probabilities(scoring)
        if self.rows is None or self.rows.head is None:
            return own
        improved: Array = self.rows.improved(own[None], self._states(self.rows.head, scores)[0])[0]
        return improved

    def _weighted(
        self, weights: tuple[float, ...], scores: QuestionScores, scoring: ScoringRule
    ) -> Array:
        if not self.scores_options:  # they may have been read for other methods
            weights, scores = weights[:-1], replace(scores, orders=())
        has_learned = self.rows is not None and self.rows.head is not None
        sources = [self._own(scores, scoring)] if has_learned else scores.sources(scoring)
        if len(sources) != len(weights):
            raise InvalidArgumentError(
                f"scores: expected {len(weights)} sources, got {len(sources)}"
            )
        return log_softmax(np.array(weights) @ np.array(sources))

    def _of_head(self, head: Head, scores: QuestionScores, more: ArrayLike = 0.0) -> Array:
        result: Array = head.log_probabilities(self._states(head, scores), more)[0]
        return result

    def _states(self, head: Head, scores: QuestionScores) -> Floats:
        """Return the features of a head, shape [n_features, 1, n_embd]."""
        every = self.features
        expected = (len(every), head.weights.shape[1])
        if scores.hidden is None or scores.hidden.shape != expected:
            got = "none" if scores.hidden is None else f"shape {list(scores.hidden.shape)}"
            raise InvalidArgumentError(
                f"scores: the head needs hidden states of shape {list(expected)}, got {got}"
            )
        return scores.hidden[[every.index(each) for each in head.features], None]

    def _check(self) -> None:
        needed = {_FIELD_OF_METHOD.get(part) for part in self.method.split("+")}
        if self.method == "weights":
            needed.add("baseline")
        for part in ("baseline", "weights", "head"):
            if (getattr(self, part) is not None) != (part in needed):
                verb = "needs" if part in needed else "does not use"
                raise InvalidArgumentError(f"the method {self.method} {verb} {part}")
        heads = {"head": self.head, "rows": self.rows and self.rows.head}
        sizes: dict[str, Any] = {part: head and len(head.bias) for part, head in heads.items()}
        sizes["costs"] = self.costs and len(self.costs.matrix)
        sizes["sets"] = self.sets and self.sets.n_options
        sizes["baseline"] = None if self.baseline is None else len(self.baseline)
        for part, n in sizes.items():
            if n not in (None, self.n_options):
                raise InvalidArgumentError(f"{part} must have {self.n_options} options, got {n}")
        largest = None if self.costs is None else self.costs.largest
        if self.threshold is not None and self.threshold.largest_cost != largest:
            raise wrong(
                "largest_cost", f"that of the costs, {largest}", self.threshold.largest_cost
            )
        if self.weights is not None and len(self.weights) not in (1, 2):
            raise InvalidArgumentError(f"weights: expected 1 or 2, got {len(self.weights)}")
        for k in (*(option for _, option in self.examples), *(k for k, _ in self.unseen)):
            check_whole("an option", k, 0, self.n_options - 1)

    @classmethod
    def from_dict(cls, data: Any) -> QuestionCalibration:
        read = super().from_dict(data)
        if read.familiarity is None or read.head is None:
            return replace(read, familiarity=None)
        return replace(read, familiarity=read.familiarity.shaped(len(read.head.features)))


@dataclass(frozen=True, kw_only=True)
class LabelsThreshold(JsonFields):
    """Hold the certified threshold for the whole answer to a question with several labels.

    Attributes
    ----------
    first, n : int
        The first of the question's labels among the questions of the calibration, and their number.
    threshold : CertifiedThreshold
        The lowest certified product of the probabilities of all labels' answers. Above it, few
        answers have a wrong label.
    """

    first: Count
    n: Annotated[int, (1,)]
    threshold: CertifiedThreshold

    @property
    def parts(self) -> range:
        """The labels, as indices of the questions of the calibration."""
        return range(self.first, self.first + self.n)


@dataclass(frozen=True, kw_only=True)
class SuspiciousLabel:
    """Hold an example whose label is probably wrong (confident learning, Northcutt et al. 2021).

    Attributes
    ----------
    question : str
        The name of the question, as :func:`~eliza_ffi.decisions.examples.named_questions` returns
        it.
    row : int
        The index of the example.
    input : str
    given, expected : value
        The answer of the example, and the most probable answer.
    probability : float
        The probability of the given answer, from a fit that did not use the example.
    """

    question: str
    row: int
    input: str
    given: Value
    expected: Value
    probability: float


@dataclass(frozen=True, kw_only=True)
class Calibration(JsonFields):
    """Hold a calibration for one model and one list of questions.

    >>> rows = [("I was charged twice.", "billing"), ("I cannot sign in.", "login")] * 10
    >>> calibration = calibrate(model, Choice("Which team?", ["billing", "login"]), rows)
    >>> calibration.save("team.json")
    >>> copies = [Calibration.load("team.json"), Calibration.from_text(calibration.to_text())]
    >>> copies.append(Calibration.from_dict(calibration.to_dict()))
    >>> {each.digest for each in copies} == {calibration.digest}
    True
    >>> calibration.can_certify, calibration.is_prior, calibration.knows_unfamiliar
    (False, False, True)
    >>> calibration.asked[0].values, calibration.prompt_arguments()["orders"]
    (('billing', 'login'), 1)

    Attributes
    ----------
    model : str
        The fingerprint of the model.
    scoring : str
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
    labels : tuple of LabelsThreshold
        One for each :class:`~eliza_ffi.decisions.MultiLabel`, if a risk was given.
    wording : str or None
        The hash of the prompts, from :func:`wording_hash`. If it is None, only the name of the
        function is checked.
    suspicious_labels : tuple of SuspiciousLabel
        The examples of the fit whose label is not the most probable one, sorted by the probability
        of the label relative to its mean over the examples with this label, lowest first. They are
        not written to files.
    """

    model: str
    scoring: ScoringRule
    answer_style: AnswerStyle
    orders: int
    prompt: str
    questions: tuple[QuestionCalibration, ...]
    labels: tuple[LabelsThreshold, ...] = ()
    prompt_order: PromptOrder = "input-first"
    prompt_format: PromptFormat = "chat"
    prior: OptionPrior = "none"
    wording: str | None = None
    suspicious_labels: tuple[SuspiciousLabel, ...] = field(default=(), compare=False, repr=False)

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
        """Whether it needs full scores, which are computed from whole rows of logits."""
        return self.scoring != "constrained" and any(
            question.scores_options for question in self.questions
        )

    @property
    def asked(self) -> tuple[AskedQuestion, ...]:
        """The questions that it was fitted for. Each label of a `MultiLabel` is a predicate."""
        return tuple(each.asked for each in self.questions)

    @property
    def needs_inputs(self) -> bool:
        """Whether inputs can re-centre a head."""
        return any(each.needs_inputs for each in self.questions)

    @property
    def is_prior(self) -> bool:
        """Whether it was fitted without labelled examples, such as a prior of inputs.

        It makes answers less biased, but does not calibrate their probabilities.
        """
        return not any(question.nll for question in self.questions)

    @property
    def can_certify(self) -> bool:
        """Whether it was fitted with a risk, so that answers can be certified."""
        return all(question.threshold is not None for question in self.questions)

    @property
    def knows_unfamiliar(self) -> bool:
        """Whether it marks inputs that are unlike the examples of the fit."""
        return any(question.familiarity is not None for question in self.questions)

    def threshold_of_labels(self, parts: range) -> CertifiedThreshold | None:
        """Return the certified threshold for the whole answer to a question with these labels."""
        return next((each.threshold for each in self.labels if each.parts == parts), None)

    @property
    def wanted_hidden(self) -> WantedHidden | None:
        """The hidden states that the heads need; None if there is no head."""
        features = tuple(each.features for each in self.questions)
        is_scored = tuple(each.scores_options for each in self.questions)
        return WantedHidden(features, is_scored) if any(features) else None

    def apply(self, question_index: int, scores: QuestionScores) -> Array:
        """Return the calibrated log-probabilities of a question's options, shape [n_options].

        `scores` are for the model, questions and settings that :meth:`check` accepts. If
        :attr:`needs_whole_rows` is true, they contain full scores.
        """
        index = check_whole("question_index", question_index, 0, len(self.questions) - 1)
        return self.questions[index].apply(scores, self.scoring)

    def check(
        self, model_fingerprint: str, questions: Sequence[Question], settings: PromptSettings
    ) -> None:
        """Check that the calibration was fitted for this model, these questions and settings.

        The questions are compared in order, without their names. If anything differs,
        InvalidArgumentError names the difference.
        """
        check_text("model_fingerprint", model_fingerprint)
        check_kind("settings", settings, PromptSettings, "a PromptSettings")
        check_each("questions", questions, (Predicate, Choice, Score, MultiLabel), "a question")
        (model, encoder), (of_model, of_encoder) = (
            (each.partition("+")[::2]) for each in (self.model, model_fingerprint)
        )
        pairs = {"model": (model, of_model), "encoder": (encoder or None, of_encoder or None)}
        pairs |= {
            name: (getattr(self, name), found) for name, found in settings.described().items()
        }
        for name, (fitted, found) in pairs.items():
            if fitted != found:
                what = "number of orders" if name == "orders" else name.replace("_", " ")
                raise InvalidArgumentError(
                    f"the calibration is for another {what}: expected {fitted!r}, got {found!r}"
                )
        if self.wording not in (None, wording_hash(settings.prompt)):
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
            if settings.shots_of(question) != calibrated.shots:
                raise InvalidArgumentError(
                    f"the calibration is for other examples in the prompt of {name!r}"
                )

    @property
    def digest(self) -> str:
        """A hash of the calibration."""
        return _digest(self.to_dict())

    def _check(self) -> None:
        PromptSettings(  # checks the values
            answer_style=self.answer_style,
            orders=self.orders,
            order=self.prompt_order,
            format=self.prompt_format,
            prior=self.prior,
        )
        for each in self.labels:
            check_whole("labels", each.first + each.n, 1, len(self.questions))

    def to_text(self) -> str:
        """Return the calibration as the text of its file."""
        head = {"format": FORMAT, "version": VERSION, "sha256": self.digest}
        return json_text({**head, "calibration": self.to_dict()})

    @classmethod
    def from_text(cls, text: str | bytes) -> Calibration:
        """Read a text that :meth:`to_text` returned."""
        try:
            raw = text if isinstance(text, bytes) else check_text("text", text).encode()
            return cls.from_dict(_content(raw))
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
            If the file cannot be read; :class:`~eliza_ffi.errors.MissingFileError` if it does not
            exist.
        """
        return read_file(path, "calibration", cls.from_text)


def as_calibration(calibration: Any) -> Calibration | None:
    """Return a calibration; read it from its file if a path is given. None stays None."""
    if calibration is None or isinstance(calibration, Calibration):
        return calibration
    expected = "a Calibration, the path of a calibration file or None"
    check_kind("calibration", calibration, (str, os.PathLike), expected)
    return Calibration.load(check_path("calibration", calibration))


def scoring_of(calibration: Calibration | None, scoring: ScoringRule | None) -> ScoringRule:
    """Return `scoring`, or else the calibration's scoring rule, or else ``"constrained"``."""
    if calibration is None:
        return check_scoring("constrained" if scoring is None else scoring)
    if scoring is not None and check_scoring(scoring) != calibration.scoring:
        raise InvalidArgumentError(
            f"the calibration is for another scoring: expected {calibration.scoring!r}, "
            f"got {scoring!r}"
        )
    return calibration.scoring


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
    if isinstance(file, dict) and file.get("format") == CASCADE_FORMAT:
        raise InvalidArgumentError("it is a calibration of a cascade: pass --then, or a Cascade")
    if not isinstance(file, dict) or file.get("format") != FORMAT:
        raise InvalidArgumentError(f"the field 'format' must be {FORMAT!r}")
    if file.get("version") != VERSION:
        raise InvalidArgumentError(f"expected version {VERSION}, got {file.get('version')!r}")
    content: dict[str, Any] = check_kind("calibration", file["calibration"], dict, "an object")
    if file.get("sha256") != _digest(content):
        raise InvalidArgumentError("damaged: the field 'sha256' does not match the contents")
    return content


_FIELD_OF_METHOD = {
    "batch": "baseline",
    "frequencies": "baseline",
    "weights": "weights",
    "head": "head",
}


def asked_question(question: Mapping[str, Any]) -> AskedQuestion:
    asked = question_from(question)
    if isinstance(asked, MultiLabel):
        raise InvalidArgumentError(
            "a calibration must have a predicate for each label, got a labels question"
        )
    return asked
