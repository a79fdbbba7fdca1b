"""Rows in chunks: how large these are, and that the rows come out in their order, each once."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from table_work import QUESTIONS, decide

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.scale.chunks import CHUNK_SECONDS, MOST_ROWS, Chunk, Chunks
from eliza_ffi.tables import DecidedRow, TableRow

pytestmark = pytest.mark.slow


def rows(n: int) -> Iterator[TableRow]:
    for number in range(1, n + 1):
        text = None if number % 7 == 0 else f"text {number}"
        yield TableRow(number, f"row {number}", {"body": text})


def outcomes(chunk: Chunk) -> list[object]:
    return [
        each if isinstance(each, Exception) else decide(each, QUESTIONS) for each in chunk.inputs
    ]


def test_rows_come_out_in_order_however_chunks_come_back() -> None:
    drawn = random.Random(1)
    chunks = Chunks(rows(500), "body", 3)
    out: list[Chunk] = []
    found: list[DecidedRow] = []
    while True:
        while (chunk := chunks.next(look_ahead=6)) is not None:
            out.append(chunk)
        if not out:
            break
        back = out.pop(drawn.randrange(len(out)))
        if drawn.random() < 0.2:
            chunks.out_again(back)
        else:
            chunks.take(back, outcomes(back), seconds=drawn.random())  # type: ignore[arg-type]
        found += chunks.in_order()
    assert chunks.is_done
    assert [each.row.number for each in found] == list(range(1, 501))
    for each in found:
        if each.row.number % 7 == 0:
            assert (each.decision, each.error) == (
                None,
                f"row {each.row.number}: no value in column 'body'",
            )
        else:
            wanted = decide(each.row.fields["body"], QUESTIONS)
            assert each.decision is not None
            assert each.decision["topic"] == wanted["topic"]


def test_a_chunk_waits_where_too_many_are_in_front_of_the_next_in_order() -> None:
    chunks = Chunks(rows(100), "body", 4)
    first, second = chunks.next(2), chunks.next(2)
    assert first is not None
    assert second is not None
    assert chunks.next(2) is None
    assert not chunks.is_done
    chunks.take(second, outcomes(second), 1.0)  # type: ignore[arg-type]
    assert list(chunks.in_order()) == []
    assert chunks.next(2) is None
    chunks.take(first, outcomes(first), 1.0)  # type: ignore[arg-type]
    assert [each.row.number for each in chunks.in_order()] == list(range(1, 9))
    assert chunks.next(2) is not None


def test_chunks_grow_until_they_take_long_enough() -> None:
    chunks = Chunks(rows(20_000), "body", 8)
    sizes = []
    while (chunk := chunks.next(1)) is not None and len(sizes) < 12:
        sizes.append(len(chunk.rows))
        chunks.take(chunk, outcomes(chunk), len(chunk.rows) / 100)  # type: ignore[arg-type]
        assert len(list(chunks.in_order())) == len(chunk.rows)
    assert sizes[:4] == [8, 16, 32, 64]
    assert sizes[-1] == 100 * CHUNK_SECONDS


def test_chunks_are_never_larger_than_the_most_nor_smaller_than_the_first() -> None:
    for seconds, wanted in ((1e-9, MOST_ROWS), (1e9, 8)):
        chunks = Chunks(rows(10_000), "body", 8)
        for _ in range(9):
            chunk = chunks.next(1)
            assert chunk is not None
            chunks.take(chunk, outcomes(chunk), seconds)  # type: ignore[arg-type]
            assert len(list(chunks.in_order())) == len(chunk.rows)
        assert len(chunk.rows) == wanted


def test_a_chunk_that_goes_out_again_goes_before_all_others() -> None:
    chunks = Chunks(rows(40), "body", 4)
    out = [chunks.next(9) for _ in range(3)]
    for chunk in (out[2], out[0]):
        assert chunk is not None
        chunks.out_again(chunk)
    assert [chunks.next(9) for _ in range(2)] == [out[0], out[2]]
    assert out[0] is not None
    assert (out[0].n_tries, out[0].place) == (1, "rows 1 to 4")


def test_what_cannot_be_asked_about_is_an_error_in_its_place() -> None:
    chunk = Chunks(rows(8), "body", 8).next(1)
    assert chunk is not None
    assert [isinstance(each, InvalidArgumentError) for each in chunk.inputs].index(True) == 6
