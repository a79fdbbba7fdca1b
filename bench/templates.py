"""Measure how much of several prompt templates in turn is found in the KV cache.

    python -m bench.templates

Each template is a beginning of 200 tokens that many prompts have in common. Prompts with 20 other
tokens follow, one template after the other. The cache has room for all of them, but fewer slots.
"""

from __future__ import annotations

import argparse

from eliza_ffi import Model

N_BEGINNING, N_END, N_ROUNDS, N_SLOTS, N_CTX = 200, 20, 6, 8, 16384


def reused(n_templates: int) -> float:
    """Return which part of the beginnings, after the first round, was found in the cache."""
    found = 0
    with Model(n_slots=N_SLOTS, n_ctx=N_CTX) as model:
        word = model.tokenize(" word")[:1]
        for round_ in range(N_ROUNDS):
            for template in range(n_templates):
                prompt = [100 + template, *word * (N_BEGINNING - 1), *[300 + round_] * N_END]
                stats = model.choose(prompt, ["yes", "no"]).stats
                assert stats is not None  # our library counts
                found += stats.prompt_tokens_reused if round_ else 0
    return found / (n_templates * (N_ROUNDS - 1) * N_BEGINNING)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--templates", type=int, nargs="+", metavar="N", default=[8, 9, 20, 40])
    for n in parser.parse_args().templates:
        print(f"{n:4} templates, {N_SLOTS} slots: {reused(n):6.1%} of their tokens were cached")


if __name__ == "__main__":
    main()
