r"""Encoders and rerankers as sources: they compare an input with the descriptions of the options.

**Similarity.** An encoder turns a text into a unit vector. The vector of an option is the
normalized mean of up to four vectors, of these texts: the label (unless it is a code), the
description, and both of them after "This text is about". Let x be the input's vector, and o_c the
vector of option c. The log-probability of c is

.. math:: \log p_c = \cos(x, o_c) / T - \log \sum_k \exp(\cos(x, o_k) / T)

T is :data:`TEMPERATURE`. The vectors of the options are computed once for each question.

**Relevance.** A reranker reads the input together with the description of an option, or with its
label if there is none, and returns how relevant the description is. The log-probabilities are the
log-softmax of these values.

docs/explanation/measurements.md describes the measurements behind the constants of this module.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .._lazy import Recent, once_for_each
from ..checks import wrong
from ..decisions.probabilities import Array, Floats
from ..decisions.prompts import is_code
from ..errors import ElizaError
from .families import Prefixes, prefixes

if TYPE_CHECKING:
    from ..library.binding import CffiBinding
    from ..session.session import Session

T = TypeVar("T")

TEMPERATURE = 0.05
"""The cosines are divided by this."""

FORMS = ("{}", "This text is about {}.")
"""The texts that an encoder reads for the label and for the description of an option."""

GENERAL_QUESTION = "What is this text about?"
"""The question in the prefix of an input if only a head uses the input's vector."""

N_TEXTS = 32
"""The maximum number of texts in one call of the library. A call cannot be cancelled."""

N_UPCOMING = 4 * N_TEXTS
"""The maximum number of announced inputs that a source keeps."""

MAX_INPUTS, MAX_QUESTIONS = 1024, 256
"""For how many inputs, and for the options of how many questions, an encoder keeps vectors."""


@dataclass(frozen=True)
class ComparedOption:
    """The texts of an option: its label, its description, or both."""

    label: str | None
    description: str | None

    @property
    def texts(self) -> tuple[str, ...]:
        """The label and the description; only the description if the label is a code."""
        found = [each.strip() for each in (self.label, self.description) if each and each.strip()]
        return tuple(found[1:] if len(found) == 2 and is_code(found[0]) else found)

    @property
    def meaning(self) -> str:
        """The description, or the label if there is none."""
        return self.texts[-1]


@dataclass(frozen=True)
class Compared:
    """A question for sources.

    If `needs_threshold` is true, the question has a single option, a label that fits or not. The
    result then has the label's value and 0, because there is no other option to compare it with.
    """

    instructions: str
    options: tuple[ComparedOption, ...]
    needs_threshold: bool = False
    are_levels: bool = False

    def values(self, of_options: Array) -> Array:
        return np.append(of_options, 0.0) if self.needs_threshold else of_options


@dataclass(frozen=True, eq=False)
class Evidence:
    """The result of a source for an input.

    `scores` has the log-probabilities of each question before the softmax, shape [n_options]; None
    for a question that the source cannot answer. `vectors` has the vector of the input for each
    question, shape [n_embd]; it is empty for a reranker. `n_tokens` is the length of the input.
    """

    scores: tuple[Array | None, ...]
    vectors: tuple[Floats, ...]
    n_tokens: int

    def parts(self, n: int) -> list[Evidence]:
        """Undo :func:`joined_evidence` of `n` texts, except for the counts of tokens."""
        k, width = len(self.scores) // n, len(self.vectors) // n
        return [
            Evidence(self.scores[i * k : (i + 1) * k], self.vectors[i * width : (i + 1) * width], 0)
            for i in range(n)
        ]


def joined_evidence(each: Sequence[Evidence]) -> Evidence:
    """Join the results of a source for several texts and the same questions."""
    return Evidence(
        tuple(chain.from_iterable(one.scores for one in each)),
        tuple(chain.from_iterable(one.vectors for one in each)),
        sum(one.n_tokens for one in each),
    )


def no_evidence(questions: Sequence[Compared | None]) -> Evidence:
    """Return equal probabilities for all options."""
    scores = [
        None if each is None else each.values(np.zeros(len(each.options))) for each in questions
    ]
    return Evidence(tuple(scores), (), 0)


@once_for_each
def source_of(session: Session) -> Similarity | Relevance | None:
    """Return the source of a model: the model itself, or the encoder that was opened with it.

    None if the model generates text and was opened without an encoder.
    """
    compares = session.encoder if session.kind == "decoder" else session
    if compares is None:
        return None
    binding, ctx = compares.binding, compares.ctx
    if compares.kind == "reranker":
        return Relevance(binding, ctx)
    return Similarity(binding, ctx, prefixes(compares.describe()["model"]))


def reading_ahead(inputs: Iterable[T], expect: Callable[[T], None]) -> Iterator[T]:
    """Yield inputs in groups, and announce a whole group before yielding its first input."""
    rest = iter(inputs)
    while group := list(islice(rest, N_TEXTS)):
        for each in group:
            with suppress(Exception):  # the input itself will raise it
                expect(each)
        yield from group


class Similarity:
    """The similarity of an encoder's vectors. Thread-safe."""

    def __init__(self, binding: CffiBinding, ctx: Any, prefixes: Prefixes) -> None:
        # Do not store the session: it must not be kept alive.
        self._prefixes = prefixes
        self._embed = partial(binding.embed_texts, ctx, in_windows=True)
        self._tokenize = partial(binding.tokenize, ctx)
        self._known: Recent[Floats] = Recent(MAX_INPUTS)
        self._options: Recent[Array] = Recent(MAX_QUESTIONS)
        self._reading = threading.Lock()
        self._announcing = threading.Lock()
        self._upcoming: dict[str, None] = {}

    def expect(self, text: str, questions: Sequence[Compared | None]) -> None:
        """Announce an input, so that it can be read together with an earlier one."""
        for question in questions:
            self._announce(self._written(text, question))

    def _written(self, text: str, question: Compared | None) -> str:
        """Return an input with the prefix that the model was trained with."""
        asked = GENERAL_QUESTION if question is None else question.instructions
        return self._prefixes.of_input(asked) + text

    def _announce(self, text: str) -> None:
        with self._announcing:
            self._upcoming[text] = None
            while len(self._upcoming) > N_UPCOMING:
                del self._upcoming[next(iter(self._upcoming))]

    def read(
        self, text: str, questions: Sequence[Compared | None], check: Callable[[], None]
    ) -> Evidence:
        """Compare an input with the options of questions.

        `check` is called between calls of the library. To cancel, it raises an error.
        """
        _check_input(text)
        written = [self._written(text, each) for each in questions]
        vectors = [self._vector(each, check) for each in written]
        scores = tuple(
            None if each is None else each.values(self._vectors_of(each, check) @ vector)
            for each, vector in zip(questions, vectors, strict=True)
        )
        n_tokens = sum(len(self._tokenize(each, add_special=True)) for each in set(written))
        return Evidence(scores, tuple(vectors), n_tokens)

    def _vectors_of(self, question: Compared, check: Callable[[], None]) -> Array:
        """Return the vectors of a question's options divided by the temperature, as rows."""

        def computed() -> Array:
            prefix = self._prefixes.option
            texts = [
                [prefix + form.format(text) for text in option.texts for form in FORMS]
                for option in question.options
            ]
            flat = [each for listed in texts for each in listed]
            parts = []
            for begin in range(0, len(flat), N_TEXTS):
                check()
                parts.append(self._embed(flat[begin : begin + N_TEXTS]))
            rows, ends = np.concatenate(parts), np.cumsum(list(map(len, texts)))
            means = np.array(
                [
                    rows[end - len(each) : end].mean(axis=0, dtype=np.float64)
                    for end, each in zip(ends, texts, strict=True)
                ]
            )
            norms = np.linalg.norm(means, axis=1, keepdims=True)
            vectors: Array = means / norms / TEMPERATURE
            return vectors

        found = self._options.find(question.options)
        if found is None:
            with self._reading:  # so that two threads do not compute the same
                found = self._options.get(question.options, computed)
        return found

    def _vector(self, text: str, check: Callable[[], None]) -> Floats:
        """Return the vector of an input, and compute the vectors of announced inputs, too."""
        found = self._known.find(_key(text))
        if found is not None:
            return found
        self._announce(text)  # another thread may read it while this one waits
        with self._reading:
            with self._announcing:
                self._upcoming.pop(text, None)
            found = self._known.find(_key(text))  # another thread may have read it
            if found is not None:
                return found
            check()
            with self._announcing:
                new = (each for each in self._upcoming if self._known.find(_key(each)) is None)
                others = list(islice(new, N_TEXTS - 1))
                for each in others:
                    del self._upcoming[each]
            for each, row in zip([text, *others], self._rows(text, others), strict=False):
                self._known.get(_key(each), row.copy)
        result = self._known.find(_key(text))
        assert result is not None
        return result

    def _rows(self, text: str, others: Sequence[str]) -> Floats:
        """Return the vectors of texts, or only of the first one if one of the others is wrong."""
        if others:
            with suppress(ElizaError):
                return self._embed([text, *others])
        return self._embed([text])


class Relevance:
    """The relevance of the options' descriptions, by a reranker."""

    def __init__(self, binding: CffiBinding, ctx: Any) -> None:
        self._rerank = partial(binding.rerank, ctx)
        self._tokenize = partial(binding.tokenize, ctx)

    def expect(self, text: str, questions: Sequence[Compared | None]) -> None:
        """Do nothing: the descriptions of the options already fill the passes of an input."""

    def read(
        self, text: str, questions: Sequence[Compared | None], check: Callable[[], None]
    ) -> Evidence:
        _check_input(text)
        asked = [option.meaning for each in questions if each for option in each.options]
        documents = list(dict.fromkeys(asked))
        values: dict[str, float] = {}
        for begin in range(0, len(documents), N_TEXTS):
            check()
            part = documents[begin : begin + N_TEXTS]
            values.update(zip(part, self._rerank(text, part).tolist(), strict=True))
        scores = tuple(
            None
            if each is None
            else each.values(np.array([values[option.meaning] for option in each.options]))
            for each in questions
        )
        return Evidence(scores, (), len(self._tokenize(text, add_special=True)))


def _check_input(text: str) -> None:
    if not text:
        raise wrong("input", "a text that is not empty, to compare with the options", text)


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
