"""Turn the arguments for prompts into settings: defaults, ``"auto"``, and examples.

:mod:`eliza_ffi.decisions.prompt_settings` describes the rules.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from .._lazy import once_for_each
from ..checks import check_one_of, did_you_mean, wrong
from ..decisions.examples import UNLABELLED, named_questions, read_examples
from ..decisions.layout import (
    PROMPT_FORMATS,
    PROMPT_ORDERS,
    PromptFormat,
    PromptOrder,
    Shot,
    frame,
)
from ..decisions.models.session_models import decision_model_of
from ..decisions.prompt_settings import MIN_CHAT_MASS, PromptSettings, declared
from ..decisions.prompts import AskedQuestion, ask, input_text
from ..decisions.questions import Choice, Question
from ..errors import ChatTemplateError, ContextFullError, InvalidArgumentError
from ..session.run import Run
from ..session.scoring import ScoreArgs, Scoring
from ..session.task import run_on_this_thread
from ..terminal import counted
from . import measurements
from .comparing import only_compares
from .question_plan import QuestionPlan, orders_of

if TYPE_CHECKING:
    from ..session.session import Session
    from .calibration import Calibration

PRIORS = ("auto", "options", "none")
"""The values of `prior` for single inputs."""

N_SAMPLE = 32
"""The number of inputs whose tokens are counted for ``prompt_order="auto"``."""

PROBES = (
    ("Our team won the match.", "What is the topic?", ("weather", "sports", "money")),
    ("It rains every day in autumn.", "What is the topic?", ("weather", "sports", "money")),
    ("The dog sleeps on the sofa.", "Is this about an animal or a machine?", ("animal", "machine")),
    ("The printer needs more paper.", "Is this about food or an office?", ("food", "office")),
)
"""Inputs, questions and options that show whether a model answers in its chat format."""


def prompt_settings_runs(
    session: Session,
    questions: Sequence[Question],
    arguments: Mapping[str, Any],
    *,
    examples: Any = None,
    calibration: Calibration | None = None,
    inputs: Sequence[Any] | None = None,
) -> Generator[Run[Any], Any, PromptSettings]:
    """Return the settings of the prompts for some questions.

    An argument of :class:`PromptArguments` that is missing, None or ``"auto"`` comes from the
    calibration, and so do the examples. Without a calibration it has its default. `inputs` is a
    sample of the inputs if the questions are asked about several of them, otherwise None. A request
    that needs the settings runs what measures the format, if anything does, as a part of itself.
    """
    arguments = {"examples": examples, **arguments}
    fitted = {} if calibration is None else calibration.prompt_arguments()

    def argument(name: str, default: Any) -> Any:
        value = arguments.get(name)
        is_default = value is None or (isinstance(value, str) and value == "auto")
        return fitted.get(name, default) if is_default else value

    style, orders = argument("answer_style", "text"), argument("orders", 1)
    prompt = arguments.get("prompt")
    order, form = argument("prompt_order", "auto"), argument("prompt_format", "auto")
    prior = argument("prior", "auto")
    check_one_of("prompt_order", order, ("auto", *PROMPT_ORDERS))
    check_one_of("prompt_format", form, ("auto", *PROMPT_FORMATS))
    is_known = isinstance(prior, str) and prior in PRIORS
    if not is_known:
        hint = did_you_mean(prior, PRIORS) or "pass a calibration, or its file, as calibration"
        raise wrong("prior", f"one of {', '.join(PRIORS)}", prior, hint)
    kind = None if prompt is None else "a custom prompt"
    without: dict[str, tuple[Any, ...]] = dict.fromkeys(
        ("prompt_order", "prompt_format", "prior"), (None, "auto", "none")
    )
    if only_compares(session):
        kind = "an encoder" if session.kind == "encoder" else "a reranker"
        without |= {"prompt": (None,), "examples": (None, ()), "orders": (None, "auto", 1)}
        without["answer_style"] = (None, "auto", "text")
    elif kind is None and decision_model_of(session) is not None:
        kind = "a decision model"
    if kind is not None:
        for name, neutral in without.items():
            if arguments.get(name) not in neutral:
                raise InvalidArgumentError(f"{name} has no effect with {kind}: leave it out")
        return PromptSettings(style, orders, prompt, examples=as_examples(questions, examples))
    named_format, named_order = declared(session)
    if form == "auto":
        form = named_format or (yield from _format_runs(session))
    if prior == "auto":
        prior = "options" if form == "plain" and style == "text" else "none"
    shots = as_examples(questions, argument("examples", None))
    settings = PromptSettings(style, orders, format=form, examples=shots, prior=prior)
    if order == "auto":
        of_all = [each for each in questions if not getattr(each, "has_many_labels", False)]
        asked = [question for _, question in named_questions(of_all)]
        order = named_order or _order_of(session, asked, settings, inputs)
    settings = replace(settings, order=order)
    for question, shown in shots:
        _check_room(session, question, settings, shown)
    return settings


settings_of_prompts = run_on_this_thread(prompt_settings_runs)


def as_examples(
    questions: Sequence[Question], examples: Any
) -> tuple[tuple[AskedQuestion, tuple[Shot, ...]], ...]:
    """Read the examples for the prompts of each question with one answer.

    `examples` are pairs as for :func:`~eliza_ffi.decisions.examples.read_examples`, the result of
    this function, or None.
    """
    if examples is None or _is_read(examples):
        return examples or ()
    labelled = read_examples(questions, examples)
    for i, row in enumerate(labelled.targets):
        if (row == UNLABELLED).all():
            raise InvalidArgumentError(f"example {i} answers none of the questions")
    found = []
    for (_, question), targets in zip(
        named_questions(questions), labelled.targets.T.tolist(), strict=True
    ):
        shots = tuple(
            Shot(input_text(each), target)
            for each, target in zip(labelled.inputs, targets, strict=True)
            if target != UNLABELLED
        )
        if shots:
            found.append((question, shots))
    return tuple(found)


def _is_read(examples: Any) -> bool:
    """Return whether examples are tuples of a question and of a tuple of Shot."""
    return isinstance(examples, tuple) and all(
        isinstance(each, tuple)
        and len(each) == 2
        and isinstance(each[1], tuple)
        and all(isinstance(shot, Shot) for shot in each[1])
        for each in examples
    )


def sample_of(inputs: Sequence[Any], n: int) -> list[Any]:
    """Return up to n inputs, evenly spaced."""
    if len(inputs) <= n:
        return list(inputs)
    return [inputs[i * len(inputs) // n] for i in range(n)]


@once_for_each
def _measured(session: Session) -> list[PromptFormat]:
    """Return a list of the format that was measured; it is empty before that."""
    return []


def _format_runs(session: Session) -> Generator[Run[Any], Any, PromptFormat]:
    """Return whether the model answers in its chat format; yield the run that measures it once."""
    measured = _measured(session)
    if not measured:
        try:
            probes = _probes(session)
        except ChatTemplateError:  # no template, or one that rejects a single user message
            measured.append("plain")
        else:
            key = measurements.key_of(session, probes)
            if found := measurements.find(key, {"mass": 1}):
                measured.append(_format_of(found["mass"][0]))
                return measured[0]

            def steps(run: Run[Any]) -> Generator[None, None, None]:
                if not measured:  # another request may have measured it while this one waited
                    mass = _chat_mass(run, probes)
                    measurements.keep(key, {"mass": [mass]})
                    measured.append(_format_of(mass))
                yield

            yield Run(session, steps, at_most=session.decisions_at_once(None))
    return measured[0]


def _format_of(mass: float) -> PromptFormat:
    return "chat" if mass >= MIN_CHAT_MASS else "plain"


def _probes(session: Session) -> ScoreArgs:
    session.chat()  # raises if there is no template
    settings = PromptSettings(order="question-first")
    prompts = [
        prompt
        for text, instructions, options in PROBES
        for plan in [QuestionPlan(session, [Choice(instructions, options)], settings)]
        for prompt in plan.about(session, text).args.prompts
    ]
    return ScoreArgs(prompts, allowed_probability=True)


def _chat_mass(run: Run[Any], probes: ScoreArgs) -> float:
    """Return the mean probability, over the whole vocabulary, of the options of the probes.

    The other probes are left out as soon as the mean is far from the limit.
    """
    masses: list[float] = []
    for probe in probes.prompts:
        scores = Scoring(run, replace(probes, prompts=[probe])).result().scores
        masses += [each.allowed_probability or 0.0 for each in scores]
        if not MIN_CHAT_MASS / 4 < fmean(masses) < 3 * MIN_CHAT_MASS:
            break
    return fmean(masses)


def _order_of(
    session: Session,
    asked: Sequence[AskedQuestion],
    settings: PromptSettings,
    inputs: Sequence[Any] | None,
) -> PromptOrder:
    """Return the order that reads fewer tokens for each input.

    See :mod:`eliza_ffi.decisions.prompt_settings`.
    """
    n_prompts = sum(len(orders_of(question, settings.orders)) for question in asked)
    if n_prompts == 1:
        return "question-first"
    n_questions = sum(
        settings.orders * len(session.tokenize(ask(question, settings.answer_style).text))
        for question in asked
    )
    if n_prompts > session.n_texts // 2 or n_questions > (session.n_ctx() or math.inf) / 2:
        return "input-first"
    if settings.format == "plain":
        return "question-first"
    if inputs is None:
        return "input-first"
    n_input = _mean_tokens(session, inputs)
    return "question-first" if n_prompts * n_input <= n_input + n_questions else "input-first"


def _mean_tokens(session: Session, inputs: Sequence[Any]) -> float:
    counts = []
    for each in sample_of(inputs, N_SAMPLE):
        with suppress(InvalidArgumentError):  # the row will report it
            counts.append(len(session.tokenize(input_text(each))))
    return fmean(counts) if counts else 0.0


def _check_room(
    session: Session, question: AskedQuestion, settings: PromptSettings, shots: tuple[Shot, ...]
) -> None:
    n_ctx = session.n_ctx()

    def n_tokens(n: int) -> int:
        asked = ask(question, settings.answer_style)
        text = frame(asked, settings.format, settings.order, shots[:n])
        contents = [content for _, content in text.turns]
        return len(session.tokenize("\n".join([*contents, text.before, text.after])))

    if n_ctx is None or (n_needed := n_tokens(len(shots))) < n_ctx:
        return
    n_fit = bisect_left(range(len(shots)), n_ctx, key=n_tokens)
    raise ContextFullError(
        f"the context is too short for {counted(len(shots), 'example')}: expected fewer "
        f"than {n_ctx} tokens, got {n_needed}; {max(0, n_fit - 1)} of them fit, without room for "
        f"an input; pass fewer examples, or raise n_ctx"
    )
