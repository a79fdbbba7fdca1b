"""Questions about inputs as scoring requests, and their scores.

The text of the prompts comes from :mod:`eliza_ffi.decisions.layout`, its tokens from
:mod:`eliza_ffi.decisions.prompt_tokens`.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import wrong
from ..choices.label_set import tokenize_choice
from ..choices.token_tree import TokenTreePayload
from ..errors import ChatTemplateError, ContextFullError, ElizaError, InvalidArgumentError
from ..library.protocol import EndingScores, PreparedChoices, Ranking
from ..session.batches import length_of, run_many
from ..session.requests import GenerationRequest, generate_request
from ..session.run import Run
from ..session.scoring import (
    Ending,
    Hidden,
    ScoreArgs,
    ScoredPrompt,
    ScoreResult,
    Scoring,
    check_scores,
)
from ..session.task import Task
from .common_prefix import split_common_prefix
from .models.model_asking import ModelAsking, decision_model_of
from .option_prior import MOST_OPTIONS, KnownPriors, OptionPriorScores, inputs_for
from .prompt_settings import PromptSettings
from .prompt_tokens import QuestionTokens, tokens_of_prompts
from .prompts import AskedQuestion, RenderedQuestion, ask, input_text, option_count
from .questions import Choice, Score
from .scoring import Array, OptionScores, QuestionScores

if TYPE_CHECKING:
    from ..session.session import Session

N_MASSES = 20
"""How many inputs of a batch show whether the prompt works, by their allowed probability."""

EVERY_ORDER = slice(None)

_TOKEN_COUNTS: weakref.WeakKeyDictionary[PreparedChoices, Array] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class WantedHidden:
    """Which hidden states to read, for each question.

    Attributes
    ----------
    layers : tuple of tuple of int
        The layers for each of the questions that are asked, ascending, as in
        :meth:`eliza_ffi.Model.hidden_states`; () for a question without hidden states.
    is_scored : tuple of bool
        Whether the options of each question are scored, too.
    """

    layers: tuple[tuple[int, ...], ...]
    is_scored: tuple[bool, ...]

    def of(self, places: Sequence[int]) -> WantedHidden:
        """Return the hidden states of some of the questions."""
        return WantedHidden(
            tuple(self.layers[place] for place in places),
            tuple(self.is_scored[place] for place in places),
        )


class Asking:
    """Convert one input and its questions to a scoring request, and read the result.

    Parameters
    ----------
    given
        The input; see :func:`~eliza_ffi.decisions.prompts.input_text`.
    questions
        Questions with one answer each.
    joint, allowed_probability
        Whether to compute these scores as well.
    stream
        The settings of the stream: slot and cache.
    may_search
        Whether to find only the most probable options of a question with more than 255 options.
        Otherwise all options are scored.
    hidden
        The hidden states to read.
    part
        Which orders of the options to ask about.

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
    NotSupportedError
        If the library cannot return hidden states.
    """

    def __init__(
        self,
        session: Session,
        given: Any,
        questions: Sequence[AskedQuestion],
        how: PromptSettings,
        *,
        joint: bool = False,
        allowed_probability: bool = False,
        stream: Mapping[str, Any] | None = None,
        may_search: bool = False,
        hidden: WantedHidden | None = None,
        part: slice = EVERY_ORDER,
    ) -> None:
        self._session = session
        self._how = how
        self._stream = stream or {}
        may_search = may_search and session.binding.supports("rank")
        n = len(questions)
        hidden = hidden or WantedHidden(((),) * n, (True,) * n)
        self._layers = hidden.layers
        self._asked = [
            []
            if not is_scored
            else [RenderedQuestion(question, (), ())]
            if may_search and _is_searched(question, how)
            else [
                ask(question, how.answer_style, order)
                for order in orders_of(question, how.orders)[part]
            ]
            for question, is_scored in zip(questions, hidden.is_scored, strict=True)
        ]
        every = list(itertools.chain.from_iterable(self._asked))
        self._known = KnownPriors.of(session)
        # The priors of this request. Other requests may remove them meanwhile.
        self._priors = {
            key: self._known.get(key)
            for key in (self._key(asked, joint) for asked in every if self._has_prior(asked))
        }
        # The questions whose prior this request computes.
        self._unknown = [
            asked
            for asked in every
            if self._has_prior(asked) and self._priors[self._key(asked, joint)] is None
        ]
        text = input_text(given)
        prompts = [
            self._scored(tokens_of_prompts(session, inputs_for(asked), [asked], how), False)
            for asked in self._unknown
        ]
        prompts += self._read_prompts(text, questions)
        is_shared = how.order == "input-first" or how.prompt is not None
        prompts += [
            self._scored(tokens_of_prompts(session, [text], group, how), True)
            for group in ([every] if is_shared else [[asked] for asked in every])
            if group
        ]
        self._joint = joint
        self.args = ScoreArgs(prompts, joint, allowed_probability)

    def _read_prompts(self, text: str, questions: Sequence[AskedQuestion]) -> list[ScoredPrompt]:
        """Return the requests for hidden states."""
        read = [
            (ask(question, self._how.answer_style), layers)
            for question, layers in zip(questions, self._layers, strict=True)
            if layers
        ]
        if not read:
            return []
        _, n_embd = self._session.hidden_shape
        written = tokens_of_prompts(self._session, [text], [asked for asked, _ in read], self._how)
        return [
            ScoredPrompt(self._generation(list(each.tokens)), hidden=Hidden(layers, n_embd))
            for each, (_, layers) in zip(written, read, strict=True)
        ]

    def _key(self, asked: RenderedQuestion, joint: bool) -> Any:
        how = self._how
        shown = asked.options, asked.question, how.shots_of(asked.question)
        return how.order, how.format, how.answer_style, joint, shown

    def _has_prior(self, asked: RenderedQuestion) -> bool:
        return self._how.prior == "options" and 0 < len(asked.options) <= MOST_OPTIONS

    def _scored(self, written: Sequence[QuestionTokens], is_counted: bool) -> ScoredPrompt:
        """Return the request for prompts that begin in the same way."""
        prompt, endings = split_common_prefix([list(each.tokens) for each in written])
        listed = [
            Ending(tokens, each.labels, each.k, each.lead)
            for tokens, each in zip(endings, written, strict=True)
        ]
        return ScoredPrompt(self._generation(prompt), listed, is_counted)

    def _generation(self, prompt: Sequence[int]) -> GenerationRequest:
        return generate_request(self._session, prompt, method="decide", **self._stream)

    def scores(self, result: ScoreResult) -> tuple[QuestionScores | Ranking, ...]:
        """Return the scores of each question, or a ranking if its best options were searched."""
        scored = (ending for ending in self.args.endings if ending.k is None)
        each, rankings = zip(scored, result.scores, strict=True), iter(result.rankings)
        for asked in self._unknown:
            read = [self._in_own_order(asked, *next(each)) for _ in inputs_for(asked)]
            key, prior = self._key(asked, self._joint), OptionPriorScores(read)
            self._priors[key] = prior
            self._known.put(key, prior)
        found: list[QuestionScores | Ranking] = []
        states = iter(result.hidden)
        for orders, layers in zip(self._asked, self._layers, strict=True):
            hidden = next(states) if layers else None
            if not orders:
                found.append(QuestionScores((), hidden=hidden))
                continue
            if not orders[0].options:
                found.append(next(rankings))
                continue
            has_prior = self._has_prior(orders[0])
            priors = [self._priors[self._key(asked, self._joint)] for asked in orders if has_prior]
            found.append(
                QuestionScores(
                    tuple(self._in_own_order(asked, *next(each)) for asked in orders),
                    tuple(prior for prior in priors if prior is not None),
                    hidden,
                )
            )
        return tuple(found)

    def _in_own_order(
        self, asked: RenderedQuestion, ending: Ending, scores: EndingScores
    ) -> OptionScores:
        """Return the scores in the question's order of the options."""
        place = np.argsort(asked.order)
        if isinstance(ending.choices, TokenTreePayload):  # its labels have an order of their own
            names = [leaf.name for leaf in ending.choices.leaves()]
            place = np.array([names.index(asked.options[i].label) for i in place])
        if scores.joint is None:
            return OptionScores(scores.legal[place], allowed_probability=scores.allowed_probability)
        labels = [option.label for option in asked.options]
        n_bytes = np.array([len(label.encode()) for label in labels], dtype=np.float64)
        return OptionScores(
            legal=scores.legal[place],
            joint=scores.joint[place],
            n_tokens=self._n_tokens(ending, labels)[place],
            n_bytes=n_bytes[place],
            allowed_probability=scores.allowed_probability,
        )

    def _n_tokens(self, ending: Ending, labels: Sequence[str]) -> Array:
        """Return the number of tokens of each label, which is kept as long as the label set."""
        assert isinstance(ending.choices, PreparedChoices)  # joint scores need them
        if ending.choices not in _TOKEN_COUNTS:
            tokenize, detokenize = self._session.tokenize, self._session.detokenize
            spelled = (ending.lead + label for label in labels)
            counts = [len(tokenize_choice(each, tokenize, detokenize)) for each in spelled]
            _TOKEN_COUNTS[ending.choices] = np.array(counts, dtype=np.float64)
        return _TOKEN_COUNTS[ending.choices]


def asking_of(
    session: Session,
    given: Any,
    questions: Sequence[AskedQuestion],
    how: PromptSettings,
    *,
    joint: bool = False,
    allowed_probability: bool = False,
    stream: Mapping[str, Any] | None = None,
    may_search: bool = False,
    hidden: WantedHidden | None = None,
    part: slice = EVERY_ORDER,
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
            allowed_probability=allowed_probability,
            stream=stream,
            may_search=may_search,
            hidden=hidden,
            part=part,
        )
    if hidden is not None:
        raise InvalidArgumentError(
            f"the method head is not available for a decision model of type {decision_model.type}"
        )
    if how != PromptSettings() or joint:
        raise InvalidArgumentError(
            f"a decision model of type {decision_model.type} has its own prompts, labels, orders "
            "and scoring; omit these settings"
        )
    return ModelAsking(
        session,
        decision_model,
        given,
        questions,
        allowed_probability=allowed_probability,
        stream=stream,
    )


def ask_many(
    model: Any,
    inputs: Iterable[Any],
    questions: Sequence[AskedQuestion],
    how: PromptSettings,
    *,
    whole: bool,
    failed: Callable[[int, ElizaError], Any],
    progress: Callable[[int, int | None], Any] | None = None,
    stream: Mapping[str, Any] | None = None,
    hidden: WantedHidden | None = None,
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
    stream
        The settings of the stream: slot and cache.
    hidden
        The hidden states to read.

    Returns
    -------
    list of tuple of QuestionScores
        The scores of each input, in order, with the questions in order. Those of the first
        :data:`N_MASSES` inputs have an allowed probability, if the library can compute it.
    """
    session: Session = model.session
    supports = session.binding.supports
    can_have_mass = supports("score_endings") and supports("prepare_choices")

    def ready(place: int, given: Any) -> Task[Any]:
        allowed_probability = can_have_mass and place < N_MASSES
        asking = asking_of(
            session,
            given,
            questions,
            how,
            joint=whole,
            allowed_probability=allowed_probability,
            stream=stream,
            hidden=hidden,
        )
        return Task(session, score_run(session, asking.args), read=asking.scores)

    def start(numbered: tuple[int, Any]) -> _GuardedTask:
        place, given = numbered
        return _GuardedTask(partial(ready, place, given), partial(failed, place))

    ready(0, "a test")  # if the questions are invalid, fail here and not for each input
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


def score_run(session: Session, args: ScoreArgs, at_once: int | None = None) -> Run[ScoreResult]:
    """Return the run of a scoring request.

    `at_once` is the number of such runs that may run at the same time. None uses
    :meth:`Session.decisions_at_once`.
    """

    def steps(run: Run[Any]) -> Generator[ScoreResult, None, None]:
        yield Scoring(run, args).result()

    check_scores(session.binding, args)
    at_most = session.decisions_at_once(at_once)
    return session.new_run(steps, slot_id=args.slot_id, at_most=at_most)


class _GuardedTask:
    """Run a task, and call `failed` if its input cannot be used."""

    def __init__(self, start: Callable[[], Task[Any]], failed: Callable[[ElizaError], Any]) -> None:
        self._failed = failed
        self._task: Task[Any] | None = None
        with self._catching():
            self._task = start()

    def run(self) -> Any:
        with self._catching():
            if self._task is not None:
                self._found = self._task.run()
        return self._found

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

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
    how: PromptSettings,
    *,
    joint: bool = False,
) -> list[str]:
    """Return the text of the prompts, including control tokens, for inspection.

    Raises the exceptions of :func:`asking_of`.
    """
    args = asking_of(session, given, questions, how, joint=joint).args
    return [
        session.detokenize([*prompt.generation.prompt_tokens, *tokens], unparse_special=True)
        for prompt in args.prompts
        if prompt.is_counted
        for tokens in ([ending.tokens for ending in prompt.endings] or [()])
    ]


def _is_searched(question: AskedQuestion, how: PromptSettings) -> bool:
    """Return whether only the most probable options of a question are found.

    The search needs no list of the options in the prompt, and one order.
    """
    if not isinstance(question, Choice) or not question.has_many_options:
        return False
    return not question.lists_options and how.orders == 1 and how.answer_style == "text"
