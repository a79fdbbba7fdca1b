"""One cell of the decisions' tables: a model, an input's length, questions and their options."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from eliza_ffi.model import Model

from ..choosing.other_libraries import Peer
from ..methods import METHODS, OURS, SERVER_GRAMMAR, SYSTEMONE, with_maker
from ..parts.figures import median, quartiles
from ..parts.machine import noting_other_programs
from ..together.llama_server import serving
from .ours import Decided, Decider, DecidingSetting
from .workload import (
    DecisionSubject,
    PutQuestions,
    Questionnaire,
    input_of,
    option_texts,
)

__all__ = [
    "DecidingEffort",
    "DecisionCell",
    "agreement",
    "compared_ways",
    "measure_cell",
]

WARM_UP_TOKENS = 8
SETTLING_SECONDS = 0.2
"""Before each way: the threads of the one before go on spinning for a moment."""

SPARE_TOKENS = 1024


@dataclass(frozen=True)
class DecisionCell:
    """What is asked.

    Attributes
    ----------
    model : str
        A name in `SUBJECTS`.
    input_tokens, questions, options : int
        Options of each question.
    labels : str
        What is answered with.
    """

    model: str
    input_tokens: int
    questions: int
    options: int
    labels: str


@dataclass(frozen=True)
class DecidingEffort:
    """How much is measured.

    Attributes
    ----------
    rounds : int
        At most.
    budget, wide_budget, base_budget : float
        Seconds after which a way gets no more rounds: of small models, of wide ones, and of the
        cells of wide ones that the targets are about. Every way gets one.
    """

    rounds: int
    budget: float
    wide_budget: float
    base_budget: float


def measure_cell(
    cell: DecisionCell,
    subject: DecisionSubject,
    n_rounds: int,
    budget: float,
    peers: Mapping[str, Peer],
    program: Path | None,
    n_threads: int = 0,
) -> dict[str, Any]:
    """Measure one cell in every way that there is.

    Parameters
    ----------
    cell, subject
    n_rounds
        At most.
    budget
        Seconds after which a way gets no more of them; every way gets one.
    peers
        By method, whether what it needs is there.
    program
        llama-server; None = there is none.
    n_threads
        Compute threads of everybody; 0 = as many as ours may use.
    """
    figures: dict[str, Any] = asdict(cell)
    path = subject.path()
    begin = time.perf_counter()
    with noting_other_programs(figures), ExitStack() as open_ones:
        n_ctx, longest = _room(path, cell)
        # One slot, of which nothing is kept aside: what is in it is what the round has put there.
        model = open_ones.enter_context(
            Model(path, n_slots=1, n_ctx=n_ctx, n_threads=n_threads, options={"park_after": "0"})
        )
        questionnaire = _questionnaire(model, cell)
        n_threads = n_threads or int(model.describe()["threads"])
        ports: dict[str, int] = {}
        problems: dict[str, str] = {}
        # One for each way, or its slots would hold what the other has just been asked.
        for name in (SYSTEMONE, SERVER_GRAMMAR):
            if program is None or name not in compared_ways(subject, peers):
                continue
            n_slots = cell.questions if name == SYSTEMONE else 1
            # As the server lays out the slots of a request that shares a prefix.
            more = ("--kv-unified",) if n_slots > 1 else ()
            try:
                server = open_ones.enter_context(
                    serving(program, path, n_slots, n_ctx, n_threads, (), more)
                )
                ports[name] = server.port
            except (OSError, RuntimeError) as error:
                problems[name] = str(error)
        setting = DecidingSetting(model, questionnaire, longest, n_threads, ports)
        ways = {
            name: make
            for name, make in compared_ways(subject, peers).items()
            if name not in problems
        }
        measured = _Turns(setting, ways, problems)
        first, rounds = measured.run(cell.input_tokens, n_rounds, budget)
        figures["n_vocab"] = int(model.describe()["model"]["n_vocab"])
        figures["tokens"] = first.n_tokens
        figures["ways"] = _figures(rounds, cell.questions)
        references = _references(setting, first, rounds)
        for name, listed in rounds.items():
            figures["ways"][name] |= agreement(listed[0], references, subject.is_made)
    figures["problems"] = problems
    figures["seconds"] = time.perf_counter() - begin
    print(
        f"{cell.model}, {cell.input_tokens} tokens, {cell.questions} questions of {cell.options} "
        f"{cell.labels}: {figures['seconds']:.0f} s",
        file=sys.stderr,
    )
    return figures


def compared_ways(
    subject: DecisionSubject, peers: Mapping[str, Peer]
) -> dict[str, Callable[[DecidingSetting], Decider]]:
    """Return the ways that are there and can ask a model."""
    return {
        name: each.decides
        for name, each in with_maker("decides").items()
        if each.decides is not None
        and (name not in peers or peers[name].version)
        and (subject.is_made or name != SYSTEMONE)
    }


def agreement(found: Decided, references: Mapping[str, Decided], is_made: bool) -> dict[str, Any]:
    """Return how a way's answers compare with ours to the same question.

    Parameters
    ----------
    found
        The answers to the first input.
    references
        Ours by scoring.
    is_made
        Whether labels have one token, so that every scoring answers alike.

    Returns
    -------
    dict
        ``same_answers``, a share; ``widest``, the largest difference of two probabilities; and
        ``parting``, of the other answers, by how much ours thought the least likely of them less
        likely than its own. Each is None where there is nothing to compare.
    """
    ours = references.get("legal" if is_made else found.scoring)
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


class _Turns:
    """All ways in turns, input by input."""

    def __init__(
        self,
        setting: DecidingSetting,
        ways: Mapping[str, Callable[[DecidingSetting], Decider]],
        problems: dict[str, str],
    ) -> None:
        self._setting = setting
        self._ways = ways
        self._problems = problems

    def run(
        self, input_tokens: int, n_rounds: int, budget: float
    ) -> tuple[PutQuestions, dict[str, list[Decided]]]:
        """Return the first input, and what every way came to in each round it had."""
        setting = self._setting
        rounds: dict[str, list[Decided]] = {}
        with ExitStack() as open_ones:
            deciders = {}
            for name, make in self._ways.items():
                decider = self._try(name, partial(make, setting))
                if decider is not None:
                    deciders[name] = decider
                    open_ones.callback(decider.close)
            # What the questions alone come to is found once, and pages are read from the disk.
            deciders[OURS].decide(self._put(WARM_UP_TOKENS, -1))
            names, first = list(deciders), self._put(input_tokens, 0)
            for turn in range(n_rounds):
                if _spent(rounds.get(OURS, [])) > budget:
                    break  # without ours there is no ratio
                put = first if turn == 0 else self._put(input_tokens, turn)
                for name in names:
                    before = rounds.setdefault(name, [])
                    if name in self._problems or _spent(before) > budget:
                        continue
                    time.sleep(SETTLING_SECONDS)
                    decided = self._try(name, partial(deciders[name].decide, put))
                    if decided is not None:
                        before.append(decided)
                names.append(names.pop(0))  # nobody is always the first
        return first, {name: rounds[name] for name in self._ways if rounds.get(name)}

    def _put(self, n_tokens: int, seed: int) -> PutQuestions:
        given = input_of(self._setting.model.tokenize, n_tokens, seed)
        return self._setting.questionnaire.put(given)

    def _try(self, name: str, way: Callable[[], Any]) -> Any:
        """Return what a way came to; what a peer fails at must not end the run."""
        if METHODS[name].needs is None:
            return way()
        try:
            return way()
        except Exception as error:  # whatever it is
            self._problems[name] = f"{type(error).__name__}: {error}"
            return None


def _spent(rounds: Sequence[Decided]) -> float:
    return sum(one.seconds for one in rounds)


def _figures(rounds: Mapping[str, Sequence[Decided]], n_questions: int) -> dict[str, Any]:
    ours = rounds[OURS]
    figures = {}
    for name, listed in rounds.items():
        ratios = [one.seconds / our.seconds for one, our in zip(listed, ours, strict=False)]
        seconds = [one.seconds for one in listed]
        figures[name] = {
            "request_ms": median(seconds) * 1e3,
            "decisions_per_second": n_questions / median(seconds),
            "times_ours": quartiles(ratios),
            "passes": listed[0].passes,
            "rounds": len(listed),
        }
    return figures


def _references(
    setting: DecidingSetting, first: PutQuestions, rounds: Mapping[str, Sequence[Decided]]
) -> dict[str, Decided]:
    """Return our answers to the first input, by every scoring that somebody has."""
    model, questionnaire = setting.model, setting.questionnaire
    references = {"legal": rounds[OURS][0]}
    if not questionnaire.has_own_labels:
        return references
    for scoring in {listed[0].scoring for listed in rounds.values()} - {"legal"}:
        if scoring == "joint":
            decision = model.decide(first.given, questionnaire.questions, scoring="joint")
            rows = tuple(tuple(answer.distribution) for answer in decision.values())
            answers = tuple(row.index(max(row)) for row in rows)
            references[scoring] = Decided(0.0, answers, rows, scoring=scoring)
            continue
        chosen = [
            model.choose(
                prompt,
                questionnaire.labels,
                tokenization="any" if scoring == "any" else "own",
            ).value
            for prompt in first.prompts
        ]
        answers = tuple(questionnaire.labels.index(value) for value in chosen)
        references[scoring] = Decided(0.0, answers, scoring=scoring)
    return references


def _questionnaire(model: Model, cell: DecisionCell) -> Questionnaire:
    return Questionnaire(model, cell.questions, option_texts(cell.labels, cell.options))


def _room(path: Path, cell: DecisionCell) -> tuple[int, int]:
    """Return how many tokens a cell's questions take together, and the longest prompt, in round."""
    with Model(path, n_slots=1, n_ctx=64) as model:
        put = _questionnaire(model, cell).put(input_of(model.tokenize, cell.input_tokens, 0))
    longest = max(map(len, put.prompts)) + SPARE_TOKENS // 8
    return put.n_tokens + SPARE_TOKENS, longest
