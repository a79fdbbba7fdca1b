"""Check the examples and tables in docs/reference/sampling.md."""

from __future__ import annotations

import contextlib
import io
import re
import sys

import gumbel
import pytest
from checkout import ROOT

from eliza_ffi import sampling

PAGE = (ROOT / "docs" / "reference" / "sampling.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_print_the_documented_output(example: str) -> None:
    said = re.findall(r"^# (.*?)(?:  +.*)?$", example, flags=re.MULTILINE)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(example, {})
    assert printed.getvalue().splitlines() == said


def test_every_sampler_has_a_table_row() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ", PAGE.partition("## Samplers")[2], flags=re.MULTILINE)
    assert set(sampling.SAMPLER_NAMES) <= set(rows)


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
        assert gumbel.element_seed(int(position), int(seed)) == int(start)
        assert int(gumbel.pcg_hash((int(start) + int(token)) % 2**32)) == int(hashed, 16)
        uniform = gumbel.gumbel_uniform(int(position), int(seed), [int(token)])
        assert uniform.tobytes() == int(bits, 16).to_bytes(4, sys.byteorder)
        (drawn,) = gumbel.gumbel_noise(uniform)
        assert float(drawn) == pytest.approx(float(noise), rel=2e-5)
