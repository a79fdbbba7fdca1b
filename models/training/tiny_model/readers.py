"""Linear probes on hidden states, for the auxiliary losses. The exported model has none of them.

Each probe reads the states after one layer, so that the network does this step up to that layer:
first the meanings of the input and the options; then, at the end of an option, the input's value
and whether both agree; then the verdict. The layers above only have to produce the answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from .hints import MEANINGS, aspect_of
from .network import Network, Shape

MEANING_LAYER, COMPARING_LAYER, VERDICT_LAYER = 1, 2, 3

_ASPECTS = [aspect_of(meaning) for meaning in MEANINGS]
_ASPECT = torch.tensor([_ASPECTS.index(aspect) for aspect in _ASPECTS])
# Slightly below log(1), so that the logarithm of the remaining probability is finite.
_WHOLE = -1e-4


@dataclass(frozen=True)
class BatchHints:
    """The hints of a batch as integer tensors with one row per hint.

    Attributes
    ----------
    judged : Tensor
        Shape (n, 3): example, place, and 0 or 1.
    meant, recalled : Tensor
        Shape (n, 3): example, place, and meaning.
    compared : Tensor
        Shape (n, 4): example, place, end of the input, and 0 or 1.
    """

    judged: Tensor
    meant: Tensor
    recalled: Tensor
    compared: Tensor


class Readers(nn.Module):
    """Linear probes on hidden states, and a loss on the attention of one head."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.verdict = nn.Linear(shape.width, 1)
        self.meaning = nn.Linear(shape.width, len(MEANINGS), bias=False)
        self.recalled = nn.Linear(shape.width, len(MEANINGS), bias=False)

    def losses(
        self, network: Network, states: list[Tensor], hints: BatchHints
    ) -> dict[str, Tensor]:
        """Return the mean loss of each kind of hint; `states` are the states after each layer."""
        return {
            "verdict": self._verdict(states[VERDICT_LAYER], hints.judged),
            "meaning": _meaning(self.meaning, states[MEANING_LAYER], hints.meant),
            "recall": _meaning(self.recalled, states[COMPARING_LAYER], hints.recalled),
            "match": _match(network, states[COMPARING_LAYER - 1], hints.compared),
        }

    def _verdict(self, states: Tensor, judged: Tensor) -> Tensor:
        if not len(judged):
            return states.new_zeros(())
        row, place, verdict = judged.unbind(1)
        scores = self.verdict(_normed(states[row, place])).squeeze(-1)
        return functional.binary_cross_entropy_with_logits(scores, verdict.to(scores.dtype))


def _meaning(reader: nn.Linear, states: Tensor, meant: Tensor) -> Tensor:
    """Return the loss of the meaning among all values of its aspect."""
    if not len(meant):
        return states.new_zeros(())
    row, place, meaning = meant.unbind(1)
    aspect = _ASPECT.to(states.device)
    scores = reader(_normed(states[row, place]))
    scores = scores.masked_fill(aspect[None] != aspect[meaning][:, None], -torch.inf)
    return functional.cross_entropy(scores, meaning)


def _match(network: Network, states: Tensor, compared: Tensor) -> Tensor:
    """Return the attention loss of the first head.

    The head should attend to the end of the input if the meanings agree, and elsewhere otherwise.
    """
    if not len(compared):
        return states.new_zeros(())
    row, place, input_end, same = compared.unbind(1)
    attention = network.log_attention(COMPARING_LAYER, states, row, place)
    weight = attention.gather(1, input_end[:, None]).squeeze(1).clamp(max=_WHOLE)
    return -torch.where(same == 1, weight, torch.log1p(-weight.exp())).mean()


def _normed(states: Tensor) -> Tensor:
    return functional.rms_norm(states, states.shape[-1:])
