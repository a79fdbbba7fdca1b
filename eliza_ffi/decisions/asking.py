"""Questions about inputs as scoring requests, and their scores.

A :class:`QuestionPlan` is prepared once for some questions and settings. For each input it makes
the request. The text of the prompts comes from :mod:`eliza_ffi.decisions.layout`, its tokens from
:mod:`eliza_ffi.decisions.prompt_tokens`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os.path import commonprefix
from typing import TYPE_CHECKING, Any, NamedTuple

from ..checks import wrong
from ..errors import (
    ChatTemplateError,
    ContextFullError,
    InvalidArgumentError,
    NotSupportedError,
)
from ..library.protocol import EndingScores, Ranking
from ..session.requests import generate_request
from ..session.run import Run
from ..session.scoring import (
    Ending,
    Hidden,
    ScoreArgs,
    ScoredPrompt,
    ScoreResult,
    Scoring,
)
from .models.decision_model import DecisionModel
from .models.model_asking import decision_model_of, label_tokens, model_scores, systemone_questions
from .option_prior import MOST_OPTIONS, OptionPrior, known_priors
from .prompt_settings import PromptSettings
from .prompt_tokens import QuestionPrompt, QuestionTokens, tokens_of_prompts
from .prompts import AskedQuestion, RenderedQuestion, ask, input_text, option_count
from .questions import Choice, Score
from .scoring import OptionScores, QuestionScores

if TYPE_CHECKING:
    from ..session.session import Session

N_MASSES = 20
"""How many inputs of a batch show whether the prompt works, by their allowed probability."""

EVERY_ORDER = slice(None)


@dataclass(frozen=True)
class WantedHidden:
    """Which hidden states to read, for each question that is asked.

    `layers` has the layers of each question, ascending, as in
    :meth:`eliza_ffi.Model.hidden_states`; () for none. `is_scored` says whether its options are
    scored, too.
    """

    layers: tuple[tuple[int, ...], ...]
    is_scored: tuple[bool, ...]

    def of(self, places: Sequence[int]) -> WantedHidden:
        return WantedHidden(
            tuple(self.layers[place] for place in places),
            tuple(self.is_scored[place] for place in places),
        )


class Asking(NamedTuple):
    """The scoring request of an input, and the function that reads the scores of each question.

    Instead of scores, a question whose best options were searched has a ranking.
    """

    args: ScoreArgs
    scores: Callable[[ScoreResult], tuple[QuestionScores | Ranking, ...]]


class QuestionPlan:
    """The prompts of questions with one answer each, prepared for any input.

    Parameters
    ----------
    joint
        Whether to compute joint scores as well.
    stream
        The settings of the stream: slot and cache.
    may_search
        Whether to find only the most probable options of a question with more than 255 options.
        Otherwise all options are scored.
    hidden
        The hidden states to read.
    part
        Which orders of the options to ask about.
    """

    def __init__(
        self,
        session: Session,
        questions: Sequence[AskedQuestion],
        how: PromptSettings,
        *,
        joint: bool = False,
        stream: Mapping[str, Any] | None = None,
        may_search: bool = False,
        hidden: WantedHidden | None = None,
        part: slice = EVERY_ORDER,
    ) -> None:
        self._how, self._joint = how, joint
        # The prompts of a request replace this one.
        self._request = generate_request(session, [0], method="decide", **(stream or {}))
        self._model = decision_model_of(session) if how.prompt is None else None
        if self._model is not None:
            _check_for_model(self._model, how, joint, hidden)
            self._asked = systemone_questions(questions)
            return
        self._is_encoder = is_encoder(session)
        if self._is_encoder:
            if hidden is None or any(hidden.is_scored):
                raise NotSupportedError(
                    "the model is an encoder, which cannot generate text: it answers only with a "
                    'calibration of the method "head"'
                )
            self._layers = hidden.layers
            return
        may_search = may_search and session.binding.supports("rank")
        n = len(questions)
        hidden = hidden or WantedHidden(((),) * n, (True,) * n)
        self._prompts: list[list[QuestionPrompt]] = []
        for question, is_scored in zip(questions, hidden.is_scored, strict=True):
            orders = orders_of(question, how.orders)[part] if is_scored else []
            asked = [ask(question, how.answer_style, order) for order in orders]
            if asked and may_search and _is_searched(question, how):
                asked = [RenderedQuestion(question, (), ())]
            self._prompts.append([QuestionPrompt(session, each, how) for each in asked])
        every = list(itertools.chain.from_iterable(self._prompts))
        self._priors = {each: self._prior(session, each.asked) for each in every}
        self._with_hidden = [
            (QuestionPrompt(session, ask(question, how.answer_style), how), layers)
            for question, layers in zip(questions, hidden.layers, strict=True)
            if layers
        ]
        self._layers = hidden.layers
        self._n_embd = session.hidden_shape[1] if self._with_hidden else 0
        is_shared = how.order == "input-first" or how.prompt is not None
        groups = [every] if is_shared else [[each] for each in every]
        self._groups = [group for group in groups if group]

    def _prior(self, session: Session, asked: RenderedQuestion) -> OptionPrior | None:
        how = self._how
        if how.prior != "options" or not 0 < len(asked.options) <= MOST_OPTIONS:
            return None
        shown = asked.options, asked.question, how.shots_of(asked.question)
        key = how.order, how.format, how.answer_style, self._joint, shown
        return known_priors(session).get(key, partial(OptionPrior, asked))

    def about(self, session: Session, given: Any, *, allowed_probability: bool = False) -> Asking:
        """Return the request about an input, as :func:`.prompts.input_text` takes it."""
        _ = session.ctx  # raises if the model is closed or belongs to the parent process
        if self._model is not None:
            return self._about_by_model(session, self._model, given, allowed_probability)
        text = input_text(given)
        if self._is_encoder:
            whole = session.tokenize(text.strip(), add_special=True)
            prompt = ScoredPrompt(self._generation(whole), positions=range(len(whole)))
            return Asking(ScoreArgs([prompt]), self._means)
        unknown = [
            (prompt, prior)
            for prompt, prior in self._priors.items()
            if prior is not None and not prior.scores
        ]
        prompts = [
            self._scored([(prompt, prompt.tokens(session, each)) for each in prior.inputs], False)
            for prompt, prior in unknown
        ]
        with_hidden = [prompt for prompt, _ in self._with_hidden]
        tokens = tokens_of_prompts(session, text, with_hidden)
        for (_, layers), each in zip(self._with_hidden, tokens, strict=True):
            hidden = Hidden(layers, self._n_embd)
            prompts.append(ScoredPrompt(self._generation(each.tokens), hidden=hidden))
        for group in self._groups:
            written = tokens_of_prompts(session, text, group)
            prompts.append(self._scored(list(zip(group, written, strict=True))))
        args = ScoreArgs(prompts, self._joint, allowed_probability)
        return Asking(args, partial(self._scores, session, args, unknown))

    def _scored(
        self, written: Sequence[tuple[QuestionPrompt, QuestionTokens]], is_counted: bool = True
    ) -> ScoredPrompt:
        """Return the request for prompts that begin in the same way."""
        begin, rests = shared_beginning([each.tokens for _, each in written])
        endings = [
            Ending(rest, each.labels, prompt.k, each.lead)
            for rest, (prompt, each) in zip(rests, written, strict=True)
        ]
        return ScoredPrompt(self._generation(begin), endings, is_counted)

    def _generation(self, tokens: list[int]) -> Any:
        return replace(self._request, prompt_tokens=tokens)

    def _scores(
        self,
        session: Session,
        args: ScoreArgs,
        unknown: Sequence[tuple[QuestionPrompt, OptionPrior]],
        result: ScoreResult,
    ) -> tuple[QuestionScores | Ranking, ...]:
        scored = (ending for ending in args.endings if ending.k is None)
        each, rankings = zip(scored, result.scores, strict=True), iter(result.rankings)
        for prompt, prior in unknown:
            prior.scores = [_in_own_order(session, prompt, *next(each)) for _ in prior.inputs]
        found: list[QuestionScores | Ranking] = []
        states = iter(result.hidden)
        for prompts, layers in zip(self._prompts, self._layers, strict=True):
            hidden = next(states) if layers else None
            if prompts and prompts[0].k is not None:
                found.append(next(rankings))
                continue
            orders = tuple([_in_own_order(session, prompt, *next(each)) for prompt in prompts])
            priors = filter(None, map(self._priors.__getitem__, prompts))
            found.append(QuestionScores(orders, tuple(priors), hidden))
        return tuple(found)

    def _means(self, result: ScoreResult) -> tuple[QuestionScores, ...]:
        """Return the mean of all tokens' embeddings as the hidden state of each question."""
        mean = result.hidden[0].mean(axis=0, keepdims=True)
        return tuple(QuestionScores((), hidden=mean if layers else None) for layers in self._layers)

    def _about_by_model(
        self, session: Session, model: DecisionModel, given: Any, allowed_probability: bool
    ) -> Asking:
        """Return the request in a decision model's own format, whose template takes JSON."""
        asked = model.ask(self._asked, given)
        every = [prompt for question in asked for prompt in question.prompts]
        if model.marked is not None:
            prompts = [
                ScoredPrompt(self._generation(list(each.tokens)), positions=each.read)
                for each in every
            ]
            return Asking(ScoreArgs(prompts), partial(model_scores, asked))
        begin, rests = shared_beginning([list(each.tokens) for each in every])
        labels = [label_tokens(session, each.read) for each in every]
        prompt = ScoredPrompt(self._generation(begin), tuple(map(Ending, rests, labels)))
        args = ScoreArgs([prompt], allowed_probability=allowed_probability)
        return Asking(args, partial(model_scores, asked))

    def texts(self, session: Session, given: Any) -> list[str]:
        """Return the text of the prompts, including control tokens, for inspection."""
        return [
            session.detokenize([*prompt.generation.prompt_tokens, *tokens], unparse_special=True)
            for prompt in self.about(session, given).args.prompts
            if prompt.is_counted
            for tokens in ([ending.tokens for ending in prompt.endings] or [()])
        ]


def _check_for_model(
    model: DecisionModel, how: PromptSettings, joint: bool, hidden: WantedHidden | None
) -> None:
    if hidden is not None:
        raise InvalidArgumentError(
            f"the method head is not available for a decision model of type {model.type}"
        )
    if how != PromptSettings() or joint:
        raise InvalidArgumentError(
            f"a decision model of type {model.type} has its own prompts, labels, orders "
            "and scoring; omit these settings"
        )


def _in_own_order(
    session: Session, prompt: QuestionPrompt, ending: Ending, scores: EndingScores
) -> OptionScores:
    place = prompt.place
    if scores.joint is None:
        return OptionScores(scores.legal[place], allowed_probability=scores.allowed_probability)
    n_tokens, n_bytes = prompt.lengths(session, ending.lead)
    return OptionScores(
        scores.legal[place],
        scores.joint[place],
        n_tokens[place],
        n_bytes[place],
        scores.allowed_probability,
    )


def shared_beginning(prompts: Sequence[list[int]]) -> tuple[list[int], list[list[int]]]:
    """Return the common first tokens of all prompts, and the remaining tokens of each prompt."""
    common = commonprefix(prompts)
    if not common:
        raise InvalidArgumentError("the prompts of all questions must begin with the same token")
    return list(common), [tokens[len(common) :] for tokens in prompts]


def score_run(session: Session, args: ScoreArgs, at_once: int | None = None) -> Run[ScoreResult]:
    """Return the run of a scoring request.

    `at_once` is the number of such runs that may run at the same time. None uses
    :meth:`Session.decisions_at_once`.
    """

    def steps(run: Run[Any]) -> Generator[ScoreResult, None, None]:
        yield Scoring(run, args).result()

    at_most = session.decisions_at_once(at_once)
    return Run(session, steps, slot_id=args.slot_id, at_most=at_most)


def is_encoder(session: Any) -> bool:
    """Return whether the model of a session can only compute embeddings.

    Some decision models are encoders, too, but answer with their own scores.
    """
    return getattr(session, "is_encoder", False) and decision_model_of(session) is None


def check_model(model: Any) -> None:
    if isinstance(model, type) or not hasattr(model, "describe"):
        raise wrong("model", "an open Model", model)


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


def _is_searched(question: AskedQuestion, how: PromptSettings) -> bool:
    """Return whether only the most probable options of a question are found.

    The search needs no list of the options in the prompt, and one order.
    """
    if not isinstance(question, Choice) or not question.has_many_options:
        return False
    return not question.lists_options and how.orders == 1 and how.answer_style == "text"
