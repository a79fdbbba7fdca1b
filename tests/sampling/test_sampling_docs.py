"""Check the tables and formulas in docs/reference/sampling.md."""

from __future__ import annotations

import re
import sys

import gumbel
import pytest
from checkout import ROOT

from eliza_ffi import sampling

PAGE = (ROOT / "docs" / "reference" / "sampling.md").read_text(encoding="utf-8")


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


VECTORS = (
    (0, 0, 0, 0, 0x07BB2FE2, 0x3CF765FC, -1.2527382),
    (0, 0, 1, 0, 0xA8BEEA3C, 0x3F28BEEA, 0.87518656),
    (1, 0, 0, 2654435761, 0x703CC78A, 0x3EE0798F, 0.19290416),
    (5, 42, 151643, 204429183, 0x8EF68E46, 0x3F0EF68E, 0.5402701),
    (5, 42, 262143, 204429183, 0x0AAD5F34, 0x3D2AD5F3, -1.1559575),
    (0, 0, 4734895, 0, 0x00000041, 0x33D6BF95, -2.7799),  # u is clamped to 1e-7,
    (0, 0, 60418823, 0, 0xFFFFFF90, 0x3F7FFFFE, 15.9424),  # and here to 1 - 2^-23
)
"""Test vectors of the page's formulas: position, seed, token, s, h, the bits of u, G."""


@pytest.mark.parametrize(("position", "seed", "token", "s", "h", "bits", "noise"), VECTORS)
def test_the_reference_implementation_follows_the_page(
    position: int, seed: int, token: int, s: int, h: int, bits: int, noise: float
) -> None:
    assert gumbel.element_seed(position, seed) == s
    assert int(gumbel.pcg_hash((s + token) % 2**32)) == h
    uniform = gumbel.gumbel_uniform(position, seed, [token])
    assert uniform.tobytes() == bits.to_bytes(4, sys.byteorder)
    (drawn,) = gumbel.gumbel_noise(uniform)
    assert float(drawn) == pytest.approx(noise, rel=2e-5)
