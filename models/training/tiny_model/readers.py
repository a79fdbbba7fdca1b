"""Readers of hidden states, for the hints of training; the exported model has none of them.

Each reads the states behind one layer, so that the step it is about is taken by then: what the
input and the options mean, then what the input says where an option ends and whether they agree,
then the verdict. The layers above have the answer left to say.
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
# Below the logarithm of 1, so that the logarithm of what is left is finite.
_WHOLE = -1e-4


@dataclass(frozen=True)
class BatchHints:
    """The hints of a batch, as integers: a row each.

    Attributes
    ----------
    judged : Tensor
        (n, 3) of row, place and 0 or 1.
    meant, recalled : Tensor
        (n, 3) of row, place and meaning.
    compared : Tensor
        (n, 4) of row, place, end of the input and 0 or 1.
    """

    judged: Tensor
    meant: Tensor
    recalled: Tensor
    compared: Tensor


class Readers(nn.Module):
    """Linear readers of states, and the look at one head's attention."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.verdict = nn.Linear(shape.width, 1)
        self.meaning = nn.Linear(shape.width, len(MEANINGS), bias=False)
        self.recalled = nn.Linear(shape.width, len(MEANINGS), bias=False)

    def losses(
        self, network: Network, states: list[Tensor], hints: BatchHints
    ) -> dict[str, Tensor]:
        """Return the mean loss of each kind of hint; ``states`` are those behind each layer."""
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
    """Tell the meaning from the others of its aspect: an input has one of each."""
    if not len(meant):
        return states.new_zeros(())
    row, place, meaning = meant.unbind(1)
    aspect = _ASPECT.to(states.device)
    scores = reader(_normed(states[row, place]))
    scores = scores.masked_fill(aspect[None] != aspect[meaning][:, None], -torch.inf)
    return functional.cross_entropy(scores, meaning)


def _match(network: Network, states: Tensor, compared: Tensor) -> Tensor:
    """Have the first head look at the end of the input where it means the same, else elsewhere."""
    if not len(compared):
        return states.new_zeros(())
    row, place, input_end, same = compared.unbind(1)
    attention = network.log_attention(COMPARING_LAYER, states, row, place)
    share = attention.gather(1, input_end[:, None]).squeeze(1).clamp(max=_WHOLE)
    return -torch.where(same == 1, share, torch.log1p(-share.exp())).mean()


def _normed(states: Tensor) -> Tensor:
    return functional.rms_norm(states, states.shape[-1:])
