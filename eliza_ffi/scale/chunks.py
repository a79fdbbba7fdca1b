"""Rows cut into chunks that go out together, and put back into their order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ..tables.job import DecidedRow, input_of
from ..tables.rows import TableRow
from .asking import Outcome, or_error

__all__ = ["Chunk", "Chunks"]

CHUNK_SECONDS = 4.0
"""Chunks take about so long: a worker's slots run empty at the end of each, and what a worker that
ends has not brought back is decided again."""

MOST_ROWS = 1024


@dataclass(eq=False)
class Chunk:
    """Rows that go out together.

    Attributes
    ----------
    number : int
        Its place among the chunks, from 0.
    rows : list of TableRow
    inputs : list
        What is asked about them, or the exceptions that say why nothing can be.
    n_tries : int
        Workers that have ended over it.
    """

    number: int
    rows: list[TableRow]
    inputs: list[Any]
    n_tries: int = 0

    @property
    def place(self) -> str:
        """Which rows these are, for a message."""
        return f"rows {self.rows[0].number:,} to {self.rows[-1].number:,}"

    def decided(self, outcomes: Sequence[Outcome]) -> list[DecidedRow]:
        """Return its rows with what became of them."""
        return [
            DecidedRow.failed(row, each) if isinstance(each, Exception) else DecidedRow(row, each)
            for row, each in zip(self.rows, outcomes, strict=True)
        ]


class Chunks:
    """Cuts rows into chunks, as large as they may be by what the last one took.

    Parameters
    ----------
    rows
        Read as far as chunks are asked for.
    column
        The column whose values are the inputs.
    fewest
        Rows of the first chunk; no other has fewer but the last.

    Attributes
    ----------
    n_cut, n_in_order : int
        Chunks that were cut, and those that have come back with all before them.
    """

    def __init__(self, rows: Iterable[TableRow], column: str, fewest: int) -> None:
        self.n_cut = self.n_in_order = 0
        self._rows = iter(rows)
        self._column = column
        self._fewest = self._size = fewest
        self._again: list[Chunk] = []
        self._back: dict[int, list[DecidedRow]] = {}

    def next(self, look_ahead: int) -> Chunk | None:
        """Return the chunk that goes out next; None where there is none, or it has to wait.

        Parameters
        ----------
        look_ahead
            Chunks that may be out or have come back beyond the next one in order.
        """
        if self._again:
            return self._again.pop(0)
        if self.n_cut >= self.n_in_order + look_ahead:
            return None
        rows = list(islice(self._rows, self._size))
        if not rows:
            return None
        chunk = Chunk(self.n_cut, rows, [or_error(input_of, row, self._column) for row in rows])
        self.n_cut += 1
        return chunk

    def out_again(self, chunk: Chunk) -> None:
        """Let a chunk that brought nothing back go out before all others."""
        chunk.n_tries += 1
        self._again.append(chunk)
        self._again.sort(key=lambda each: each.number)

    def take(self, chunk: Chunk, outcomes: Sequence[Outcome], seconds: float) -> None:
        """Take what a chunk came to, and the seconds that it took where it was."""
        self._back[chunk.number] = chunk.decided(outcomes)
        rate = len(chunk.rows) / max(seconds, 1e-6)
        wanted = min(round(rate * CHUNK_SECONDS), 2 * len(chunk.rows), MOST_ROWS)
        self._size = max(wanted, self._fewest)

    def in_order(self) -> Iterator[DecidedRow]:
        """Yield the rows that have come back with all before them."""
        while self.n_in_order in self._back:
            decided = self._back.pop(self.n_in_order)
            self.n_in_order += 1
            yield from decided

    @property
    def is_done(self) -> bool:
        """Whether all that were cut have come back in order."""
        return self.n_in_order == self.n_cut
