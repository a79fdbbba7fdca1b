r"""Cascades: ask a cheap source first, and the next one only if the answer may still change.

After s sources, the log-probabilities of a question's options are

.. math:: \log p_k \propto b_{sk} + \sum_{j \le s} w_{sj} z_{jk}

z are the log-probabilities of a source, w its weight, and b a constant for each option. A question
ends at the first source after which the most probable option reaches a threshold.
:mod:`eliza_ffi.learning.cascades` fits w, b and the threshold. Without a fit, the weights are
:data:`.scoring.DEFAULT_WEIGHTS`. The answers of a Python function are final.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from ..checks import check_kind, check_number, check_path, check_several, wrong
from ..decisions.answers import Decision, DecisionUsage, answer_of, collect, expand, parts_of
from ..decisions.examples import UNLABELLED, named_questions, read_examples
from ..decisions.fingerprint import fingerprint_once
from ..decisions.probabilities import Array, log_softmax
from ..decisions.prompts import AskedQuestion, check_one_input, option_count
from ..decisions.questions import Choice, Question, Score
from ..decisions.wire import as_questions, question_to
from ..errors import InvalidArgumentError, NotSupportedError
from ..session.batches import kept_or_raised, run_many
from ..session.requests import check_prompts
from ..session.task import Task
from ..structured.json_text import json_text, read_json
from .calibration import CASCADE_FORMAT, Calibration, asked_question
from .comparing import only_compares
from .deciding import DecisionPlan, plan_of
from .json_fields import Count, JsonFields, Share, read_file, replace_file
from .reasoning import decision_task, inputs_at_once, question_task
from .scoring import default_weights

Said: TypeAlias = "Array | int | None"
"""A source's result for a question: log-probabilities, the index of the answer, or None."""

Target = Literal["agreement", "accuracy", "precision", "recall"]

TARGETS: tuple[Target, ...] = get_args(Target)

PROMPTS = ("answer_style", "orders", "prompt_order", "prompt_format", "prior")

NO_USAGE = DecisionUsage(0, 0, 0, 0.0)


@dataclass(frozen=True, kw_only=True)
class StagesOfQuestion(JsonFields):
    """Hold what was fitted for one question of a cascade.

    Attributes
    ----------
    question : mapping
        The question as JSON.
    weights, constants : tuple of tuple of float
        For each number of models that were asked: the weight of each model, and what is added to
        the log-probability of each option.
    threshold : float
        The question ends if its most probable option has at least this probability.
    abstains : bool
        Whether the answer is for review if even the last source does not reach the threshold.
    n, n_wrong : int
        How many rows certified the threshold, and how many of them missed the target.
    early : float
        The share of these rows that ended before the last source.
    """

    question: Mapping[str, Any]
    weights: tuple[tuple[float, ...], ...]
    constants: tuple[tuple[float, ...], ...]
    threshold: float
    abstains: bool
    n: Count
    n_wrong: Count
    early: Share


@dataclass(frozen=True, kw_only=True)
class CascadeCalibration(JsonFields):
    """Hold the thresholds of a cascade, from :func:`~eliza_ffi.learning.calibrate`.

    Attributes
    ----------
    sources : tuple of mapping
        For each source, its fingerprint or name, and the settings of its prompts. If a source was
        fitted to the last source's answers, `calibration` is its calibration as JSON.
    questions : tuple of StagesOfQuestion
        One for each question with a single answer.
    target, at, option, confidence
        What was certified: the target, of this option, is at least `at`.
    n_answers : int
        How many rows the last source has answered for the certificate.
    n_taught : int
        How many answers of the last source the first source was fitted to.
    """

    sources: tuple[Mapping[str, Any], ...]
    questions: tuple[StagesOfQuestion, ...]
    target: Target
    at: float
    confidence: float
    option: str | None = None
    n_answers: int = 0
    n_taught: int = 0

    is_prior = False

    @property
    def asked(self) -> tuple[AskedQuestion, ...]:
        """The questions that it was fitted for. Labels are a predicate for each label."""
        return tuple(asked_question(each.question) for each in self.questions)

    def __str__(self) -> str:
        of = "" if self.option is None else f" of {self.option!r}"
        lines = [
            f"{each.question.get('name') or each.question['instructions']}: the {self.target}{of} "
            f"is at least {self.at:.1%} with {self.confidence:.0%} confidence if a row ends at a "
            f"probability of {each.threshold:g}{', or is for review' if each.abstains else ''} "
            f"({each.n_wrong:,} of {each.n:,} rows missed it). {each.early:.0%} of the rows ended "
            "before the last source."
            for each in self.questions
        ]
        lines.append(f"The last source has answered {self.n_answers:,} rows for this.")
        if self.n_taught:
            lines.append(f"{self.n_taught:,} more of its answers have taught the first source.")
        return "\n".join(lines)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the calibration to a JSON file, which is replaced atomically."""
        content = json_text({"format": CASCADE_FORMAT, **self.to_dict()})
        replace_file(Path(check_path("path", path)), content + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CascadeCalibration:
        """Read a file that :meth:`save` wrote; raise InvalidArgumentError if it is damaged."""

        def read(raw: bytes) -> CascadeCalibration:
            content = read_json(raw.decode("utf-8", "replace"))
            if not isinstance(content, dict) or content.pop("format", None) != CASCADE_FORMAT:
                raise InvalidArgumentError(f"the field 'format' must be {CASCADE_FORMAT!r}")
            return cls.from_dict(content)

        return read_file(path, "calibration of a cascade", read)


@dataclass(frozen=True, eq=False)
class Reading:
    """The results of a source for one input, one for each question.

    `cpu_seconds` is the CPU time of this process, divided equally over the inputs of a batch.
    """

    said: tuple[Said, ...]
    usage: DecisionUsage = NO_USAGE
    reasoning: str | None = None
    cpu_seconds: float = 0.0


def _with_cpu_time(readings: Sequence[Any], begin: float) -> list[Any]:
    """Divide the CPU time since `begin` over the readings of a batch."""
    n = sum(isinstance(each, Reading) for each in readings)
    seconds = time.process_time() - begin
    return [
        replace(each, cpu_seconds=seconds / n) if isinstance(each, Reading) else each
        for each in readings
    ]


Opened: TypeAlias = "tuple[Callable[..., list[Any]], dict[str, Any]]"
"""A function that returns a Reading for each input, and the description of the source."""


class ModelSource:
    """A model with the keyword arguments of its decisions.

    If a `name` is given, `model` is a function that returns a context manager, which opens it.
    """

    compares: bool | None = None
    """Whether it is an encoder or a reranker; None before it was open."""

    rows_at_once: int | None = None
    """How many rows of a table it reads together; None = the default of its kind."""

    def __init__(
        self, model: Any, settings: Mapping[str, Any] | None = None, name: str | None = None
    ) -> None:
        self.settings, self.name = dict(settings or {}), name or str(model.path)
        self.open: Callable[[], AbstractContextManager[Any]] = (
            partial(nullcontext, model) if name is None else model
        )

    @contextmanager
    def opened(
        self, questions: Sequence[Question], fitted: Mapping[str, Any] | None, sample: Sequence[Any]
    ) -> Iterator[Opened]:
        """Open the model for questions; `fitted` is its description in a calibration."""
        with self.open() as model:
            settings = self._settings_for(model.session, fitted)
            plan = plan_of(model.session, questions, settings, "decide", sample)
            prompts = plan.settings.prompts.described()
            found = {
                "source": fingerprint_once(model.session),
                "prompts": {name: prompts[name] for name in PROMPTS},
            }
            if fitted is not None and "calibration" in fitted:
                found["calibration"] = fitted["calibration"]
            yield partial(_read, model.session, plan), found

    async def read_async(
        self,
        questions: Sequence[Question],
        fitted: Mapping[str, Any] | None,
        input: Any,
        timeout: float | None,
    ) -> Reading:
        """Read one input in an event loop; cancelling the task ends the request."""
        said: list[Sequence[Any]] = []

        def prepare(model: Any) -> Task[Decision[Any]]:
            settings = self._settings_for(model.session, fitted)

            def keep(found: Sequence[Any], _: Any) -> None:
                said.append(found)

            return question_task(model, input, questions, settings, timeout, on_scores=keep)

        with self.open() as model:
            task = await model.session.helpers.run(prepare, model)
            decision = await task.run_async()
        return Reading(tuple(said[0]), decision.usage, decision.reasoning)

    def _settings_for(self, session: Any, fitted: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the settings, with a calibration's settings if given. It must fit this model."""
        self.compares, own = only_compares(session), fingerprint_once(session)
        if fitted is None:
            return self.settings
        if fitted["source"] != own:
            raise InvalidArgumentError(
                f"the calibration of the cascade is for another model than {self.name}: "
                f"expected {fitted['source']}, got {own}"
            )
        if (taught := fitted.get("calibration")) is not None:
            return {**self.settings, "calibration": _taught(taught)}
        if self.settings.get("calibration") is not None:
            return self.settings
        return {**self.settings, **fitted["prompts"]}


@lru_cache(maxsize=64)
def _taught(text: str) -> Calibration:
    return Calibration.from_text(text)


def _read(
    session: Any,
    plan: DecisionPlan,
    inputs: Sequence[Any],
    on_error: Callable[[int, Exception], Any],
    progress: Callable[[int, int | None], Any] | None = None,
    max_concurrency: int | None = None,
) -> list[Any]:
    logs: dict[int, Sequence[Any]] = {}
    begin = time.process_time()

    def task(numbered: tuple[int, Any]) -> Any:
        place, input = numbered

        def keep(found: Sequence[Any], _: Any) -> None:
            logs[place] = found

        return decision_task(session, input, plan, at_once=max_concurrency, on_scores=keep)

    found = run_many(
        plan.question_plan.ahead(enumerate(inputs), lambda each: each[1]),
        task,
        at_once=inputs_at_once(session, plan.settings.think, max_concurrency),
        total=len(inputs),
        progress=progress,
        on_error=on_error,
    )
    readings = [
        Reading(tuple(logs[i]), each.usage, each.reasoning) if isinstance(each, Decision) else each
        for i, each in enumerate(found)
    ]
    return _with_cpu_time(readings, begin)


class FunctionSource:
    """A function of a list of inputs and the questions, which returns the answers to each input.

    Answers are in the form that :func:`~eliza_ffi.decisions.examples.read_examples` accepts; None =
    no answer.
    """

    compares = None
    rows_at_once = None
    settings: Mapping[str, Any] = {}

    def __init__(self, function: Callable[[list[Any], tuple[Question, ...]], Any]) -> None:
        self._function = function
        self.name = getattr(function, "__name__", type(function).__name__)

    @contextmanager
    def opened(
        self, questions: Sequence[Question], fitted: Mapping[str, Any] | None, sample: Sequence[Any]
    ) -> Iterator[Opened]:
        yield partial(self._read, questions), {"source": self.name, "prompts": {}}

    async def read_async(
        self, questions: Sequence[Question], fitted: Any, input: Any, timeout: float | None
    ) -> Reading:
        """Call the function on a thread."""
        (found,) = await asyncio.to_thread(self._read, questions, [input])
        reading: Reading = found
        return reading

    def _read(self, questions: Sequence[Question], inputs: Sequence[Any], **_: Any) -> list[Any]:
        begin = time.process_time()
        answers = list(self._function(list(inputs), tuple(questions)))
        try:
            if len(answers) != len(inputs):
                raise InvalidArgumentError(f"expected {len(inputs)} answers, got {len(answers)}")
            answers = [{} if each is None else each for each in answers]
            rows = read_examples(questions, zip(inputs, answers, strict=True)).targets.tolist()
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"the function {self.name}: {error}") from None
        said = [tuple(None if each == UNLABELLED else each for each in row) for row in rows]
        return _with_cpu_time([Reading(each) for each in said], begin)


class CascadePlan:
    """The questions of a cascade, and when their answers are final.

    `calibration` may be the path of its file. `readings` has the results of the sources that were
    asked, for each question.
    """

    def __init__(
        self, cascade: Cascade, questions: Any, calibration: Any = None, min_probability: float = 0
    ) -> None:
        self.questions, self.sources = as_questions(questions), cascade.sources
        self.calibration, self._below = as_cascade_calibration(calibration), cascade.below
        self._every = [part for question in self.questions for part in expand(question)]
        if any(isinstance(each, Choice) and each.has_many_options for each in self._every):
            raise NotSupportedError(
                "a cascade needs the probabilities of all options: expected at most 255 options"
            )
        if self.calibration is not None:
            asked = [question_to(question) for _, question in named_questions(self.questions)]
            both = (asked, [each.question for each in self.calibration.questions])
            ours, fitted = ([{**each, "name": None} for each in one] for one in both)
            if ours != fitted:
                raise InvalidArgumentError("the calibration of the cascade is for other questions")
            if (n := len(self.calibration.sources)) != len(self.sources):
                raise InvalidArgumentError(
                    f"the calibration is for {n} sources, got {len(self.sources)}"
                )
        self._min_probability = check_number("min_probability", min_probability, 0, 1)

    def fitted(self, stage: int) -> Mapping[str, Any] | None:
        return None if self.calibration is None else self.calibration.sources[stage]

    def _after(self, place: int, said: Sequence[Said]) -> Array:
        """Return the log-probabilities of a question's options after some sources."""
        n_options = option_count(self._every[place])
        if answers := [each for each in said if isinstance(each, int)]:
            final = np.full(n_options, -np.inf)
            final[answers[-1]] = 0.0
            return final
        pairs = zip(said, self.sources, strict=False)  # not all sources have been asked
        read = [(each, bool(of.compares)) for each, of in pairs if isinstance(each, np.ndarray)]
        if not read:
            return log_softmax(np.zeros(n_options))
        logs = np.array([each for each, _ in read])
        if self.calibration is None:
            is_score = isinstance(self._every[place], Score)
            return log_softmax(np.array(default_weights([of for _, of in read], is_score)) @ logs)
        fitted, n = self.calibration.questions[place], len(read) - 1
        return log_softmax(np.array(fitted.weights[n]) @ logs + np.array(fitted.constants[n]))

    def _ended(self, place: int, readings: Sequence[Sequence[Said]]) -> tuple[Array, bool]:
        """Return a question's log-probabilities where it ended, and whether it was sure."""
        calibration = self.calibration
        least = self._below if calibration is None else calibration.questions[place].threshold
        said = [each[place] for each in readings]
        for n in range(1, len(said) + 1):
            log_p = self._after(place, said[:n])
            if np.exp(log_p).max() >= least:
                return log_p, True
        return log_p, False

    def is_open(self, readings: Sequence[Sequence[Said]]) -> bool:
        """Return whether the next source can change the answer to a question."""
        every = range(len(self._every))
        return len(readings) < len(self.sources) and not all(
            self._ended(place, readings)[1] for place in every
        )

    def decision(
        self,
        readings: Sequence[Sequence[Said]],
        usage: DecisionUsage = NO_USAGE,
        reasoning: str | None = None,
    ) -> Decision[Any]:
        singles = []
        for place, part in enumerate(self._every):
            log_p, is_sure = self._ended(place, readings)
            calibration = self.calibration
            abstains = calibration is not None and calibration.questions[place].abstains
            abstained = not is_sure and (abstains or readings[-1][place] is None)
            p, least = np.exp(log_p).tolist(), self._min_probability
            singles.append(answer_of(part, p, None, least, abstained=abstained))
        answers = [
            collect(question, [singles[i] for i in parts])
            for _, question, parts in parts_of(self.questions)
        ]
        is_calibrated = self.calibration is not None
        return Decision(tuple(answers), usage, is_calibrated, reasoning, stage=len(readings))


class Cascade:
    """Ask cheap sources first, and the next one only if the answer may still change.

    >>> cascade = Cascade([model, (model, {"orders": 2})], below=0.9)
    >>> len(cascade.names)
    2

    Parameters
    ----------
    sources
        The sources, cheapest first. A source is an open :class:`~eliza_ffi.Model`, a pair of a
        model and keyword arguments of :meth:`~eliza_ffi.Model.decide`, such as ``(model, {"orders":
        8})`` or ``(model, {"think": 100})``, or a function ``f(inputs, questions)``. For each
        input, the function returns the answer, a mapping from the names of the questions to
        answers, or None.
    below
        Without a calibration, the next source is asked if an answer has a lower probability than
        this; 1 = ask all sources.
    """

    def __init__(self, sources: Iterable[Any], *, below: float = 1.0) -> None:
        listed = check_several("sources", sources, "a list of models and functions")
        self.sources = tuple(map(_source, listed))
        if not self.sources:
            raise wrong("sources", "one or more sources", [])
        self.below = float(check_number("below", below, 0, 1))

    def __repr__(self) -> str:
        return f"Cascade({', '.join(each.name for each in self.sources)})"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the sources; a repeated name has its number."""
        every = [each.name for each in self.sources]
        return tuple(
            name if every.count(name) == 1 else f"{name} ({number})"
            for number, name in enumerate(every, 1)
        )

    def decide(self, input: Any, questions: Any, **settings: Any) -> Decision[Any]:
        """Answer questions about an input. The settings are as for :meth:`decide_many`.

        >>> question = Choice("Which team?", ["billing", "login"])
        >>> cascade.decide("I paid twice!", question)[0].value
        'billing'
        """
        check_one_input(input)
        return self.decide_many([input], questions, **settings)[0]

    def decide_many(
        self,
        inputs: Iterable[Any],
        questions: Any,
        *,
        calibration: Any = None,
        min_probability: float = 0.0,
        return_exceptions: bool = False,
        **more: Any,
    ) -> list[Decision[Any]]:
        """Answer the same questions about many inputs, and return all answers in order.

        A source reads all open inputs before the next one begins. It is asked all questions, but a
        question that is already sure keeps its answer.

        >>> question = Predicate("Is the writer angry?")
        >>> len(cascade.decide_many(["Thank you!", "I am furious!"], question))
        2

        Parameters
        ----------
        inputs, questions, min_probability, return_exceptions
            As :meth:`Model.decide_many <eliza_ffi.Model.decide_many>`.
        calibration
            A :class:`~eliza_ffi.evidence.CascadeCalibration` or the path of its file.
        **more
            `max_concurrency`, and `progress` for each source.
        """
        plan = CascadePlan(self, questions, calibration, min_probability)
        listed = list(check_prompts(inputs, "decide", "inputs"))
        on_error = kept_or_raised(return_exceptions, "inputs")
        found = read_inputs(plan, listed, on_error, **more)
        return [decision_of(plan, each) if isinstance(each, list) else each for each in found]

    async def decide_async(
        self,
        input: Any,
        questions: Any,
        *,
        calibration: Any = None,
        min_probability: float = 0.0,
        timeout: float | None = None,
    ) -> Decision[Any]:
        """Do the same as :meth:`decide` in an event loop.

        A source may also be an :class:`~eliza_ffi.AsyncModel`. Functions are called on a thread.
        `timeout` is the limit in seconds for each source. Cancelling the task ends the request.

        >>> question = Choice("Which team?", ["billing", "login"])
        >>> asyncio.run(cascade.decide_async("I paid twice!", question))[0].choice
        'billing'
        """
        check_one_input(input)
        plan = CascadePlan(self, questions, calibration, min_probability)
        readings: list[Reading] = []
        for stage, source in enumerate(self.sources):
            if readings and not plan.is_open([each.said for each in readings]):
                break
            fitted = plan.fitted(stage)
            readings.append(await source.read_async(plan.questions, fitted, input, timeout))
        return decision_of(plan, readings)


def check_sources(cascade: Cascade, input: Any, questions: Any, **settings: Any) -> None:
    """Ask all sources about an input; raise if one cannot answer the questions."""
    plan = CascadePlan(cascade, questions, **settings)
    for stage, source in enumerate(cascade.sources):
        with source.opened(plan.questions, plan.fitted(stage), [input]) as (read, _):
            read([input], on_error=kept_or_raised(False, "inputs"))


def read_inputs(
    plan: CascadePlan,
    inputs: Sequence[Any],
    on_error: Callable[[int, Exception], Any],
    **more: Any,
) -> list[Any]:
    """Return, for each input, the readings of the sources that were asked, or the error."""
    found: list[Any] = [[] for _ in inputs]
    for stage, source in enumerate(plan.sources):
        places = [
            i
            for i, each in enumerate(found)
            if isinstance(each, list) and (not each or plan.is_open([a.said for a in each]))
        ]
        open_inputs = [inputs[i] for i in places]

        def failed(i: int, error: Exception, places: Sequence[int] = places) -> Any:
            return on_error(places[i], error)

        if not places:
            break
        with source.opened(plan.questions, plan.fitted(stage), open_inputs) as (read, _):
            for i, one in zip(places, read(open_inputs, on_error=failed, **more), strict=True):
                found[i] = [*found[i], one] if isinstance(one, Reading) else one
    return found


def decision_of(plan: CascadePlan, readings: Sequence[Reading]) -> Decision[Any]:
    """Return the decision after some sources."""
    usage = sum((each.usage for each in readings), NO_USAGE)
    return plan.decision([each.said for each in readings], usage, readings[-1].reasoning)


def as_cascade_calibration(calibration: Any) -> CascadeCalibration | None:
    """Return a calibration, which is read from a file if a path is given."""
    if calibration is None or isinstance(calibration, CascadeCalibration):
        return calibration
    expected = "a CascadeCalibration, the path of its file or None"
    check_kind("calibration", calibration, (str, os.PathLike), expected)
    return CascadeCalibration.load(calibration)


def _source(source: Any) -> ModelSource | FunctionSource:
    if isinstance(source, ModelSource | FunctionSource):
        return source
    model, settings = source if isinstance(source, tuple) and len(source) == 2 else (source, None)
    if hasattr(model, "session"):
        return ModelSource(model, settings)
    if callable(source):
        return FunctionSource(source)
    raise wrong("each of sources", "a model, a pair of a model and settings, or a function", source)
