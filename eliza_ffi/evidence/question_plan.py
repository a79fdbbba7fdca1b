"""Questions about inputs as scoring requests, and their scores.

A :class:`QuestionPlan` is prepared once for some questions and settings, and makes a request for
each input. The text of the prompts comes from :mod:`eliza_ffi.decisions.layout`, and their tokens
from :mod:`eliza_ffi.decisions.prompt_tokens`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os.path import commonprefix
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from ..checks import wrong
from ..decisions.models.decision_model import DecisionModel, QuestionPrompts
from ..decisions.models.marked_prompts import JointPrompt
from ..decisions.models.session_models import decision_model_of, label_tokens, systemone_questions
from ..decisions.probabilities import log_mean
from ..decisions.prompt_settings import PromptSettings
from ..decisions.prompt_tokens import QuestionPrompt, QuestionTokens, tokens_of_prompts
from ..decisions.prompts import (
    AskedQuestion,
    RenderedQuestion,
    ask,
    input_text,
    is_code,
    option_count,
)
from ..decisions.questions import Choice, Score
from ..errors import ChatTemplateError, ContextFullError, InvalidArgumentError
from ..library.protocol import EndingScores, Ranking
from ..session.requests import generate_request
from ..session.run import Run
from ..session.scoring import Ending, ScoreArgs, ScoredPrompt, ScoreResult, Scoring
from . import measurements
from .comparing import check_described, compared, evidence_source, only_compares
from .features import (
    Feature,
    FeatureReader,
    FoundStates,
    Pooling,
    StateKey,
    feature_width,
    joined,
    padded,
    read_with_scores,
)
from .option_prior import CONTENT_FREE, INPUTS, MAX_OPTIONS, known_priors, measured
from .scoring import SCORING_RULES, OptionScores, Prior, QuestionScores, mean_mass
from .sources import Compared, Evidence, Similarity, joined_evidence, no_evidence, reading_ahead

if TYPE_CHECKING:
    from ..session.session import Session

T = TypeVar("T")

MAX_TREE = 448
"""The maximum number of prompt tokens in a forward pass that several texts share. The labels after
the prompts need room in the pass, too."""

N_MASSES = 20
"""The number of inputs of a batch whose allowed probability shows whether the prompt works."""


@dataclass(frozen=True)
class WantedHidden:
    """Which hidden states to read, for each question that is asked.

    `features` has the features of each question, () for none; `is_scored` whether the options of
    each question are scored, too.
    """

    features: tuple[tuple[Feature, ...], ...]
    is_scored: tuple[bool, ...]

    def of(self, places: Sequence[int]) -> WantedHidden:
        return WantedHidden(
            tuple(self.features[place] for place in places),
            tuple(self.is_scored[place] for place in places),
        )


Scores: TypeAlias = "tuple[QuestionScores | Ranking, ...]"
"""The scores of each question. A question whose best options were searched has a ranking."""


class QuestionRequest(NamedTuple):
    """The scoring request of an input, and the function that reads the scores of each question."""

    args: ScoreArgs
    scores: Callable[[ScoreResult], Scores]


class QuestionPlan:
    """The prompts of questions with one answer each, prepared for any input.

    With `full`, full scores are computed as well. `stream` has the slot and the cache. With
    `may_search`, only the most probable options of questions with more than 255 options are found.
    """

    def __init__(
        self,
        session: Session,
        questions: Sequence[AskedQuestion],
        settings: PromptSettings,
        *,
        full: bool = False,
        stream: Mapping[str, Any] | None = None,
        may_search: bool = False,
        hidden: WantedHidden | None = None,
    ) -> None:
        self._settings, self._full = settings, full
        # Its prompt is never read.
        self._config = generate_request(session, [0], method="decide", **(stream or {}))
        self._model = decision_model_of(session) if settings.prompt is None else None
        self._source = evidence_source(session)
        self._priors: dict[QuestionPrompt, Prior] = {}  # of the prompts that have one
        self._questions = questions
        self._prompts: list[list[QuestionPrompt]] = [[] for _ in questions]
        if self._model is not None:
            _check_for_model(self._model, settings, full, hidden)
            self._asked = systemone_questions(questions)
            return
        n = len(questions)
        hidden = hidden or WantedHidden(((),) * n, (True,) * n)
        self._features = hidden.features
        self._only_compares = only_compares(session)
        self._readers: dict[int, FeatureReader] = {}  # of the questions with hidden states
        self._apart = False  # whether each pooling has a prompt of its own
        self._groups: list[list[QuestionPrompt]] = []
        self._embeds = [any(f.pooling == "embedding" for f in each) for each in hidden.features]
        self._compared: list[Compared | None] = [
            compared(question) if self._source is not None and (is_scored or embeds) else None
            for question, is_scored, embeds in zip(
                questions, hidden.is_scored, self._embeds, strict=True
            )
        ]
        self._width = feature_width(session) if any(hidden.features) else 0
        if self._only_compares:
            for question, is_scored in zip(questions, hidden.is_scored, strict=True):
                if is_scored:
                    check_described(question)
            return
        may_search = may_search and self._source is None
        self._prompts = []
        for question, is_scored in zip(questions, hidden.is_scored, strict=True):
            orders = orders_of(question, settings.orders) if is_scored else []
            asked = [ask(question, settings.answer_style, order) for order in orders]
            if asked and may_search and _is_searched(question, settings):
                asked = [RenderedQuestion(question, (), ())]
            self._prompts.append([QuestionPrompt(session, each, settings) for each in asked])
        every = list(itertools.chain.from_iterable(self._prompts))
        priors = ((each, self._prior(session, each.asked)) for each in every)
        self._priors = {each: prior for each, prior in priors if prior is not None}
        self._readers = {
            i: feature_reader(session, question, settings, features)
            for i, (question, features) in enumerate(zip(questions, hidden.features, strict=True))
            if any(each.pooling != "embedding" for each in features)
        }
        is_shared = settings.order == "input-first" or settings.prompt is not None
        self._apart = is_shared and len(self._readers) > 1
        groups = [every] if is_shared else [[each] for each in every]
        self._groups = [group for group in groups if group]

    def _prior(self, session: Session, asked: RenderedQuestion) -> Prior | None:
        settings = self._settings
        if settings.prior != "options" or not 0 < len(asked.options) <= MAX_OPTIONS:
            return None
        shown = asked.options, asked.question, settings.shots_of(asked.question)
        key = settings.order, settings.format, settings.answer_style, self._full, shown
        return known_priors(session).get(key, dict)

    def prior_runs(self, session: Session) -> Generator[Run[Any], ScoreResult, None]:
        """Yield the run that measures the priors, unless all are known.

        Run it before the first request, whose scores need the priors.
        """
        rules = SCORING_RULES if self._full else SCORING_RULES[:1]
        prompts: list[ScoredPrompt] = []
        unknown: list[tuple[QuestionPrompt, Prior, str | None]] = []
        for asked, prior in self._priors.items():
            if prior.keys() >= set(rules):
                continue
            inputs = CONTENT_FREE if asked.has_words else INPUTS
            scored = self._scored([(asked, asked.tokens(session, each)) for each in inputs])
            key = measurements.key_of(session, ScoreArgs([scored], self._full))
            found = measurements.find(key, dict.fromkeys(rules, len(asked.asked.options)))
            if found is not None:
                prior.update((rule, np.array(found[rule])) for rule in rules)
            else:
                prompts.append(scored)
                unknown.append((asked, prior, key))
        if not unknown:
            return
        result = yield score_run(session, ScoreArgs(prompts, self._full))
        scores = iter(result.scores)
        for (asked, prior, key), prompt in zip(unknown, prompts, strict=True):
            prior.update(measured([_in_own_order(asked, next(scores)) for _ in prompt.endings]))
            measurements.keep(key, {rule: prior[rule].tolist() for rule in rules})

    def mean_priors(self) -> tuple[Prior, ...]:
        """Return the mean prior of all questions, which have the same options, for each order."""
        every = [
            [self._priors[each] for each in prompts if each in self._priors]
            for prompts in zip(*self._prompts, strict=True)
        ]
        return tuple(
            {rule: log_mean([prior[rule] for prior in each]) for rule in each[0]}
            for each in every
            if each
        )

    def codes(self, place: int) -> list[str]:
        """Return the labels of a question that are codes without a description."""
        return [
            option.label
            for prompt in self._prompts[place][:1]
            for option in prompt.asked.options
            if not option.is_lettered and not option.description and is_code(option.label)
        ]

    def about(
        self, session: Session, input: Any, *, allowed_probability: bool = False
    ) -> QuestionRequest:
        """Return the request about an input for :func:`~eliza_ffi.decisions.input_text`."""
        _ = session.ctx  # raises if the model is closed or belongs to the parent process
        if self._model is not None:
            return self._about_by_model(session, self._model, input, allowed_probability)
        text = input_text(input)
        prompts = []
        for group in self._groups:
            written = tokens_of_prompts(session, text, group)
            prompts.append(self._scored(list(zip(group, written, strict=True))))
        wanted: dict[int, Any] = {}
        requests: dict[StateKey, ScoredPrompt] = {}
        if self._readers:
            readers = self._readers.values()
            tokens = tokens_of_prompts(session, text, [each.prompt for each in readers])
            wanted = {
                i: reader.requests(self._config, each.tokens, self._apart)
                for (i, reader), each in zip(self._readers.items(), tokens, strict=True)
            }
            states = joined(each for parts in wanted.values() for each in parts.values())
            states, with_scores, prompts = read_with_scores(states, prompts)
            prompts = [*states.values(), *prompts]
            requests = states | with_scores
        args = ScoreArgs(prompts, self._full, allowed_probability, self._evidence(text.strip()))
        return QuestionRequest(args, partial(self._scores, wanted, requests))

    @property
    def takes_json(self) -> bool:
        """Whether the model reads the JSON of an input, not its text."""
        return self._model is not None

    @property
    def can_share(self) -> bool:
        """Whether :meth:`about_each` can ask: no scores come from hidden states."""
        return self._model is None and not self._readers

    @property
    def has_cheap_evidence(self) -> bool:
        """Whether an encoder, which is many times faster, answers the questions, too."""
        is_beside = isinstance(self._source, Similarity) and not self._only_compares
        return is_beside and any(self._compared)

    def about_each(
        self, session: Session, texts: Sequence[str], *, allowed_probability: bool = False
    ) -> tuple[ScoreArgs, Callable[[ScoreResult], list[Scores]]]:
        """Return one request about a text and parts of it, and the function that reads the scores.

        The prompts share forward passes. Order the texts after the first one by the length of the
        beginning that they have in common with it, the shortest first.
        """
        scored: list[ScoredPrompt] = []
        places: list[tuple[int, QuestionPrompt]] = []
        for group in self._groups:
            written = [
                (i, each)
                for i, text in enumerate(texts)
                for each in zip(group, tokens_of_prompts(session, text, group), strict=True)
            ]
            tokens = [each.tokens for _, (_, each) in written]
            for batch in _sharing_passes(tokens, len(group)):
                scored.append(self._scored([written[k][1] for k in batch]))
                places += [(written[k][0], written[k][1][0]) for k in batch]

        def read(result: ScoreResult) -> list[Scores]:
            found = dict(zip(places, result.scores, strict=True))
            every = list(itertools.chain.from_iterable(self._groups))
            n, evidence = len(texts), result.evidence
            parts = [None] * n if evidence is None else evidence.parts(n)
            return [
                self._scores({}, {}, replace(result, scores=scores, evidence=parts[i]))
                for i in range(n)
                for scores in [tuple(found[i, each] for each in every)]
            ]

        return ScoreArgs(scored, self._full, allowed_probability, self.evidence_of(texts)), read

    def evidence_of(self, texts: Sequence[str]) -> Callable[[Callable[[], None]], Evidence] | None:
        """Return the function that compares texts with the options, if there is a source."""
        each = [found for text in texts if (found := self._evidence(text.strip())) is not None]
        if not each:
            return None
        return lambda check: joined_evidence(
            [read(check) for read, _ in zip(each, self.ahead(texts, str), strict=True)]
        )

    def _evidence(self, text: str) -> Callable[[Callable[[], None]], Evidence] | None:
        """Return the function that compares an input with the options, if there is a source."""
        is_read = self._only_compares or any(self._compared) or any(self._embeds)
        if self._source is None or not is_read:
            return None
        if not text and not self._only_compares:  # the options' scores answer alone
            return lambda check: no_evidence(self._compared)
        return partial(self._source.read, text, self._compared)

    def ahead(self, items: Iterable[T], input_of: Callable[[T], Any]) -> Iterable[T]:
        """Return the same items, and let an encoder read the inputs of several items together."""
        source = self._source
        if source is None:
            return items
        return reading_ahead(
            items, lambda item: source.expect(input_text(input_of(item)).strip(), self._compared)
        )

    def _scored(self, written: Sequence[tuple[QuestionPrompt, QuestionTokens]]) -> ScoredPrompt:
        """Return the request for prompts that begin in the same way."""
        begin, rests = shared_beginning([each.tokens for _, each in written])
        endings = [
            Ending(rest, each.labels, prompt.k, each.lead)
            for rest, (prompt, each) in zip(rests, written, strict=True)
        ]
        return ScoredPrompt(self._config, begin, endings)

    def _scores(
        self,
        wanted: Mapping[int, Mapping[tuple[Pooling, ...], ScoredPrompt]],
        requests: Mapping[StateKey, ScoredPrompt],
        result: ScoreResult,
    ) -> Scores:
        each, rankings = iter(result.scores), iter(result.rankings)
        found: list[QuestionScores | Ranking] = []
        states: FoundStates = {
            key: (request.hidden.layers, values)
            for (key, request), values in zip(requests.items(), result.hidden, strict=True)
            if request.hidden is not None
        }
        evidence: Evidence | None = result.evidence
        for i, (prompts, features) in enumerate(zip(self._prompts, self._features, strict=True)):
            hidden = None
            if features:
                rows = self._readers[i].found(wanted[i], states) if i in wanted else {}
                nothing = np.zeros(0, np.float32)  # the embedding of an empty input
                vector = evidence.vectors[i] if evidence and evidence.vectors else nothing
                hidden = padded([rows.get(f, vector) for f in features], self._width)
            if prompts and prompts[0].k is not None:
                found.append(next(rankings))
                continue
            asked = self._compared[i]
            with_prior = filter(self._priors.__contains__, prompts)
            found.append(
                QuestionScores(
                    tuple([_in_own_order(prompt, next(each)) for prompt in prompts]),
                    tuple(map(self._priors.__getitem__, with_prior)),
                    hidden,
                    None if evidence is None else evidence.scores[i],
                    asked is not None and asked.needs_threshold,
                    asked is not None and asked.are_levels,
                )
            )
        return tuple(found)

    def _about_by_model(
        self, session: Session, model: DecisionModel, input: Any, allowed_probability: bool
    ) -> QuestionRequest:
        """Return the request in a decision model's own format, whose template takes JSON."""
        asked = model.ask(self._asked, input)
        every = [prompt for question in asked for prompt in question.prompts]
        if model.marked is not None:
            prompts = [
                ScoredPrompt(
                    self._config,
                    each.tokens,
                    positions=each.read,
                    roles=each.roles if isinstance(each, JointPrompt) else (),
                )
                for each in (every[:1] if model.is_joint else every)
            ]
            n_reads = len(asked) if model.is_joint else 1
            return QuestionRequest(
                ScoreArgs(prompts), partial(_model_scores, asked, n_reads=n_reads)
            )
        begin, rests = shared_beginning([list(each.tokens) for each in every])
        labels = [label_tokens(session, each.read) for each in every]
        prompt = ScoredPrompt(self._config, begin, tuple(map(Ending, rests, labels)))
        args = ScoreArgs([prompt], allowed_probability=allowed_probability)
        return QuestionRequest(args, partial(_model_scores, asked))

    def texts(self, session: Session, input: Any) -> list[str]:
        """Return the text of the prompts, including control tokens, for inspection."""
        return [
            session.detokenize([*prompt.tokens, *tokens], unparse_special=True)
            for prompt in self.about(session, input).args.prompts
            for tokens in ([ending.tokens for ending in prompt.endings] or [()])
        ]


def _check_for_model(
    model: DecisionModel, settings: PromptSettings, full: bool, hidden: WantedHidden | None
) -> None:
    if hidden is not None:
        raise InvalidArgumentError(
            f"the method head is not available for a decision model of type {model.type}"
        )
    if settings != PromptSettings() or full:
        raise InvalidArgumentError(
            f"a decision model of type {model.type} has its own prompts, labels, orders "
            "and scoring; omit these settings"
        )


def _in_own_order(prompt: QuestionPrompt, scores: EndingScores) -> OptionScores:
    full = None if scores.full is None else prompt.of_options(scores.full)
    return OptionScores(prompt.of_options(scores.constrained), full, scores.allowed_probability)


def shared_beginning(prompts: Sequence[list[int]]) -> tuple[list[int], list[list[int]]]:
    """Return the common first tokens of all prompts, and the remaining tokens of each prompt."""
    common = commonprefix(prompts)
    if not common:
        raise InvalidArgumentError("the prompts of all questions must begin with the same token")
    return list(common), [tokens[len(common) :] for tokens in prompts]


def _sharing_passes(prompts: Sequence[list[int]], n_whole: int) -> Iterator[list[int]]:
    """Yield the indices of the prompts of each pass, those with the longest beginning first.

    The first `n_whole` prompts have the whole text. Later prompts have a longer beginning in common
    with it. So the KV cache holds most of a pass's first tokens from the previous pass.
    """
    trunk = prompts[0]
    batch: list[int] = []
    n_new = highest = 0
    for k in [*range(n_whole), *range(len(prompts) - 1, n_whole - 1, -1)]:
        n_common = len(commonprefix([trunk, prompts[k]]))
        more = len(prompts[k]) - n_common
        if batch and (n_common == 0 or highest - n_common + n_new + more > MAX_TREE):
            yield batch
            batch, n_new = [], 0
        highest = max(highest, n_common) if batch else n_common
        batch.append(k)
        n_new += more
    yield batch


def feature_reader(
    session: Session, question: AskedQuestion, settings: PromptSettings, features: Sequence[Feature]
) -> FeatureReader:
    """Return the reader of features of a question's prompt."""
    prompt = QuestionPrompt(session, ask(question, settings.answer_style), settings)
    return FeatureReader(session, prompt, features)


def score_run(session: Session, args: ScoreArgs, at_once: int | None = None) -> Run[ScoreResult]:
    """Return the run of a scoring request.

    `at_once` is the number of such runs that may run at the same time. None uses
    :meth:`Session.decisions_at_once`.
    """

    def steps(run: Run[Any]) -> Generator[ScoreResult, None, None]:
        yield Scoring(run, args).result()

    at_most = session.decisions_at_once(at_once)
    return Run(session, steps, slot_id=args.slot_id, at_most=at_most)


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

    Over all rotations, each option is equally often at each position. The levels of a score are
    ranked, so a score has only the first two orders.
    """
    own = tuple(range(option_count(question)))
    ways = (own, own[::-1])
    rotations = range(1 if isinstance(question, Score) else len(own))
    every = (way[k:] + way[:k] for k in rotations for way in ways)
    return list(itertools.islice(dict.fromkeys(itertools.islice(every, 2 * n)), n))


def _is_searched(question: AskedQuestion, settings: PromptSettings) -> bool:
    """Return whether to search only for the most probable options of a question.

    The search works only if the prompt does not list the options, and with a single order.
    """
    if not isinstance(question, Choice) or not question.has_many_options:
        return False
    return not question.lists_options and settings.orders == 1 and settings.answer_style == "text"


def _model_scores(
    asked: Sequence[QuestionPrompts], result: ScoreResult, n_reads: int = 1
) -> tuple[QuestionScores, ...]:
    """Return the scores of each question, averaged over its prompts, as a single order.

    With `n_reads`, this number of questions reads the rows of one prompt.
    """
    rows = result.hidden * n_reads
    values: Iterator[Any] = iter(rows or [each.constrained for each in result.scores])
    masses = iter([each.allowed_probability for each in result.scores])
    scores = []
    for question in asked:
        n = len(question.prompts)
        p = np.array(question.probabilities(list(itertools.islice(values, n))))
        mass = mean_mass(itertools.islice(masses, n))
        with np.errstate(divide="ignore"):
            scores.append(QuestionScores((OptionScores(np.log(p), allowed_probability=mass),)))
    return tuple(scores)
