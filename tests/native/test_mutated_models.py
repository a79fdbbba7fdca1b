"""A broken model file is reported as an error and never crashes the process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from effort import share
from model_mutations import Mutation, all_mutations, chosen, read_gguf
from mutate_models import Opener, Outcome, table

from eliza_ffi._resources import default_model_path
from eliza_ffi.library.loading import Library

pytestmark = pytest.mark.slow

# A fixed sample with every kind of mutation. To open more files, run scripts/mutate_models.py.
COUNT = share(300)
SEED = 11


@pytest.fixture
def opener(tmp_path: Path, library: Library) -> Opener:
    return Opener(tmp_path, library)


@pytest.fixture(scope="module")
def mutations() -> Iterator[list[Mutation]]:
    yield all_mutations(read_gguf(default_model_path()), SEED, n_random=100)


def test_no_broken_file_crashes_the_process(opener: Opener, mutations: list[Mutation]) -> None:
    rows = [(each, opener.open(each.files())) for each in chosen(mutations, COUNT, SEED)]
    fatal = [
        f"{outcome.result} at {outcome.stage}: {mutation.what}: {outcome.message}"
        for mutation, outcome in rows
        if outcome.is_fatal
    ]
    assert fatal == [], table(rows)
    results = {outcome.result for _, outcome in rows}
    # Without both results, either the mutations or the opener do not work.
    assert {"refused", "worked"} <= results


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("llama.block_count = 0 (type 4)", "llama.block_count is 0; expected 1 to 512"),
        ("llama.attention.layer_norm_rms_epsilon = nan (type 6)", "rms_epsilon is nan; "),
        ("tokenizer.ggml.tokens: all the same", "the same as another token"),
        ("output_norm.weight: of type 1, zeros", "output_norm.weight has the type f16; "),
        ("rwkv, plain", "which is not a token itself"),
        ("second without split.no", "split.no is missing"),
        (
            "adapter: general.architecture = 1 (type 4)",
            "general.architecture is missing or is not a string",
        ),
        ("adapter: three dimensions, type 0", "has the shape "),
    ],
)
def test_the_error_names_the_problem_in_the_file(
    opener: Opener, mutations: list[Mutation], what: str, reason: str
) -> None:
    """Each of these files has crashed the process in the past."""
    (mutation,) = (each for each in mutations if each.what == what)
    outcome = opener.open(mutation.files())
    assert outcome.result == "refused"
    assert reason in outcome.message


def test_an_unbroken_file_works(opener: Opener, mutations: list[Mutation]) -> None:
    assert mutations[0].kind == "unchanged"
    assert opener.open(mutations[0].files()) == Outcome("worked", "close", answered=True)


def test_special_files_are_rejected_without_reading_them(opener: Opener, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero"), tmp_path):
        assert opener.open_path(path).result == "refused", path


def test_the_opener_distinguishes_crashes_from_errors(tmp_path: Path) -> None:
    def abort(*_: object) -> Outcome:
        os.abort()

    def exhaust(*_: object) -> Outcome:
        return Outcome("failed", message="tokenize: std::bad_alloc")

    assert Opener(tmp_path, action=abort).open({"model.gguf": b""}).result == "died"
    assert Opener(tmp_path, action=exhaust).open({"model.gguf": b""}).result == "memory"
    fine = Outcome("worked")
    assert Opener(tmp_path, action=lambda *_: fine).open({"model.gguf": b""}) == fine


def test_an_unchanged_file_is_written_byte_for_byte() -> None:
    base = read_gguf(default_model_path())
    assert base.to_bytes() == default_model_path().read_bytes()
    assert replace(base, version=2).to_bytes() != base.to_bytes()
