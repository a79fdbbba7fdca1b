"""Turn the arguments for prompts into settings: defaults, ``"auto"``, and examples.

:mod:`eliza_ffi.decisions.prompt_settings` describes the rules.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from .._lazy import once_for_each
from ..checks import check_one_of
from ..errors import ChatTemplateError, ContextFullError, InvalidArgumentError
from ..session.scoring import ScoreResult
from ..session.task import Task
from ..terminal import counted
from .asking import QuestionPlan, is_encoder, orders_of, score_run
from .examples import UNTOLD, named_questions, read_examples
from .layout import PROMPT_FORMATS, PROMPT_ORDERS, PromptFormat, PromptOrder, Shot, frame
from .models.model_asking import decision_model_of
from .prompt_settings import LEAST_CHAT_MASS, PromptSettings, declared
from .prompts import AskedQuestion, ask, input_text
from .questions import Choice, Question

if TYPE_CHECKING:
    from ..session.session import Session
    from .learning.calibration import Calibration

N_SAMPLE = 32
"""The number of inputs whose tokens are counted for ``prompt_order="auto"``."""

PROBES = (
    ("The dog sleeps on the sofa.", "Is this about an animal or a machine?", ("animal", "machine")),
    ("The printer needs more paper.", "Is this about food or an office?", ("food", "office")),
    ("It rains every day in autumn.", "What is the topic?", ("weather", "sports", "money")),
    ("Our team won the match.", "What is the topic?", ("weather", "sports", "money")),
)
"""Inputs, questions and options that show whether a model answers in its chat format."""


def settings_of_prompts(
    session: Session,
    questions: Sequence[Question],
    arguments: Mapping[str, Any],
    *,
    examples: Any = None,
    calibration: Calibration | None = None,
    inputs: Sequence[Any] | None = None,
) -> PromptSettings:
    """Return the settings of the prompts for some questions.

    An argument of :class:`PromptArguments` that is missing, None or ``"auto"`` comes from the
    calibration, and so do the examples. Without a calibration it has its default. `inputs` is a
    sample of the inputs if the questions are asked about several of them, otherwise None.
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
    check_one_of("prior", prior, ("auto", "options", "none"))
    kind = "a custom prompt" if prompt is not None else _kind_without_prompts(session)
    if kind is not None:
        for name in ("prompt_order", "prompt_format", "prior"):
            if arguments.get(name) not in (None, "auto", "none"):
                raise InvalidArgumentError(f"{name} has no effect with {kind}: leave it out")
        return PromptSettings(style, orders, prompt, examples=as_examples(questions, examples))
    named_format, named_order = declared(session)
    if form == "auto":
        form = named_format or _format_of(session)
    if prior == "auto":
        prior = "options" if form == "plain" and style == "text" else "none"
    shots = as_examples(questions, argument("examples", None))
    settings = PromptSettings(style, orders, format=form, examples=shots, prior=prior)
    if order == "auto":
        asked = [question for _, question in named_questions(questions)]
        order = named_order or _order_of(session, asked, settings, inputs)
    settings = replace(settings, order=order)
    for question, shown in shots:
        _check_room(session, question, settings, shown)
    return settings


def _kind_without_prompts(session: Session) -> str | None:
    """Return what the model is if it gets no prompts of ours, otherwise None."""
    if is_encoder(session):
        return "an encoder"
    return None if decision_model_of(session) is None else "a decision model"


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
        if (row == UNTOLD).all():
            raise InvalidArgumentError(f"example {i} answers none of the questions")
    found = []
    for (_, question), targets in zip(
        named_questions(questions), labelled.targets.T.tolist(), strict=True
    ):
        shots = tuple(
            Shot(input_text(each), target)
            for each, target in zip(labelled.inputs, targets, strict=True)
            if target != UNTOLD
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
def _format_of(session: Session) -> PromptFormat:
    try:
        return "chat" if _chat_mass(session) >= LEAST_CHAT_MASS else "plain"
    except ChatTemplateError:  # no template, or one that rejects a single user message
        return "plain"


def _chat_mass(session: Session) -> float:
    session.chat()  # raises if there is no template
    masses = []
    for text, instructions, options in PROBES:
        question = Choice(instructions, options)
        settings = PromptSettings(order="question-first")
        plan = QuestionPlan(session, [question], settings)
        asking = plan.about(session, text, allowed_probability=True)
        task: Task[ScoreResult] = Task(session, score_run(session, asking.args))
        result = task.run()
        masses.append(result.scores[0].allowed_probability or 0.0)
    return fmean(masses)


def _order_of(
    session: Session,
    asked: Sequence[AskedQuestion],
    settings: PromptSettings,
    inputs: Sequence[Any] | None,
) -> PromptOrder:
    """Return the order that reads fewer tokens for each input; see :mod:`.prompt_settings`."""
    n_prompts = sum(len(orders_of(question, settings.orders)) for question in asked)
    if n_prompts == 1:
        return "question-first"
    if n_prompts > session.turns.n // 2:
        return "input-first"
    if settings.format == "plain":
        return "question-first"
    if inputs is None:
        return "input-first"
    n_input = _mean_tokens(session, inputs)
    n_questions = sum(
        settings.orders * len(session.tokenize(ask(question, settings.answer_style).text))
        for question in asked
    )
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
