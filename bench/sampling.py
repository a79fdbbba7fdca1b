"""Compare the sampler chain with llama.cpp's common_sampler, from logits to token.

Both run in one process on the same logits with the same settings, and take turns.

    $ python -m bench.sampling
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cffi
import numpy as np
from make_test_models import cached_model
from numpy.typing import NDArray
from page_tables import markdown_table, number

from eliza_ffi.model import Model
from eliza_ffi.sampling import PRESETS, Sampling

from .parts.hooks import find_hooks
from .parts.machine import disturbance, machine_facts, machine_line, noting_other_programs
from .parts.pages import bench_parser, page_of, publish, stored_or_measured

VOCABULARIES = ("llama-spm", "llama-bpe", "gemma-4")
"""The measured vocabularies, with 32,000, 128,256 and 262,144 tokens."""
ROUNDS = 5
"""How often the two chains take turns."""
SETTINGS = {
    **{name: params for name, params in PRESETS.items() if not params.is_greedy},
    "penalties and top-k": Sampling(temperature=0.8, top_k=40, repeat_penalty=1.1),
    "temperature alone": Sampling(temperature=0.8),
    "balanced, gumbel": Sampling.preset("balanced", draw="gumbel"),
}
DECLARATION = """
    int eliza_test_chain_time(const char *, const char *, const float *, size_t n, int as_common,
                              size_t repeats, int64_t * ns_out);
"""


class Chains:
    """The two sampler chains, through the test hooks."""

    def __init__(self, hooks: Path) -> None:
        self._ffi: Any = cffi.FFI()
        self._ffi.cdef(DECLARATION)
        self._lib: Any = self._ffi.dlopen(str(hooks))

    def microseconds(
        self,
        model: Path,
        settings: str,
        logits: NDArray[np.float32],
        repeats: int,
        *,
        as_common: bool,
    ) -> NDArray[np.float64]:
        """Return the microseconds of each draw, shape ``[repeats]``.

        One untimed draw comes first, because the first draw also touches new memory for the
        candidates.

        Raises
        ------
        RuntimeError
            If the chain cannot run with these settings.
        """
        spent = np.zeros(repeats + 1, dtype=np.int64)
        status = self._lib.eliza_test_chain_time(
            str(model).encode(),
            settings.encode(),
            self._ffi.from_buffer("float[]", logits),
            len(logits),
            as_common,
            len(spent),
            self._ffi.from_buffer("int64_t[]", spent),
        )
        if status != 0:
            raise RuntimeError(f"the sampler chain failed with the settings {settings}")
        return spent[1:] / 1e3


def random_logits(n_vocab: int) -> NDArray[np.float32]:
    """Return normally distributed logits with a fixed seed, shape ``[n_vocab]``."""
    return np.random.default_rng(1).normal(0, 3, n_vocab).astype(np.float32)


def measure(chains: Chains, vocabulary: str, repeats: int) -> dict[str, Any]:
    """Time every setting over one vocabulary.

    Returns
    -------
    dict
        ``vocabulary``, ``n_vocab``, ``other_programs`` if the system reports it, and ``settings``.
        For each setting, ``ours`` and ``common`` are the microseconds per token, medians of
        `repeats` draws. ``ratio`` is common divided by ours, the median of the ratios within a
        round.
    """
    path = cached_model(vocabulary)
    with Model(path) as model:
        n_vocab = int(model.describe()["model"]["n_vocab"])
    logits = random_logits(n_vocab)
    cell: dict[str, Any] = {"vocabulary": vocabulary, "n_vocab": n_vocab, "settings": {}}
    with noting_other_programs(cell):
        for name, params in SETTINGS.items():
            settings = json.dumps(json.loads(params.to_json()) | {"seed": 1})
            times: dict[str, list[NDArray[np.float64]]] = {"ours": [], "common": []}
            for _ in range(min(ROUNDS, repeats)):
                for chain, into in times.items():
                    draws = max(repeats // ROUNDS, 1)
                    as_common = chain == "common"
                    into.append(
                        chains.microseconds(path, settings, logits, draws, as_common=as_common)
                    )
            in_round = {chain: np.median(parts, axis=1) for chain, parts in times.items()}
            cell["settings"][name] = {
                **{chain: float(np.median(parts)) for chain, parts in times.items()},
                "ratio": float(np.median(in_round["common"] / in_round["ours"])),
            }
    return cell


def run(chains: Chains, vocabularies: Sequence[str], repeats: int) -> dict[str, Any]:
    """Time every setting over every vocabulary."""
    return {
        "machine": machine_facts(),
        "repeats": repeats,
        "cells": [measure(chains, vocabulary, repeats) for vocabulary in vocabularies],
    }


def markdown(results: dict[str, Any]) -> str:
    """Return the table."""
    rows = [
        [
            name,
            f"{cell['n_vocab']:,}",
            f"{figures['ratio']:.2f}",
            number(figures["ours"]),
            number(figures["common"]),
        ]
        for name in SETTINGS
        for cell in results["cells"]
        for figures in [cell["settings"][name]]
    ]
    disturbed = disturbance((f"{each['n_vocab']:,} tokens", each) for each in results["cells"])
    return page_of(
        f"{machine_line(results['machine'])} Medians of {results['repeats']} draws.{disturbed}",
        markdown_table(
            [
                "settings",
                "vocabulary",
                "common_sampler / eliza-ffi",
                "eliza-ffi, µs",
                "common_sampler, µs",
            ],
            rows,
        ),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = bench_parser("Compare the sampler chain with llama.cpp's, from logits to token.")
    parser.add_argument("--repeats", type=int, default=100, help="draws for each setting (100)")
    options = parser.parse_args(arguments)
    results = stored_or_measured(
        options, "sampling", lambda: run(Chains(find_hooks()), VOCABULARIES, options.repeats)
    )
    return publish("sampling", results, markdown(results), options)


if __name__ == "__main__":
    sys.exit(main())
