"""Learn from the rows of a table, and answer them again without reading them again.

While the rows are decided, a job keeps three facts of each row: a hash of the input, the
log-probabilities of the options, and the state that heads are trained on
(:mod:`eliza_ffi.learning.self_training`). A state is projected to 256 values in 8 bits by a random
matrix with orthogonal columns, which preserves inner products. That is 26 MB for 100,000 rows, and
37 MB in the file, where it is text.

The answers follow from the rows in the job's file. A job that is killed before its output is
written therefore gives the same output when it is resumed.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..decisions.answers import answer_of, collect, expand, parts_of
from ..decisions.probabilities import Array, Floats
from ..decisions.prompts import option_count
from ..evidence.auto_prompts import sample_of
from ..evidence.features import Feature
from ..evidence.self_training import SelfTraining
from ..learning.self_training import learn_from_rows
from .columns import ERROR, REVIEW, ROW, OutputColumns

N_VALUES = 256
"""The number of values that are kept of a state."""

MAX_ROWS = 5000
"""The maximum number of different rows that heads are trained on, evenly spaced."""

N_SHOWN = 10
"""The number of changed answers that a result shows."""

MIN_LOG_P = -100.0
"""An option that the model gives the probability 0 gets this log-probability."""

AT_ONCE = 10_000
"""How many rows are answered again at a time."""


@dataclass(frozen=True)
class ChangedAnswer:
    """An answer that the rows changed.

    Attributes
    ----------
    row : int
        The number of the row.
    before, after
        The cells of the answer.
    """

    row: int
    before: Any
    after: Any


@dataclass(frozen=True)
class LearnedAnswers:
    """The result of learning from the rows, for one question.

    Attributes
    ----------
    training : tuple of SelfTraining
        One for the question, or one for each of its labels.
    n_changed : int
        The number of rows whose answer changed.
    changed : tuple of ChangedAnswer
        Up to ten of them, evenly spaced.
    """

    training: tuple[SelfTraining, ...]
    n_changed: int
    changed: tuple[ChangedAnswer, ...]

    @property
    def is_accepted(self) -> bool:
        """Whether the gate accepted a head."""
        return any(each.head is not None for each in self.training)


def kept_type(columns: OutputColumns, learns: Sequence[int]) -> np.dtype[np.void]:
    """Return the type of what is kept of a row; `learns` are the places of single questions."""
    asked = [each for question in columns.questions.values() for each in expand(question)]
    fields: list[Any] = [("text", "<u8")]
    for place in learns:
        fields += [
            (f"log_p {place}", "<f4", (option_count(asked[place]),)),
            (f"scale {place}", "<f4"),
            (f"values {place}", "i1", (N_VALUES,)),
        ]
    return np.dtype(fields)


def kept_of(text: str, logs: Sequence[Array], states: Sequence[Floats]) -> str:
    """Return what is kept of a row, as base64: for each question, log-probabilities and a state."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    parts = [digest]
    for log_p, state in zip(logs, states, strict=True):
        values = projected(np.nan_to_num(state))
        scale = float(np.abs(values).max(initial=0)) / 127 or 1.0
        parts += [log_p.astype("<f4").tobytes(), np.array(scale, "<f4").tobytes()]
        parts.append(np.round(values / scale).astype("i1").tobytes())
    return base64.b64encode(b"".join(parts)).decode("ascii")


def projected(state: Floats) -> Floats:
    """Return :data:`N_VALUES` values of a state; zeros follow a shorter one."""
    if len(state) > N_VALUES:
        values: Floats = state @ _projection(len(state))
        return values
    return np.pad(state, (0, N_VALUES - len(state)))


@lru_cache(maxsize=4)
def _projection(n: int) -> Floats:
    """Return random signs times some vectors of the cosine transform, shape [n, N_VALUES].

    They are orthogonal, as after a QR decomposition, which would use all cores.
    """
    random = np.random.default_rng(0)
    frequencies = random.permutation(np.arange(1, n))[:N_VALUES]
    waves = np.cos(np.pi / n * np.outer(np.arange(n) + 0.5, frequencies))
    matrix: Floats = (np.sqrt(2 / n) * random.choice([-1, 1], (n, 1)) * waves).astype("f4")
    return matrix


class LearnedRows:
    """The rows of a job with the answers that they taught the model.

    `rows` has the cells of all rows, and can be iterated several times. `kept` has what was kept of
    each row; None for a row without answers. `learns` are the single questions that learn.
    """

    def __init__(
        self,
        rows: Iterable[Mapping[str, Any]],
        kept: Iterable[str | None],
        columns: OutputColumns,
        learns: Sequence[int],
        min_probability: float,
    ) -> None:
        self._rows, self._columns, self._min_probability = rows, columns, min_probability
        encoded = list(kept)
        data = b"".join(base64.b64decode(each) for each in encoded if each is not None)
        values = np.frombuffer(data, kept_type(columns, learns))
        _, first = np.unique(values["text"], return_index=True)
        used = np.array(sample_of(np.sort(first).tolist(), MAX_ROWS), dtype=np.intp)
        self._training: dict[int, SelfTraining] = {}
        self._logs: dict[int, NDArray[np.float64]] = {}
        for place in learns:
            log_p = np.maximum(values[f"log_p {place}"].astype(np.float64), MIN_LOG_P)
            states = _states(values[used], place)
            found = learn_from_rows(states, log_p[used], Feature("last", 0))
            self._training[place] = found
            for begin in range(0, len(values) if found.head else 0, AT_ONCE):
                part = slice(begin, begin + AT_ONCE)
                log_p[part] = found.improved(log_p[part], _states(values[part], place))
            self._logs[place] = log_p
        self._changed: dict[str, list[ChangedAnswer]] = {}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the cells of all rows, from the first, and note which answers change."""
        self._changed = {name: [] for name in self._columns.questions}
        n_answered = 0
        for cells in self._rows:
            new = dict(cells)
            if cells[ERROR] is None:
                self._answer(new, n_answered)
                n_answered += 1
            for name, changed in self._changed.items():
                if new[name] != cells[name]:
                    changed.append(ChangedAnswer(cells[ROW], cells[name], new[name]))
            yield new

    def report(self) -> dict[str, LearnedAnswers]:
        """Return the result of learning for each question. Iterate the rows before."""
        result = {}
        for name, _, places in parts_of(self._columns.questions.values()):
            training = tuple(self._training[each] for each in places if each in self._training)
            every = self._changed[name]
            result[name] = LearnedAnswers(training, len(every), tuple(sample_of(every, N_SHOWN)))
        return result

    def _answer(self, cells: dict[str, Any], n: int) -> None:
        """Replace the answers of a row, the n-th one with answers."""
        for name, question, places in parts_of(self._columns.questions.values()):
            training = [self._training.get(place) for place in places]
            if all(each is None or each.head is None for each in training):
                continue
            mass = cells.get(f"{name}_allowed_probability")
            answers = [
                answer_of(part, np.exp(self._logs[i][n]).tolist(), mass, self._min_probability)
                for part, i in zip(expand(question), places, strict=True)
            ]
            cells.update(self._columns.answer_cells(name, collect(question, answers)))
        if REVIEW in cells:
            cells[REVIEW] = any(cells[name] is None for name in self._columns.questions)


def _states(values: NDArray[np.void], place: int) -> Floats:
    states: Floats = values[f"values {place}"] * values[f"scale {place}"][:, None]
    return states
