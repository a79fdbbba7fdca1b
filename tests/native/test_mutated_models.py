"""A broken model file is reported as an error and never crashes the process."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from effort import share
from forked import Child, run_forked
from hostile.mutated import MEBIBYTES, use, write
from model_mutations import Mutation, all_mutations, chosen, read_gguf

from eliza_ffi._resources import default_model_path
from eliza_ffi.errors import ElizaError
from eliza_ffi.library.loading import Library

pytestmark = pytest.mark.slow

# A fixed sample with every kind of mutation. scripts/check_hostile.py --mutations 20000 opens all.
COUNT = share(300)
SEED = 11
SECONDS = 60.0


@pytest.fixture(scope="module")
def mutations() -> list[Mutation]:
    return all_mutations(read_gguf(default_model_path()), SEED, n_random=100)


def in_child(library: Library, path: Path, lora: Path | None = None) -> tuple[str, str, Child]:
    def work() -> tuple[str, str]:
        try:
            errors = use(path, lora, library)
        except ElizaError as error:
            return "refused", str(error)
        return ("failed" if errors else "worked"), "; ".join(errors)

    child = run_forked(work, SECONDS, MEBIBYTES)
    result, message = child.report or ("died", f"{child.how}: {child.last_words}")
    return result, message, child


@pytest.fixture
def opened(tmp_path: Path, library: Library) -> Callable[[Mutation], tuple[str, str]]:
    def opened(mutation: Mutation) -> tuple[str, str]:
        for old in tmp_path.iterdir():
            old.unlink()
        result, message, child = in_child(library, *write(mutation.files(), tmp_path))
        return result, message if child.report else f"{child.stages}: {message}"

    return opened


def test_no_broken_file_crashes_the_process(
    opened: Callable[[Mutation], tuple[str, str]], mutations: list[Mutation]
) -> None:
    found = {each.what: opened(each) for each in chosen(mutations, COUNT, SEED)}
    assert {what: message for what, (result, message) in found.items() if result == "died"} == {}
    # Without both results, either the mutations or the opening do not work.
    counts = Counter(result for result, _ in found.values())
    assert counts["refused"] and counts["worked"], counts


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("llama.block_count = 0 (type 4)", "llama.block_count is 0; expected 1 to 512"),
        ("llama.attention.layer_norm_rms_epsilon = nan (type 6)", "rms_epsilon is nan; "),
        ("tokenizer.ggml.tokens: all the same", "GGML_ASSERT(id_to_token.size() =="),
        ("output_norm.weight: of type 1, zeros", "output_norm.weight has the type f16; "),
        ("rwkv, plain", "which is not a token itself"),
        ("second without split.no", "GGUF split"),
        ("adapter: general.architecture = 1 (type 4)", "cannot load the LoRA adapter"),
        ("adapter: three dimensions, type 0", "has the shape "),
    ],
)
def test_the_error_names_the_problem_in_the_file(
    opened: Callable[[Mutation], tuple[str, str]], mutations: list[Mutation], what: str, reason: str
) -> None:
    """Each of these files has crashed the process in the past."""
    (mutation,) = (each for each in mutations if each.what == what)
    result, message = opened(mutation)
    assert result == "refused"
    assert reason in message


def test_an_unbroken_file_works(
    opened: Callable[[Mutation], tuple[str, str]], mutations: list[Mutation]
) -> None:
    assert mutations[0].kind == "unchanged"
    assert opened(mutations[0]) == ("worked", "")


def test_special_files_are_rejected_without_reading_them(library: Library, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero"), tmp_path):
        assert in_child(library, path)[0] == "refused", path


def test_an_unchanged_file_is_written_byte_for_byte() -> None:
    base = read_gguf(default_model_path())
    assert base.to_bytes() == default_model_path().read_bytes()
    assert replace(base, version=2).to_bytes() != base.to_bytes()
