"""The optimizer Muon: momentum that is orthogonalized before each step.

Keller Jordan, "Muon: An optimizer for hidden layers in neural networks" (2024). On a model of
this size it needs about half the tokens of AdamW, which makes training on two cores practical.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

# Coefficients of the quintic Newton-Schulz iteration, from the article.
_A, _B, _C = 3.4445, -4.7750, 2.0315


class Muon:
    """Updates weight matrices. Matrices of the same shape are updated with one batched product."""

    def __init__(self, weights: Sequence[Tensor], momentum: float = 0.95) -> None:
        self._momentum = momentum
        shapes = sorted({tuple(weight.shape) for weight in weights})
        self._groups = [[w for w in weights if tuple(w.shape) == shape] for shape in shapes]
        self._buffers = [torch.zeros_like(torch.stack(group)) for group in self._groups]

    def step(self, rate: float, decay: float) -> None:
        """Shrink every weight by the factor ``1 - rate * decay``, then move it by ``rate``."""
        with torch.no_grad():
            for group, buffer in zip(self._groups, self._buffers, strict=True):
                gradient = torch.stack([w.grad for w in group if w.grad is not None])
                buffer.lerp_(gradient, 1 - self._momentum)
                update = _orthogonalize(gradient.lerp(buffer, self._momentum))
                scale = max(1.0, update.shape[-2] / update.shape[-1]) ** 0.5
                for weight, change in zip(group, update, strict=True):
                    weight.mul_(1 - rate * decay).add_(change, alpha=-rate * scale)


def _orthogonalize(matrices: Tensor) -> Tensor:
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = _A * x + (_B * square + _C * square @ square) @ x
    result: Tensor = x.mT if tall else x
    return result
