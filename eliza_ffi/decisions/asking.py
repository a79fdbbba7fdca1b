"""Questions about an input as tokens: the input once, and behind it each question with its options.

A prompt is the model's chat template with the words of :mod:`eliza_ffi.decisions.prompts` in one
turn of the user, up to where the assistant's begins, thinking switched off where the template has
a switch for it. A model without a template gets the words alone, and a line that says ``Answer:``.
The words are plain text: no input can end a turn.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

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
from ..library.protocol import EndingScores
from ..session.batches import Job, length_of, run_many
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
from .questions import Score
from .scoring import OptionScores, QuestionScores

if TYPE_CHECKING:
    from ..session.session import Session

__all__ = [
    "Asking",
    "How",
    "ScoreJob",
    "WritePrompt",
    "ask_many",
    "asking_of",
    "check_model",
    "is_of_row",
    "orders_of",
    "prompt_texts",
    "score_work",
]

Found = TypeVar("Found")

WritePrompt: TypeAlias = "Callable[[str, Asked], str | Prompt | Messages]"
"""Writes a prompt of one's own, from the input's text and a question: trusted text, a prompt, or a
conversation. It ends where the label comes."""

MAX_ORDERS = 64

NEAR = 64
"""Tokenizers decide within so many characters where a text is cut into tokens."""

THINKING_OFF = {"enable_thinking": False, "thinking": False}
"""What templates call the switch."""


@dataclass(frozen=True)
class How:
    """How questions are put.

    Attributes
    ----------
    labels : str
        What the model answers with: ``"text"``, the options' own texts, or ``"letters"``.
    orders : int
        In how many orders of its options a question is asked, 1 to 64; answers are averaged over
        them. A question of n options has at most 2 n orders, a score 2.
    prompt : callable or None
        Writes prompts of one's own.
    """

    labels: LabelStyle = "text"
    orders: int = 1
    prompt: WritePrompt | None = None

    def __post_init__(self) -> None:
        check_one_of("labels", self.labels, LABEL_STYLES)
        check_whole("orders", self.orders, 1, MAX_ORDERS)
        check_callback("prompt", self.prompt)


class Asking:
    """One input and its questions, as what the runner is handed and as what comes of it.

    Parameters
    ----------
    session
    given
        The input; see :func:`~eliza_ffi.decisions.prompts.input_text`.
    questions
        Each with one answer.
    how
    joint, option_mass
        Whether to find these scores, too.
    stream
        Settings of the stream: slot and cache.

    Attributes
    ----------
    args : ScoreArgs

    Raises
    ------
    InvalidArgumentError
        If the input or a prompt is malformed, or the tokenizer cannot spell a label.
    ChatTemplateError
        If the model's template fails.
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
    ) -> None:
        self._session = session
        self._asked = [
            [ask(question, how.labels, order) for order in orders_of(question, how.orders)]
            for question in questions
        ]
        every = list(itertools.chain.from_iterable(self._asked))
        prompt, behind = _tokens(session, input_text(given), every, how.prompt)
        choices = [session.choices.tokens_of(_label_set(asked)) for asked in every]
        self.args = ScoreArgs(
            generate_request(session, prompt, method="decide", **(stream or {})),
            tuple(map(Ending, behind, choices)),
            joint,
            option_mass,
        )

    def scores(self, result: ScoreResult) -> tuple[QuestionScores, ...]:
        """Return what the model said, question by question."""
        each = zip(self.args.endings, result.scores, strict=True)
        return tuple(
            QuestionScores(tuple(self._in_own_order(asked, *next(each)) for asked in orders))
            for orders in self._asked
        )

    def _in_own_order(self, asked: Asked, ending: Ending, scores: EndingScores) -> OptionScores:
        """Return scores of options as they were shown in the order that the question gives them."""
        place = np.argsort(asked.order)
        if isinstance(ending.choices, TokenTreePayload):  # which is in another order
            names = [leaf.name for leaf in ending.choices.leaves()]
            place = np.array([names.index(asked.options[i].label) for i in place])
        if scores.joint is None:
            return OptionScores(scores.legal[place], option_mass=scores.option_mass)
        labels = [asked.options[i].label for i in place]
        return OptionScores(
            legal=scores.legal[place],
            joint=scores.joint[place],
            n_tokens=np.array([self._n_tokens(label) for label in labels], dtype=np.float64),
            n_bytes=np.array([len(label.encode()) for label in labels], dtype=np.float64),
            option_mass=scores.option_mass,
        )

    def _n_tokens(self, label: str) -> int:
        return len(tokenize_choice(label, self._session.tokenize, self._session.detokenize))


def asking_of(
    session: Session,
    given: Any,
    questions: Sequence[AskedQuestion],
    how: How,
    *,
    joint: bool = False,
    option_mass: bool = False,
    stream: Mapping[str, Any] | None = None,
) -> Asking | ModelAsking:
    """Return how to ask a model: one that was made for decisions in its own form.

    Parameters
    ----------
    session, given, questions, how, joint, option_mass, stream
        As :class:`Asking`.

    Raises
    ------
    InvalidArgumentError
        As :class:`Asking`; or if a model that was made for decisions is asked for other labels,
        orders or scores than its own. With a prompt of one's own it is asked as any other model.
    NotSupportedError
        If the model was made for decisions of a type that is not known.
    """
    made = decision_model_of(session) if how.prompt is None else None
    if made is None:
        return Asking(
            session, given, questions, how, joint=joint, option_mass=option_mass, stream=stream
        )
    if how != How() or joint:
        raise InvalidArgumentError(
            f"the model was made for decisions, of type {made.type}: labels, orders and scoring "
            "are its own"
        )
    return ModelAsking(session, made, given, questions, option_mass=option_mass, stream=stream)


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
    """Ask questions about many inputs, as many at once as :meth:`Session.decisions_at_once` says.

    Parameters
    ----------
    model
        An open :class:`~eliza_ffi.Model`.
    inputs
    questions
        Each with one answer.
    how
    whole
        Find scores that take whole rows of logits, too.
    failed
        Called with the place and the error of an input that cannot be asked about, such as one
        that does not fit into the context, on the thread that tried. What it returns stands in the
        result's place; what it raises ends the others.
    progress
        Called with how many inputs are done and how many there are, None where nobody knows.

    Returns
    -------
    list of tuple of QuestionScores
        For each input, in their order, the questions in theirs.
    """
    session: Session = model.session

    def ready(given: Any) -> ScoreJob[tuple[QuestionScores, ...]]:
        asking = asking_of(session, given, questions, how, joint=whole)
        return ScoreJob(session, asking.args, asking.scores)

    def start(numbered: tuple[int, Any]) -> Job[Any]:
        place, given = numbered
        return _Tried(partial(ready, given), partial(failed, place))

    ready("a test")  # what is wrong with the questions is no fault of the inputs
    return run_many(
        enumerate(inputs),
        start,
        at_once=session.decisions_at_once(None),
        total=length_of(inputs),
        progress=progress,
        return_exceptions=False,
    )


def check_model(model: Any) -> None:
    """Raise InvalidArgumentError for what is no model."""
    if isinstance(model, type) or not hasattr(model, "describe"):
        raise wrong("model", "an open Model", model)


class ScoreJob(Generic[Found]):
    """One input's questions, as a job that waits for its turn and that another thread may end.

    Parameters
    ----------
    session
    args
        What to score.
    read
        Makes the job's result of the scores.
    wait
        As :meth:`~eliza_ffi.session.Session.steps`.
    at_once
        How many such jobs run together; None = :meth:`Session.decisions_at_once`.
    """

    def __init__(
        self,
        session: Session,
        args: ScoreArgs,
        read: Callable[[ScoreResult], Found],
        wait: bool | float = True,
        at_once: int | None = None,
    ) -> None:
        self._session = session
        self._read = read
        self._wait = wait
        self._work = score_work(session, args, at_once)
        self.cancel = self._work.cancel

    def run(self) -> Found:
        return self._read(self._session.result(self._work, self._wait))


def score_work(session: Session, args: ScoreArgs, at_once: int | None = None) -> Work[ScoreResult]:
    """Return the request for the scores of one input; parameters as :class:`ScoreJob`."""
    return Work(
        partial(ScoreRun, session.binding, session.ctx, args),
        ScoreRun.steps,
        n_tokens=args.n_tokens,
        slot_id=args.generation.slot_id,
        at_most=session.decisions_at_once(at_once),
    )


class _Tried:
    """A job about an input that may turn out to be one which cannot be asked about."""

    def __init__(self, start: Callable[[], Job[Any]], failed: Callable[[ElizaError], Any]) -> None:
        self._failed = failed
        self._job: Job[Any] | None = None
        with self._judging():
            self._job = start()

    def run(self) -> Any:
        with self._judging():
            if self._job is not None:
                self._found = self._job.run()
        return self._found

    def cancel(self) -> None:
        if self._job is not None:
            self._job.cancel()

    @contextmanager
    def _judging(self) -> Iterator[None]:
        try:
            yield
        except ElizaError as error:
            if not is_of_row(error):
                raise
            self._found = self._failed(error)


def is_of_row(error: Exception) -> bool:
    """Return whether it is a row's own failure, which the others need not end for.

    An input that nobody can be asked about and one that does not fit are; that the model has no
    chat template, or the library failed, is not.
    """
    is_refused = isinstance(error, InvalidArgumentError | ContextFullError)
    return is_refused and not isinstance(error, ChatTemplateError)


def orders_of(question: AskedQuestion, n: int) -> list[tuple[int, ...]]:
    """Return up to n orders of a question's options: as given, reversed, then both rotated.

    Over all rotations each option stands at each place equally often. A score's levels are ranked,
    so they have two orders.
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
    """Return the prompts as a model reads them, control tokens spelled out: to be looked at.

    Raises as :func:`asking_of`.
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
    """Return the tokens that all prompts begin with, and those behind them of each."""
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
    """Return the tokens of the whole prompts, cut where they part; the input is read once.

    Whether two line breaks are one token depends in many vocabularies on what follows. So each
    question is tokenized together with the end of the input, and what comes out is put behind the
    tokens of the input from where they agree.
    """
    head, tail = turn
    # Without a template and an input there may be nothing else that prompts have in common.
    lead = _lead(given) if given.strip() or head else "\n"

    def whole(asked: Asked) -> list[int]:
        prompt = Prompt().template(head).text(lead + asked.text).template(tail)
        return session.prompt_tokens(prompt)

    def end(asked: Asked) -> list[int]:
        return session.prompt_tokens(Prompt().text(lead[-NEAR:] + asked.text).template(tail))

    if len(every) == 1 or len(lead) <= 2 * NEAR:
        return split_common_prefix([whole(asked) for asked in every])
    near = [end(asked) for asked in every]
    before, behind = split_common_prefix(near)
    first = whole(every[0])
    from_the_end = zip(reversed(first), reversed(near[0]), strict=False)
    n = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], from_the_end))
    if n <= len(behind[0]):  # they agree nowhere in the input
        return split_common_prefix([whole(asked) for asked in every])
    return first[: len(first) - n] + before[len(near[0]) - n :], behind


def _lead(given: str) -> str:
    """Return an input as it stands before a question."""
    return f"{given.strip()}\n\n" if given.strip() else ""


def _turn(session: Session) -> tuple[str, str] | None:
    """Return what stands before and behind a user's words; None where that cannot be told."""
    try:
        return session.chat().turn(**THINKING_OFF)
    except NoChatTemplateError:
        return "", "\nAnswer:\n"


def _label_set(asked: Asked) -> LabelSet[str]:
    labels = [option.label for option in asked.options]
    return LabelSet(labels, labels)
