"""A model file that is broken is an error, never the end of the process that opens it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from model_mutations import Mutation, all_mutations, chosen, read_gguf
from mutate_models import Opener, Outcome, table

from eliza_ffi._resources import default_model_path
from eliza_ffi.library.loading import Library

pytestmark = pytest.mark.slow

# About ten seconds: some of every kind, the same each time; scripts/mutate_models.py opens more.
COUNT = 300
SEED = 11


@pytest.fixture
def opener(tmp_path: Path, library: Library) -> Opener:
    return Opener(tmp_path, library)


@pytest.fixture(scope="module")
def mutations() -> Iterator[list[Mutation]]:
    yield all_mutations(read_gguf(default_model_path()), SEED, n_random=100)


def test_no_broken_file_ends_the_process(opener: Opener, mutations: list[Mutation]) -> None:
    rows = [(each, opener.open(each.files())) for each in chosen(mutations, COUNT, SEED)]
    fatal = [
        f"{outcome.result} at {outcome.stage}: {mutation.what}: {outcome.message}"
        for mutation, outcome in rows
        if outcome.is_fatal
    ]
    assert fatal == [], table(rows)
    results = {outcome.result for _, outcome in rows}
    assert {"refused", "worked"} <= results  # or they were not broken, or the opener is


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("llama.block_count = 0 (type 4)", "llama.block_count is 0; a model has 1 to 512 layers"),
        ("llama.attention.layer_norm_rms_epsilon = nan (type 6)", "rms_epsilon is nan; "),
        ("tokenizer.ggml.tokens: all the same", "which another token is, too"),
        ("output_norm.weight: of type 1, zeros", "output_norm.weight has the type f16; "),
        ("rwkv, plain", "which is no token itself"),
        ("second without split.no", "split.no is missing"),
        (
            "adapter: general.architecture = 1 (type 4)",
            "general.architecture is missing or no text",
        ),
        ("adapter: three dimensions, type 0", "has the shape "),
    ],
)
def test_what_ended_the_process_once_is_named(
    opener: Opener, mutations: list[Mutation], what: str, reason: str
) -> None:
    (mutation,) = (each for each in mutations if each.what == what)
    outcome = opener.open(mutation.files())
    assert outcome.result == "refused"
    assert reason in outcome.message


def test_an_unbroken_file_works(opener: Opener, mutations: list[Mutation]) -> None:
    assert mutations[0].kind == "unchanged"
    assert opener.open(mutations[0].files()) == Outcome("worked", "close", answered=True)


def test_what_is_no_file_is_refused_and_not_waited_for(opener: Opener, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero"), tmp_path):
        assert opener.open_path(path).result == "refused", path


def test_a_process_that_dies_is_told_from_one_that_ends(tmp_path: Path) -> None:
    def abort(*_: object) -> Outcome:
        os.abort()

    def exhaust(*_: object) -> Outcome:
        return Outcome("failed", message="tokenize: std::bad_alloc")

    assert Opener(tmp_path, action=abort).open({"model.gguf": b""}).result == "died"
    assert Opener(tmp_path, action=exhaust).open({"model.gguf": b""}).result == "memory"
    fine = Outcome("worked")
    assert Opener(tmp_path, action=lambda *_: fine).open({"model.gguf": b""}) == fine


def test_a_file_is_written_as_it_was_read() -> None:
    base = read_gguf(default_model_path())
    assert base.to_bytes() == default_model_path().read_bytes()
    assert replace(base, version=2).to_bytes() != base.to_bytes()
