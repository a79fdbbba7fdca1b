#!/usr/bin/env python3
"""Train the small embedded model and write it as a GGUF file.

    python models/training/train.py

Needs the ``train`` extra (torch, tokenizers, gguf). The generator in ``tiny_model`` writes the
corpus; nothing is downloaded. The same seed, number of threads and type of machine give the same
file.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from tiny_model.corpus import SECOND_PASS, Example, Generator  # noqa: E402
from tiny_model.evaluation import are_right  # noqa: E402
from tiny_model.fixtures import load_fixtures  # noqa: E402
from tiny_model.gguf_file import write_gguf  # noqa: E402
from tiny_model.held_out import held_out_splits, report  # noqa: E402
from tiny_model.network import Network, Shape  # noqa: E402
from tiny_model.training import Recipe, train  # noqa: E402
from tiny_model.vocabulary import encode_examples, train_tokenizer  # noqa: E402

TOKENIZER_EXAMPLES = 20_000
# Added to the seed. Far from the seeds of the first pass and of the held-out splits.
SECOND_SEED = 1000


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the whole recipe: corpus, vocabulary, training, export, held-out accuracy."""
    options = _parse(arguments)
    started = time.monotonic()
    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)
    torch.use_deterministic_algorithms(True, warn_only=True)

    if options.first is None:
        network, tokenizer = first_pass(options)
        if options.checkpoint:
            _save(options.out.with_suffix(".first.pt"), network, tokenizer)
    else:
        network, tokenizer = _load(options.first, options.device)
    second_pass(network, tokenizer, options)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    if options.checkpoint:
        _save(options.out.with_suffix(".pt"), network, tokenizer)
    write_gguf(options.out, network.cpu(), tokenizer)
    seconds = time.monotonic() - started
    print(f"{options.out}: {options.out.stat().st_size} bytes, {seconds:.0f} s", flush=True)
    splits = held_out_splits(options.seed + 1, options.held_out)
    if options.fixtures is not None:
        splits |= load_fixtures(options.fixtures)
    results = {
        name: list(zip(split, are_right(network, tokenizer, split), strict=True))
        for name, split in splits.items()
    }
    for line in report(results):
        print(line, flush=True)


def first_pass(options: argparse.Namespace) -> tuple[Network, Tokenizer]:
    """Train the tokenizer, and train a new network on examples of all kinds."""
    examples = list(Generator().examples(options.examples, options.seed))
    tokenizer = train_tokenizer(
        (example.text for example in examples[:TOKENIZER_EXAMPLES]), Shape.vocabulary
    )
    network = Network(Shape(vocabulary=tokenizer.get_vocab_size())).to(options.device)
    weights = sum(weight.numel() for weight in network.parameters())
    print(f"{weights} weights", flush=True)
    _train(network, tokenizer, examples, Recipe(seed=options.seed), options.device)
    return network, tokenizer


def second_pass(network: Network, tokenizer: Tokenizer, options: argparse.Namespace) -> None:
    """Continue with new examples, most of them questions, at a lower learning rate."""
    seed = options.seed + SECOND_SEED
    examples = list(Generator().examples(options.second_examples, seed, SECOND_PASS))
    recipe = Recipe(seed=seed, matrix_rate=0.005, vector_rate=0.003, short_first=0.0)
    _train(network, tokenizer, examples, recipe, options.device)


def _train(
    network: Network,
    tokenizer: Tokenizer,
    examples: Sequence[Example],
    recipe: Recipe,
    device: str,
) -> None:
    corpus = encode_examples(tokenizer, examples)
    tokens = sum(len(example.tokens) for example in corpus)
    print(f"{len(corpus)} examples, {tokens} tokens", flush=True)
    train(network, corpus, recipe, device)


def _save(path: Path, network: Network, tokenizer: Tokenizer) -> None:
    torch.save({"weights": network.state_dict(), "tokenizer": tokenizer.to_str()}, path)


def _load(path: Path, device: str) -> tuple[Network, Tokenizer]:
    saved = torch.load(path)
    tokenizer = Tokenizer.from_str(saved["tokenizer"])
    network = Network(Shape(vocabulary=tokenizer.get_vocab_size())).to(device)
    network.load_state_dict(saved["weights"])
    return network, tokenizer


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train the small embedded model.")
    parser.add_argument(
        "--examples", type=int, default=170_000, help="number of examples in the first pass"
    )
    parser.add_argument(
        "--second-examples", type=int, default=90_000, help="number of examples in the second pass"
    )
    parser.add_argument("--first", type=Path, help="checkpoint of the first pass; skips that pass")
    parser.add_argument(
        "--held-out", type=int, default=300, help="number of examples in each held-out split"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument(
        "--fixtures", type=Path, help="folder with elizaOS's fixtures, for evaluation"
    )
    parser.add_argument("--checkpoint", action="store_true", help="also save the torch weights")
    parser.add_argument("--out", type=Path, default=ROOT / "models" / "eliza-tiny.gguf")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
