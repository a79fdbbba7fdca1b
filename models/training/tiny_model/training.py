"""The training loop and its loss."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from .muon import Muon
from .network import Network
from .readers import BatchHints, Readers
from .vocabulary import Encoded


@dataclass(frozen=True)
class Recipe:
    """The hyperparameters of training. `batch_tokens` includes padding."""

    seed: int = 1
    batch_tokens: int = 2048
    matrix_rate: float = 0.007
    vector_rate: float = 0.005
    weight_decay: float = 0.1
    warmup_steps: int = 100
    # Fractions of the batches: the first short_first of training are from the shortest short_share.
    short_first: float = 0.15
    short_share: float = 0.6
    # Weights of the mean losses: of the text after the choice, of the prompt, and of the hints. The
    # weight of the choice itself is 1.
    rest_weight: float = 0.3
    prompt_weight: float = 0.2
    verdict_weight: float = 1.0
    meaning_weight: float = 0.5
    recall_weight: float = 0.3
    match_weight: float = 1.0


@dataclass(frozen=True)
class Batch:
    """Padded examples: tokens, parts (0 padding, 1 prompt, 2 choice, 3 rest) and hints."""

    tokens: Tensor
    parts: Tensor
    hints: BatchHints


def train(network: Network, corpus: Sequence[Encoded], recipe: Recipe, device: str) -> None:
    """Train for one pass over the corpus."""
    batches = _batches(corpus, recipe)
    readers = Readers(network.shape).to(device)
    matrices = [w for name, w in network.named_parameters() if "layers" in name and w.ndim == 2]
    chosen = {id(weight) for weight in matrices}
    others = [weight for weight in network.parameters() if id(weight) not in chosen]
    others += readers.parameters()
    muon = Muon(matrices)
    adam = torch.optim.AdamW(others, lr=recipe.vector_rate, betas=(0.9, 0.95), weight_decay=0.0)
    started, seen = time.monotonic(), 0
    running: dict[str, float] = {}
    weights = {
        "choice": 1.0,
        "rest": recipe.rest_weight,
        "prompt": recipe.prompt_weight,
        "verdict": recipe.verdict_weight,
        "meaning": recipe.meaning_weight,
        "recall": recipe.recall_weight,
        "match": recipe.match_weight,
    }
    for step, members in enumerate(batches):
        warmup = min(1.0, (step + 1) / recipe.warmup_steps)
        scale = warmup * (1 - step / len(batches))
        batch = _collate([corpus[index] for index in members], device)
        losses = _losses(network, readers, batch)
        loss = torch.stack([weights[name] * value for name, value in losses.items()]).sum()
        network.zero_grad(set_to_none=True)
        readers.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        for group in adam.param_groups:
            group["lr"] = recipe.vector_rate * scale
        adam.step()
        muon.step(recipe.matrix_rate * scale, recipe.weight_decay)
        seen += batch.tokens.numel()
        for name, value in losses.items():
            running[name] = 0.95 * running.get(name, value.item()) + 0.05 * value.item()
        if (step + 1) % 100 == 0 or step + 1 == len(batches):
            speed = seen / (time.monotonic() - started)
            shown = "  ".join(f"{name} {value:.3f}" for name, value in running.items())
            print(f"step {step + 1}/{len(batches)}  {shown}  {speed:.0f} tokens/s", flush=True)


def _losses(network: Network, readers: Readers, batch: Batch) -> dict[str, Tensor]:
    states = network.states(batch.tokens)
    hidden = network.norm(states[-1])
    parts = batch.parts[:, 1:].flatten()
    # A quarter of the prompt's positions teach the language as well as all positions, at less cost.
    every_fourth = torch.arange(len(parts), device=parts.device) % 4 == 0
    scored = torch.nonzero((parts >= 2) | ((parts == 1) & every_fourth)).squeeze(-1)
    parts = parts[scored]
    logits = network.logits(hidden[:, :-1].flatten(0, 1)[scored])
    targets = batch.tokens[:, 1:].flatten()[scored]
    each = functional.cross_entropy(logits, targets, reduction="none")
    return {
        "choice": _mean(each, parts == 2),
        "rest": _mean(each, parts == 3),
        "prompt": _mean(each, parts == 1),
        **readers.losses(network, states, batch.hints),
    }


def _mean(values: Tensor, mask: Tensor) -> Tensor:
    return (values * mask).sum() / mask.sum().clamp(min=1)


def _batches(corpus: Sequence[Encoded], recipe: Recipe) -> list[list[int]]:
    """Group examples of similar length, then order the groups."""
    rng = random.Random(recipe.seed)
    order = sorted(range(len(corpus)), key=lambda i: (len(corpus[i].tokens), rng.random()))
    batches: list[list[int]] = []
    current: list[int] = []
    for index in order:
        # The examples are sorted by length, so the current one is the longest of its batch.
        if (len(current) + 1) * len(corpus[index].tokens) > recipe.batch_tokens:
            batches.append(current)
            current = []
        current.append(index)
    batches.append(current)
    # Short lists come first, because the network learns sooner to copy a name and to compare lines
    # if there are few other lines.
    short = batches[: int(len(batches) * recipe.short_share)]
    first = rng.sample(short, int(len(batches) * recipe.short_first))
    chosen = {id(batch) for batch in first}
    rest = [batch for batch in batches if id(batch) not in chosen]
    rng.shuffle(rest)
    return first + rest


def _collate(examples: Sequence[Encoded], device: str) -> Batch:
    length = max(len(example.tokens) for example in examples)
    tokens = torch.zeros((len(examples), length), dtype=torch.long)
    parts = torch.zeros((len(examples), length), dtype=torch.long)
    for row, example in enumerate(examples):
        size = len(example.tokens)
        tokens[row, :size] = torch.tensor(example.tokens)
        parts[row, : example.choice_start] = 1
        parts[row, example.choice_start : example.choice_end] = 2
        parts[row, example.choice_end : size] = 3
    return Batch(tokens.to(device), parts.to(device), _gather_hints(examples, device))


def _gather_hints(examples: Sequence[Encoded], device: str) -> BatchHints:
    def table(name: str, columns: int) -> Tensor:
        rows = [
            (row, *hint)
            for row, example in enumerate(examples)
            for hint in getattr(example.hints, name)
        ]
        return torch.tensor(rows, dtype=torch.long, device=device).view(-1, columns)

    return BatchHints(
        judged=table("judged", 3),
        meant=table("meant", 3),
        recalled=table("recalled", 3),
        compared=table("compared", 4),
    )
