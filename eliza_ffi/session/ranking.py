"""Find the most probable of many labels after a prompt."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..checks import check_one_of, check_whole
from ..choices.hierarchy import Groups
from ..choices.label_set import ChoiceResult, LabelSet
from ..choices.rank_result import RankLevel, RankResult
from ..errors import ContextFullError, InvalidArgumentError, TokenTrieError
from ..library.protocol import PreparedChoices, Ranking
from .options import AnyPrompt, CacheOptions
from .requests import (
    Request,
    TextChoices,
    check_any_tokenization,
    continued_by,
    generate_request,
    split_spaces,
)
from .run import Run

if TYPE_CHECKING:
    from .session import Session


def rank_request(
    session: Session,
    prompt: AnyPrompt,
    labels: LabelSet[Any],
    /,
    *,
    k: int = 5,
    separator: str | None = None,
    level: int | None = None,
    max_passes: int | None = None,
    tokenization: str = "canonical",
    cache: CacheOptions | None = None,
) -> tuple[Request, partial[LabelSearch]]:
    """Return the request of :meth:`Model.rank <eliza_ffi.model.Model.rank>`, and its search."""
    k = check_whole("k", k, 1)
    check_one_of("tokenization", tokenization, ("canonical", "any"))
    if max_passes is not None:
        max_passes = check_whole("max_passes", max_passes, 0)
    if level is not None and separator is None:
        raise InvalidArgumentError(
            'level needs separator, the text between the parts of a label, such as " > "'
        )
    hierarchy = None if separator is None else labels.hierarchy(separator)
    groups = None if hierarchy is None or level is None else hierarchy.groups_at(level)
    _ = session.ctx  # raises if the model is closed or belongs to the parent process
    tokens: PreparedChoices | TextChoices
    if tokenization == "any":
        check_any_tokenization(labels)
        prompt, lead = split_spaces(session, prompt)
        tokens = TextChoices(tuple(lead + text for text in labels.texts))
    else:
        tokens, prompt, _ = continued_by(session, labels, prompt)
    request = generate_request(session, prompt, method="rank", cache=cache)
    k = min(k, len(labels.texts) if groups is None else len(groups.texts))
    search = partial(
        LabelSearch, labels=labels, k=k, max_passes=max_passes, separator=separator, groups=groups
    )
    return replace(request, constraint=tokens), search


class LabelSearch:
    """The search for the `k` most probable labels of a request, as a part of `run`.

    With `groups`, it ranks these groups of labels instead of the labels.
    """

    def __init__(
        self,
        run: Run[Any],
        request: Request,
        labels: LabelSet[Any],
        k: int,
        max_passes: int | None = None,
        separator: str | None = None,
        groups: Groups | None = None,
    ) -> None:
        self._run, self._binding = run, run.binding
        self._request, self._labels, self._k = request, labels, k
        self._max_passes, self._separator, self._groups = max_passes, separator, groups

    def result(self) -> RankResult[Any]:
        """Rank the labels."""
        begin = time.perf_counter()
        with self._prefilled() as stream:
            of_label = None if self._groups is None else self._groups.of_label
            found = self._search(stream, of_label, self._k)
            levels = None if self._separator is None else self._levels(stream, found)
        return self._result(begin, found, levels)

    def choice(self) -> ChoiceResult[Any]:
        """Find the most probable label, as the result of a choice."""
        begin = time.perf_counter()
        with self._prefilled() as stream:
            found = self._search(stream, None, 1)
            stats = self._binding.stats(stream)
        index = int(found.labels[0])
        return ChoiceResult(
            value=self._labels.values[index],
            index=index,
            text=self._labels.texts[index],
            logprob=float(found.logprobs[0]),
            tokens=(),
            forward_passes=found.forward_passes,
            seconds=time.perf_counter() - begin,
            stats=stats,
            proven=found.proven,
        )

    def _prefilled(self) -> AbstractContextManager[Any]:
        return self._run.opened(self._request, self._request.prompt_tokens)

    def _search(
        self, stream: Any, groups: NDArray[np.int32] | None, k: int, *, is_new: bool = True
    ) -> Ranking:
        labels: Any = self._request.constraint
        max_passes = self._max_passes if is_new else 0
        if isinstance(labels, TextChoices):
            rank = partial(self._binding.rank_texts, stream, labels.texts)
            n_labels = len(labels.texts)
        else:
            rank, n_labels = partial(self._binding.rank, stream, labels), labels.n
        rank = partial(rank, k=k, groups=groups, max_passes=max_passes)
        n_before = len(self._request.prompt_tokens)
        try:
            return self._run.call(rank, n_labels)
        except (ContextFullError, TokenTrieError) as error:
            self._run.name_label(error, (n_before, labels))
            raise

    def _levels(self, stream: Any, found: Ranking) -> tuple[RankLevel, ...]:
        """Return the levels of the first label or group, without further forward passes."""
        levels = []
        for groups, number in self._groups_of_first(found):
            is_outside = (groups.of_label != number).astype(np.int32)
            known = self._search(stream, is_outside, 1 + int(is_outside.any()), is_new=False)
            (place,) = np.flatnonzero(known.labels == 0)
            low, high = np.exp([known.logprobs[place], known.most_logprobs[place]]).tolist()
            levels.append(RankLevel(groups.texts[number], low, min(1.0, high)))
        return tuple(levels)

    def _groups_of_first(self, found: Ranking) -> list[tuple[Groups, int]]:
        """Return the groups at each level, and the number of the group of the first label."""
        if len(found.labels) == 0 or self._separator is None:
            return []
        first = int(found.labels[0])
        if self._groups is not None:
            first = int(np.flatnonzero(self._groups.of_label == first)[0])
        hierarchy = self._labels.hierarchy(self._separator)
        depth = hierarchy.depth_of(self._text_of(int(found.labels[0])))
        groups = [hierarchy.groups_at(level) for level in range(1, depth + 1)]
        return [(each, int(each.of_label[first])) for each in groups]

    def _text_of(self, number: int) -> str:
        return (self._labels if self._groups is None else self._groups).texts[number]

    def _result(
        self, begin: float, found: Ranking, levels: tuple[RankLevel, ...] | None
    ) -> RankResult[Any]:
        values = self._labels.values if self._groups is None else self._groups.texts
        return RankResult(
            labels=tuple(values[i] for i in found.labels.tolist()),
            probabilities=tuple(np.exp(found.logprobs).tolist()),
            rest=found.rest,
            proven=found.proven,
            forward_passes=found.forward_passes,
            seconds=time.perf_counter() - begin,
            levels=levels,
        )
