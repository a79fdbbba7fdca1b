"""Questions about an input as tokens: the input once, then each question with its options.

A prompt is the model's chat template with the text of :mod:`eliza_ffi.decisions.prompts` in one
user turn. It ends where the assistant's turn begins. Thinking is switched off if the template has a
switch for it. A model without a template gets the text alone, followed by a line ``Answer:``. The
text is tokenized as plain text, so that no input can end a turn.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from ..chat.prompt import Prompt
from ..chat.template import Messages
from ..checks import check_callback, check_one_of, check_whole, wrong
from ..choices.label_set import LabelSet, tokenize_choice
from ..choices.token_tree import TokenTreePayload
from ..errors import (
    ChatTemplateError,
    ContextFullError,
    ElizaError,
    InvalidArgumentError,
    NoChatTemplateError,
)
from ..library.protocol import EndingScores, Ranking
from ..session.batches import Job, RunJob, length_of, run_many
from ..session.lifecycle import Work
from ..session.requests import generate_request
from ..session.scoring import Ending, ScoreArgs, ScoreResult, ScoreRun
from .common_prefix import split_common_prefix
from .models.model_asking import ModelAsking, decision_model_of
from .prompts import (
    LABEL_STYLES,
    Asked,
    AskedQuestion,
    LabelStyle,
    ask,
    input_text,
    option_count,
)
from .questions import Choice, Score
from .scoring import OptionScores, QuestionScores

if TYPE_CHECKING:
    from ..session.session import Session

__all__ = [
    "Asking",
    "How",
    "WritePrompt",
    "ask_many",
    "asking_of",
    "check_model",
    "is_of_row",
    "orders_of",
    "prompt_texts",
    "score_job",
    "score_work",
]

Found = TypeVar("Found")

WritePrompt: TypeAlias = "Callable[[str, Asked], str | Prompt | Messages]"
"""A function that writes a custom prompt from the text of the input and a question. It returns
trusted text, a prompt or a conversation. The model's answer, the label of an option, follows
directly."""

MAX_ORDERS = 64

NEAR = 64
"""Text at a distance of this many characters is assumed not to affect a tokenizer's splits."""

THINKING_OFF = {"enable_thinking": False, "thinking": False}
"""The template variables that switch thinking off; templates use different names."""


@dataclass(frozen=True)
class How:
    """Hold the settings of the prompts.

    Attributes
    ----------
    labels : str
        The labels that the model answers with: ``"text"``, the texts of the options, or
        ``"letters"``.
    orders : int
        How often to ask each question, each time with its options in a different order, 1 to 64.
        The probabilities are averaged over the orders. A question with n options has at most 2 n
        orders, and a score has 2.
    prompt : callable or None
        A function that writes custom prompts.
    """

    labels: LabelStyle = "text"
    orders: int = 1
    prompt: WritePrompt | None = None

    def __post_init__(self) -> None:
        check_one_of("labels", self.labels, LABEL_STYLES)
        check_whole("orders", self.orders, 1, MAX_ORDERS)
        check_callback("prompt", self.prompt)


class Asking:
    """Convert one input and its questions to a scoring request, and read the result.

    Parameters
    ----------
    given
        The input; see :func:`~eliza_ffi.decisions.prompts.input_text`.
    questions
        Questions with one answer each.
    joint, option_mass
        Whether to compute these scores as well.
    stream
        The settings of the stream: slot and cache.
    may_search
        Whether to find only the most probable options of a question with more than 255 options.
        Otherwise all options are scored.

    Attributes
    ----------
    args : ScoreArgs
        The request.

    Raises
    ------
    InvalidArgumentError
        If the input or a prompt is malformed, or the tokenizer has no tokens for a label.
    ChatTemplateError
        If the model's chat template fails.
    """

    def __init__(
        self,
        session: Session,
        given: Any,
        questions: Sequence[AskedQuestion],
        how: How,
        *,
        joint: bool = False,
        option_mass: bool = False,
        stream: Mapping[str, Any] | None = None,
        may_search: bool = False,
    ) -> None:
        self._session = session
        may_search = may_search and session.binding.supports("rank")
        self._asked = [
            [Asked(question, (), ())]
            if may_search and _is_searched(question, how)
            else [ask(question, how.labels, order) for order in orders_of(question, how.orders)]
            for question in questions
        ]
        every = list(itertools.chain.from_iterable(self._asked))
        prompt, endings = _tokens(session, input_text(given), every, how.prompt)
        self.args = ScoreArgs(
            generate_request(session, prompt, method="decide", **(stream or {})),
            tuple(map(self._ending, every, endings)),
            joint,
            option_mass,
        )

    def _ending(self, asked: Asked, tokens: list[int]) -> Ending:
        choices = self._session.choices
        if asked.options:
            labels = [option.label for option in asked.options]
            return Ending(tokens, choices.tokens_of(LabelSet(labels, labels)))
        assert isinstance(asked.question, Choice)
        return Ending(tokens, choices.tokens_of(asked.question.label_set), asked.question.top)

    def scores(self, result: ScoreResult) -> tuple[QuestionScores | Ranking, ...]:
        """Return the scores of each question, or a ranking if its best options were searched."""
        scored = (ending for ending in self.args.endings if ending.k is None)
        each, rankings = zip(scored, result.scores, strict=True), iter(result.rankings)
        return tuple(
            QuestionScores(tuple(self._in_own_order(asked, *next(each)) for asked in orders))
            if orders[0].options
            else next(rankings)
            for orders in self._asked
        )

    def _in_own_order(self, asked: Asked, ending: Ending, scores: EndingScores) -> OptionScores:
        """Return the scores in the question's order of the options."""
        place = np.argsort(asked.order)
        if isinstance(ending.choices, TokenTreePayload):  # its labels have an order of their own
            names = [leaf.name for leaf in ending.choices.leaves()]
            place = np.array([names.index(asked.options[i].label) for i in place])
        if scores.joint is None:
            return OptionScores(scores.legal[place], option_mass=scores.option_mass)
        labels = [asked.options[i].label for i in place]
        tokenize, detokenize = self._session.tokenize, self._session.detokenize
        n_tokens = [len(tokenize_choice(label, tokenize, detokenize)) for label in labels]
        return OptionScores(
            legal=scores.legal[place],
            joint=scores.joint[place],
            n_tokens=np.array(n_tokens, dtype=np.float64),
            n_bytes=np.array([len(label.encode()) for label in labels], dtype=np.float64),
            option_mass=scores.option_mass,
        )


def asking_of(
    session: Session,
    given: Any,
    questions: Sequence[AskedQuestion],
    how: How,
    *,
    joint: bool = False,
    option_mass: bool = False,
    stream: Mapping[str, Any] | None = None,
    may_search: bool = False,
) -> Asking | ModelAsking:
    """Prepare the scoring request of an input, with the parameters of :class:`Asking`.

    A decision model is asked in its own format, unless there is a custom prompt.

    Raises
    ------
    InvalidArgumentError
        For the reasons of :class:`Asking`, or if labels, orders or scores are requested that a
        decision model does not have.
    NotSupportedError
        If the type of the decision model is unknown.
    """
    decision_model = decision_model_of(session) if how.prompt is None else None
    if decision_model is None:
        return Asking(
            session,
            given,
            questions,
            how,
            joint=joint,
            option_mass=option_mass,
            stream=stream,
            may_search=may_search,
        )
    if how != How() or joint:
        raise InvalidArgumentError(
            f"a decision model of type {decision_model.type} has its own labels, orders and "
            "scoring; omit these settings"
        )
    return ModelAsking(
        session, decision_model, given, questions, option_mass=option_mass, stream=stream
    )


def ask_many(
    model: Any,
    inputs: Iterable[Any],
    questions: Sequence[AskedQuestion],
    how: How,
    *,
    whole: bool,
    failed: Callable[[int, ElizaError], Any],
    progress: Callable[[int, int | None], Any] | None = None,
) -> list[Any]:
    """Ask questions about many inputs. :meth:`Session.decisions_at_once` limits the concurrency.

    Parameters
    ----------
    questions
        Questions with one answer each.
    whole
        Whether to compute joint scores as well, which need whole rows of logits.
    failed
        Called with the index and the error of an input that cannot be used, for example because it
        does not fit into the context. It runs on the thread that processed the input. Its return
        value takes the place of the result. An exception that it raises stops the other inputs.
    progress
        Called with the number of finished inputs and the number of all inputs, or None if that is
        unknown.

    Returns
    -------
    list of tuple of QuestionScores
        The scores of each input, in order, with the questions in order.
    """
    session: Session = model.session

    def ready(given: Any) -> RunJob[Any]:
        asking = asking_of(session, given, questions, how, joint=whole)
        return score_job(session, asking.args, asking.scores)

    def start(numbered: tuple[int, Any]) -> Job[Any]:
        place, given = numbered
        return _GuardedJob(partial(ready, given), partial(failed, place))

    ready("a test")  # if the questions are invalid, fail here and not for each input
    return run_many(
        enumerate(inputs),
        start,
        at_once=session.decisions_at_once(None),
        total=length_of(inputs),
        progress=progress,
        return_exceptions=False,
    )


def check_model(model: Any) -> None:
    """Raise InvalidArgumentError if `model` is not an open model."""
    if isinstance(model, type) or not hasattr(model, "describe"):
        raise wrong("model", "an open Model", model)


def score_job(
    session: Session,
    args: ScoreArgs,
    read: Callable[[ScoreResult], Found],
    wait: bool | float = True,
    at_once: int | None = None,
) -> RunJob[Found]:
    """Return the job that runs the scoring request of one input when it is its turn.

    Parameters
    ----------
    read
        Converts the scores to the result of the job.
    wait
        As in :meth:`~eliza_ffi.session.Session.steps`.
    at_once
        The number of such jobs that may run at the same time. None uses
        :meth:`Session.decisions_at_once`.
    """
    work = score_work(session, args, at_once)
    return RunJob(lambda: read(session.result(work, wait)), work.cancel)


def score_work(session: Session, args: ScoreArgs, at_once: int | None = None) -> Work[ScoreResult]:
    """Return the work of a scoring request. See :func:`score_job` for the parameters."""
    return Work(
        partial(ScoreRun, session.binding, session.ctx, args),
        ScoreRun.steps,
        n_tokens=args.n_tokens,
        slot_id=args.generation.slot_id,
        at_most=session.decisions_at_once(at_once),
    )


class _GuardedJob:
    """Run a job, and call `failed` if its input cannot be used."""

    def __init__(self, start: Callable[[], Job[Any]], failed: Callable[[ElizaError], Any]) -> None:
        self._failed = failed
        self._job: Job[Any] | None = None
        with self._catching():
            self._job = start()

    def run(self) -> Any:
        with self._catching():
            if self._job is not None:
                self._found = self._job.run()
        return self._found

    def cancel(self) -> None:
        if self._job is not None:
            self._job.cancel()

    @contextmanager
    def _catching(self) -> Iterator[None]:
        try:
            yield
        except ElizaError as error:
            if not is_of_row(error):
                raise
            self._found = self._failed(error)


def is_of_row(error: Exception) -> bool:
    """Return whether an error concerns one row only, so that the other rows can continue.

    An input that is malformed or too long concerns its row. A missing chat template or a failure
    of the library concerns all rows.
    """
    is_of_input = isinstance(error, InvalidArgumentError | ContextFullError)
    return is_of_input and not isinstance(error, ChatTemplateError)


def orders_of(question: AskedQuestion, n: int) -> list[tuple[int, ...]]:
    """Return up to n orders of a question's options: as given, reversed, then rotations of both.

    Over all rotations each option is at each position equally often. The levels of a score are
    ranked, so a score has only the first two orders.
    """
    given = tuple(range(option_count(question)))
    ways = (given, given[::-1])
    rotations = range(1 if isinstance(question, Score) else len(given))
    every = (way[k:] + way[:k] for k in rotations for way in ways)
    return list(itertools.islice(dict.fromkeys(itertools.islice(every, 2 * n)), n))


def prompt_texts(
    session: Session,
    given: Any,
    questions: Sequence[AskedQuestion],
    how: How,
    *,
    joint: bool = False,
) -> list[str]:
    """Return the text of the prompts, including control tokens, for inspection.

    Raises the exceptions of :func:`asking_of`.
    """
    args = asking_of(session, given, questions, how, joint=joint).args
    prompt = args.generation.prompt_tokens
    return [
        session.detokenize([*prompt, *ending.tokens], unparse_special=True)
        for ending in args.endings
    ]


def _tokens(
    session: Session, given: str, every: Sequence[Asked], write: WritePrompt | None
) -> tuple[list[int], list[list[int]]]:
    """Return the common first tokens of all prompts, and the remaining tokens of each prompt."""
    if write is None:
        turn = _turn(session)
        if turn is not None:
            return _in_turn(session, turn, given, every)
    prompts = []
    for asked in every:
        if write is None:
            written: Any = [{"role": "user", "content": _lead(given) + asked.text}]
        else:
            written = write(given, asked)
        if isinstance(written, str | Prompt):
            prompts.append(session.prompt_tokens(written))
        else:
            prompts.append(session.chat().tokens(written, **THINKING_OFF))
    return split_common_prefix(prompts)


def _in_turn(
    session: Session, turn: tuple[str, str], given: str, every: Sequence[Asked]
) -> tuple[list[int], list[list[int]]]:
    """Return the common tokens and the remaining tokens of prompts in a user turn.

    The input is tokenized only once. In many vocabularies the text that follows two line breaks
    decides whether they are one token. Therefore each question is tokenized together with the end
    of the input. The result is joined to the tokens of the whole input at a place where both agree.
    """
    head, tail = turn
    # All prompts must begin with the same token. With neither template nor input, add a line break.
    lead = _lead(given) if given.strip() or head else "\n"

    def whole(asked: Asked) -> list[int]:
        prompt = Prompt().template(head).text(lead + asked.text).template(tail)
        return session.prompt_tokens(prompt)

    def end(asked: Asked) -> list[int]:
        return session.prompt_tokens(Prompt().text(lead[-NEAR:] + asked.text).template(tail))

    if len(every) == 1 or len(lead) <= 2 * NEAR:
        return split_common_prefix([whole(asked) for asked in every])
    near = [end(asked) for asked in every]
    before, rest = split_common_prefix(near)
    first = whole(every[0])
    from_the_end = zip(reversed(first), reversed(near[0]), strict=False)
    n = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], from_the_end))
    if n <= len(rest[0]):  # only tokens of the question are the same, none of the input
        return split_common_prefix([whole(asked) for asked in every])
    return first[: len(first) - n] + before[len(near[0]) - n :], rest


def _lead(given: str) -> str:
    """Return the text of an input that precedes a question."""
    return f"{given.strip()}\n\n" if given.strip() else ""


def _turn(session: Session) -> tuple[str, str] | None:
    """Return the text before and after the content of a user turn; None if it is unknown."""
    try:
        return session.chat().turn(**THINKING_OFF)
    except NoChatTemplateError:
        return "", "\nAnswer:\n"


def _is_searched(question: AskedQuestion, how: How) -> bool:
    """Return whether only the most probable options of a question are found.

    The search needs no list of the options in the prompt, and one order.
    """
    if not isinstance(question, Choice) or not question.has_many_options:
        return False
    return not question.lists_options and how.orders == 1 and how.labels == "text"
