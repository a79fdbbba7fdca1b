#!/usr/bin/env python3
"""Train the small embedded model and write it as a GGUF file.

    python models/training/train.py

Needs the ``train`` extra (torch, tokenizers, gguf). The corpus comes from ``tiny_model``'s own
generator; nothing is downloaded. The same seed, number of threads and kind of machine give the
same file.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from tiny_model.corpus import Example, Generator  # noqa: E402
from tiny_model.evaluation import accuracy  # noqa: E402
from tiny_model.fixtures import load_fixtures  # noqa: E402
from tiny_model.gguf_file import write_gguf  # noqa: E402
from tiny_model.network import Network, Shape  # noqa: E402
from tiny_model.training import Recipe, train  # noqa: E402
from tiny_model.vocabulary import encode_examples, train_tokenizer  # noqa: E402

TOKENIZER_EXAMPLES = 20_000


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the whole recipe: corpus, vocabulary, training, held-out accuracy, export."""
    options = _parse(arguments)
    started = time.monotonic()
    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)
    torch.use_deterministic_algorithms(True, warn_only=True)

    examples = list(Generator().examples(options.examples, options.seed))
    tokenizer = train_tokenizer(
        (example.text for example in examples[:TOKENIZER_EXAMPLES]), Shape.vocabulary
    )
    corpus = encode_examples(tokenizer, examples)
    total = sum(len(example.tokens) for example in corpus)
    network = Network(Shape(vocabulary=tokenizer.get_vocab_size())).to(options.device)
    weights = sum(weight.numel() for weight in network.parameters())
    print(f"{len(corpus)} examples, {total} tokens, {weights} weights", flush=True)

    train(network, corpus, Recipe(seed=options.seed), options.device)
    splits = held_out_splits(options.seed + 1, options.held_out)
    if options.fixtures is not None:
        splits |= load_fixtures(options.fixtures)
    for name, split in splits.items():
        print(f"{name}: {accuracy(network, tokenizer, split):.3f}", flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    if options.checkpoint:
        saved = {"weights": network.state_dict(), "tokenizer": tokenizer.to_str()}
        torch.save(saved, options.out.with_suffix(".pt"))
    write_gguf(options.out, network.cpu(), tokenizer)
    print(f"{options.out}: {options.out.stat().st_size} bytes, {time.monotonic() - started:.0f} s")


def held_out_splits(seed: int, count: int) -> dict[str, list[Example]]:
    """Write the splits that training never sees: new texts, and requests for new actions.

    A list of one action leaves nothing to choose, so such lists are left out.
    """
    known, new = Generator(), Generator(held_out=True)
    rng = random.Random(seed)
    known_plans = (known.planner(rng) for _ in range(2 * count))
    new_plans = (new.planner(rng) for _ in range(2 * count))
    return {
        "planner, known actions": [plan for plan in known_plans if len(plan.choices) > 1][:count],
        "planner, held-out actions": [plan for plan in new_plans if len(plan.choices) > 1][:count],
        "should respond": [known.decision(rng) for _ in range(count)],
    }


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train the small embedded model.")
    parser.add_argument("--examples", type=int, default=100_000, help="size of the corpus")
    parser.add_argument("--held-out", type=int, default=500, help="size of each held-out split")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--fixtures", type=Path, help="folder of elizaOS's fixtures to measure on")
    parser.add_argument("--checkpoint", action="store_true", help="keep the torch weights too")
    parser.add_argument("--out", type=Path, default=ROOT / "models" / "eliza-tiny.gguf")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
