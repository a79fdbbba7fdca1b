"""Check the examples and tables in docs/sampling.md."""

from __future__ import annotations

import ast
import contextlib
import io
import re
import sys
from pathlib import Path
from typing import Any

import numpy_sampler
import pytest
from checkout import ROOT

from eliza_ffi import sampling

PAGE = (ROOT / "docs" / "sampling.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
STAGES = [
    [cell.strip() for cell in row.strip("|").split("|")]
    for table in re.findall(r"\| function \| test \|\n\| --- .*\n((?:\|.*\n)+)", PAGE)
    for row in table.splitlines()
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_print_the_documented_output(example: str) -> None:
    said = re.findall(r"^# (.*?)(?:  +.*)?$", example, flags=re.MULTILINE)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(example, {})
    assert printed.getvalue().splitlines() == said


def find(path: str) -> Any:
    """Return the object with a dotted name in eliza_ffi.sampling or in numpy_sampler."""
    first, *rest = path.split(".")
    found = getattr(sampling, first, None) or getattr(numpy_sampler, first)
    for name in rest:
        found = getattr(found, name)
    return found


def names_of_sampling_tests() -> set[str]:
    """Return the names of all top-level tests in the files of this folder."""
    files = Path(__file__).parent.glob("test_sampling_*.py")
    parsed = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
    functions = [node for tree in parsed for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {each.name for each in functions if each.name.startswith("test_")}


@pytest.mark.slow
def test_every_row_of_the_stage_tables_names_a_function_and_tests() -> None:
    existing = names_of_sampling_tests()
    assert len(STAGES) > 45
    for stage, function, tests in STAGES:
        (path,) = re.findall(r"`([\w.]+)`", function)
        assert find(path) is not None, stage
        named = re.findall(r"`(\w+)`", tests)
        assert named, stage
        assert set(named) <= existing, stage


def test_every_sampler_has_a_table_row() -> None:
    stages = " ".join(stage for stage, _, _ in STAGES)
    assert [name for name in sampling.SAMPLER_NAMES if f"`{name}`" not in stages] == []
    numbers = {stage[0] for stage, _, _ in STAGES if stage[1:2] == "."}
    assert numbers == set("123456789")


@pytest.mark.parametrize("name", sampling.PRESETS)
def test_the_table_of_presets_matches_the_code(name: str) -> None:
    (row,) = re.findall(rf"^\| `{name}` \|(.*)\|$", PAGE, flags=re.MULTILINE)
    preset = sampling.PRESETS[name]
    off = {"temperature": None, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    for cell, (setting, is_off) in zip(row.split("|"), off.items(), strict=True):
        value = getattr(preset, setting)
        assert cell.strip() == "off" if value == is_off else float(cell) == value


def test_the_documented_test_vectors_are_correct() -> None:
    vectors = re.findall(
        r"^\| (\d+) \| (\d+) \| (\d+) \| (\d+) \| 0x(\w{8}) \|[^|]*\| 0x(\w{8}) \| (\S+) \|$",
        PAGE,
        flags=re.MULTILINE,
    )
    assert len(vectors) == 7
    for position, seed, token, start, hashed, bits, noise in vectors:
        assert numpy_sampler.gumbel.element_seed(int(position), int(seed)) == int(start)
        assert int(numpy_sampler.pcg_hash((int(start) + int(token)) % 2**32)) == int(hashed, 16)
        uniform = numpy_sampler.gumbel_uniform(int(position), int(seed), [int(token)])
        assert uniform.tobytes() == int(bits, 16).to_bytes(4, sys.byteorder)
        (drawn,) = numpy_sampler.gumbel_noise(uniform)
        assert float(drawn) == pytest.approx(float(noise), rel=2e-5)
