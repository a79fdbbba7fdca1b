"""Measure one cell of the decisions' tables: a model, an input length, questions and options."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from eliza_ffi.model import Model

from ..choosing.other_libraries import Peer
from ..methods import METHODS, OURS
from ..parts.figures import attempt, in_turns, median, quartiles, ratios
from ..parts.machine import noting_other_programs
from ..together.llama_server import serving
from .elsewhere import SERVER_GRAMMAR, SYSTEMONE
from .ours import Decided, Decider, DecidingSetting
from .workload import (
    DecisionSubject,
    PutQuestions,
    Questionnaire,
    input_of,
    option_texts,
)

T = TypeVar("T")

WARM_UP_TOKENS = 8
SETTLING_SECONDS = 0.2
"""The pause before each method. The previous method's threads keep spinning for a moment."""

SPARE_TOKENS = 1024


@dataclass(frozen=True)
class DecisionCell:
    """The parameters of a cell."""

    model: str  # a name in `SUBJECTS`
    # The length of the input, the number of questions, and the options of each question.
    input_tokens: int
    questions: int
    options: int
    labels: str  # the kind of labels: ``"words"``, ``"phrases"`` or ``"codes"``


@dataclass(frozen=True)
class DecidingEffort:
    """How long to measure."""

    rounds: int  # the most rounds
    # Seconds after which a method gets no more rounds. `budget` is for small models, `wide_budget`
    # for wide models. `base_budget` is for the middle cells of wide models, which have performance
    # targets (see ``MIDDLE`` in bench/decisions.py). Every method gets at least one round.
    budget: float
    wide_budget: float
    base_budget: float


def measure_cell(
    cell: DecisionCell,
    subject: DecisionSubject,
    n_rounds: int,  # the most rounds
    # Seconds after which a method gets no more rounds. Every method gets at least one.
    budget: float,
    peers: Mapping[str, Peer],  # by method, the library or program that it requires
    program: Path | None,  # llama-server; None = not available
    n_threads: int = 0,  # compute threads of every method; 0 = eliza-ffi's default number
) -> dict[str, Any]:
    """Measure one cell with every available method."""
    figures: dict[str, Any] = asdict(cell)
    path = subject.path()
    name = (
        f"{cell.model}, {cell.input_tokens} tokens, {cell.questions} questions of {cell.options} "
        f"{cell.labels}"
    )
    with noting_other_programs(figures, name), ExitStack() as open_ones:
        n_ctx, longest = _room(path, cell)
        # With one slot, and without copies of parked prompts, the slot holds exactly the prompts of
        # the current round.
        model = open_ones.enter_context(
            Model(path, n_slots=1, n_ctx=n_ctx, n_threads=n_threads, options={"parking": "off"})
        )
        questionnaire = _questionnaire(model, cell)
        n_threads = n_threads or int(model.describe()["threads"])
        ports: dict[str, int] = {}
        problems: dict[str, str] = {}
        # Each method has its own server. Otherwise the slots would hold the other method's prompts.
        for name in (SYSTEMONE, SERVER_GRAMMAR):
            if program is None or name not in compared_ways(subject, peers):
                continue
            n_slots = cell.questions if name == SYSTEMONE else 1
            # The setting that the server uses for requests with a shared prefix.
            more = ("--kv-unified",) if n_slots > 1 else ()
            starting = serving(program, path, n_slots, n_ctx, n_threads, (), more)
            server = attempt(problems, name, open_ones.enter_context, starting)
            if server is not None:
                ports[name] = server.port
        setting = DecidingSetting(model, questionnaire, longest, n_threads, ports)
        ways = compared_ways(subject, peers)
        first, rounds = _rounds(setting, ways, problems, cell.input_tokens, n_rounds, budget)
        figures["n_vocab"] = int(model.describe()["model"]["n_vocab"])
        figures["tokens"] = first.n_tokens
        figures["ways"] = _figures(rounds, cell.questions)
        references = _references(setting, first, rounds)
        for name, listed in rounds.items():
            figures["ways"][name] |= agreement(listed[0], references, subject.is_decision_model)
    figures["problems"] = problems
    return figures


def compared_ways(
    subject: DecisionSubject, peers: Mapping[str, Peer]
) -> dict[str, Callable[[DecidingSetting], Decider]]:
    """Return the available methods that can use a model."""
    return {
        name: each.decides
        for name, each in METHODS.items()
        if (name not in peers or peers[name].version)
        and (subject.is_decision_model or name != SYSTEMONE)
    }


def agreement(
    found: Decided,  # the method's answers about the first input
    references: Mapping[str, Decided],  # eliza-ffi's answers, by scoring
    # Whether the model is a decision model. Its labels have one token, so all scorings agree.
    is_decision_model: bool,
) -> dict[str, Any]:
    """Compare the answers of a method with eliza-ffi's answers to the same questions.

    Returns
    -------
    dict
        ``same_answers``, the share of questions with the same answer; ``widest``, the largest
        difference between two probabilities; and ``parting``, the largest difference between the
        probabilities that eliza-ffi computes for its own answer and for the method's answer. Each
        is None if it cannot be computed.
    """
    ours = references.get("constrained" if is_decision_model else found.scoring)
    if ours is None or found.answers is None or ours.answers is None:
        return {"same_answers": None, "widest": None, "parting": None}
    pairs = list(zip(found.answers, ours.answers, strict=True))
    widest = parting = None
    if ours.probabilities is not None:
        rows = zip(ours.probabilities, pairs, strict=True)
        parting = max(
            row[mine] - (row[theirs] if theirs >= 0 else 0.0) for row, (theirs, mine) in rows
        )
    if found.probabilities is not None and ours.probabilities is not None:
        flat = [itertools.chain(*each.probabilities or ()) for each in (found, ours)]
        widest = max(abs(a - b) for a, b in zip(*flat, strict=True))
    same = sum(a == b for a, b in pairs) / len(pairs)
    return {"same_answers": same, "widest": widest, "parting": parting}


def _rounds(
    setting: DecidingSetting,
    ways: Mapping[str, Callable[[DecidingSetting], Decider]],
    problems: dict[str, str],
    input_tokens: int,
    n_rounds: int,
    budget: float,
) -> tuple[PutQuestions, dict[str, list[Decided]]]:
    """Run all methods in turns, for one input after the other.

    Returns the questions about the first input, and the results of all rounds by method. An error
    of another library or program is noted in `problems`.
    """

    def put(n_tokens: int, seed: int) -> PutQuestions:
        return setting.questionnaire.put(input_of(setting.model.tokenize, n_tokens, seed))

    def tried(name: str, work: Callable[..., T], *given: Any) -> T | None:
        is_ours = METHODS[name].needs is None
        return work(*given) if is_ours else attempt(problems, name, work, *given)

    rounds: dict[str, list[Decided]] = {name: [] for name in ways}
    deciders = {name: tried(name, make, setting) for name, make in ways.items()}
    # The warm-up: the questions are tokenized once, and the file is read from the disk.
    deciders[OURS].decide(put(WARM_UP_TOKENS, -1))  # type: ignore[union-attr]
    first = put(input_tokens, 0)
    for turn, names in enumerate(in_turns(ways, n_rounds)):
        if _spent(rounds[OURS]) > budget:
            break  # a ratio requires eliza-ffi's time
        asked = first if turn == 0 else put(input_tokens, turn)
        for name in names:
            decider = deciders[name]
            if decider is None or name in problems or _spent(rounds[name]) > budget:
                continue
            time.sleep(SETTLING_SECONDS)
            decided = tried(name, decider.decide, asked)
            if decided is not None:
                rounds[name].append(decided)
    return first, {name: listed for name, listed in rounds.items() if listed}


def _spent(rounds: Sequence[Decided]) -> float:
    return sum(one.seconds for one in rounds)


def _figures(rounds: Mapping[str, Sequence[Decided]], n_questions: int) -> dict[str, Any]:
    ours = rounds[OURS]
    figures = {}
    for name, listed in rounds.items():
        seconds = [one.seconds for one in listed]
        figures[name] = {
            "request_ms": median(seconds) * 1e3,
            "decisions_per_second": n_questions / median(seconds),
            "times_ours": quartiles(ratios(seconds, [one.seconds for one in ours])),
            "passes": listed[0].passes,
            "rounds": len(listed),
        }
    return figures


def _references(
    setting: DecidingSetting, first: PutQuestions, rounds: Mapping[str, Sequence[Decided]]
) -> dict[str, Decided]:
    """Return eliza-ffi's answers about the first input, with every scoring that a method uses."""
    model, questionnaire = setting.model, setting.questionnaire
    references = {"constrained": rounds[OURS][0]}
    if not questionnaire.has_own_labels:
        return references
    for scoring in {listed[0].scoring for listed in rounds.values()} - {"constrained"}:
        chosen = [
            model.choose(
                prompt,
                questionnaire.labels,
                mode="greedy" if scoring == "any" else None,
                tokenization="any" if scoring == "any" else "canonical",
            ).value
            for prompt in first.prompts
        ]
        answers = tuple(questionnaire.labels.index(value) for value in chosen)
        references[scoring] = Decided(0.0, answers, scoring=scoring)
    return references


def _questionnaire(model: Model, cell: DecisionCell) -> Questionnaire:
    return Questionnaire(model, cell.questions, option_texts(cell.labels, cell.options))


def _room(path: Path, cell: DecisionCell) -> tuple[int, int]:
    """Return the context size for all questions of a cell, and for its longest prompt."""
    with Model(path, n_slots=1, n_ctx=64) as model:
        put = _questionnaire(model, cell).put(input_of(model.tokenize, cell.input_tokens, 0))
    longest = max(map(len, put.prompts)) + SPARE_TOKENS // 8
    return put.n_tokens + SPARE_TOKENS, longest
