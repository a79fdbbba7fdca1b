"""The network: a small Llama whose weights llama.cpp can use unchanged."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

_EMBEDDING_DEVIATION = 0.02
_PREVIOUS_TOKEN_PAIRS = 6


@dataclass(frozen=True)
class Shape:
    """Sizes of the network. Every row length is a multiple of 32, as Q8_0 requires."""

    vocabulary: int = 2048
    width: int = 128
    layers: int = 5
    heads: int = 4
    feed_forward: int = 320
    context: int = 2048
    # With this large base, most rotary pairs of a head hardly turn within a prompt, so they can
    # compare meanings at a large distance.
    rope_base: float = 500000.0
    norm_epsilon: float = 1e-5

    @property
    def head_width(self) -> int:
        """Width of one attention head."""
        return self.width // self.heads


class Attention(nn.Module):
    """Causal self-attention with rotary positions on interleaved pairs, as in llama.cpp."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.query = nn.Linear(shape.width, shape.width, bias=False)
        self.key = nn.Linear(shape.width, shape.width, bias=False)
        self.value = nn.Linear(shape.width, shape.width, bias=False)
        self.output = nn.Linear(shape.width, shape.width, bias=False)

    def forward(self, hidden: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """Attend to the positions up to and including each one."""
        batch, length, width = hidden.shape
        split = (batch, length, self.shape.heads, self.shape.head_width)
        query = _rotate(self.query(hidden).view(split).transpose(1, 2), cosine, sine)
        key = _rotate(self.key(hidden).view(split).transpose(1, 2), cosine, sine)
        value = self.value(hidden).view(split).transpose(1, 2)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        result: Tensor = self.output(mixed.transpose(1, 2).reshape(batch, length, width))
        return result


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate = nn.Linear(shape.width, shape.feed_forward, bias=False)
        self.up = nn.Linear(shape.width, shape.feed_forward, bias=False)
        self.down = nn.Linear(shape.feed_forward, shape.width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """Transform each position independently."""
        result: Tensor = self.down(functional.silu(self.gate(hidden)) * self.up(hidden))
        return result


class Layer(nn.Module):
    """One pre-norm transformer layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)
        self.attention = Attention(shape)
        self.feed_forward_norm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)
        self.feed_forward = FeedForward(shape)

    def forward(self, hidden: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """Add the results of attention and feed-forward to the hidden states."""
        hidden = hidden + self.attention(self.attention_norm(hidden), cosine, sine)
        result: Tensor = hidden + self.feed_forward(self.feed_forward_norm(hidden))
        return result


class Network(nn.Module):
    """The whole model, with tied embeddings."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)
        for name, weight in self.named_parameters():
            if weight.ndim == 2:
                nn.init.normal_(
                    weight,
                    std=_EMBEDDING_DEVIATION if "embedding" in name else weight.shape[1] ** -0.5,
                )
            if name.endswith("down.weight"):
                nn.init.zeros_(weight)
        with torch.no_grad():
            self._plant_copying()

    def _plant_copying(self) -> None:
        """Initialize an induction circuit, which training from random weights takes long to find.

        Every head copies part of the values that it attends to. Half of the heads have keys equal
        to queries, so that a token attends to similar tokens (after Trockman and Kolter, "Mimetic
        initialization of self-attention layers", 2023). The last head of the first layer writes the
        previous token into a separate subspace. The last head of the other layers searches this
        subspace for the current token. Together they find an earlier occurrence of the current
        token and predict the token that followed it.
        """
        shape, half = self.shape, self.shape.width // 2
        for layer in self.layers:
            attention = layer.attention
            attention.key.weight[:half] = attention.query.weight[:half]
            attention.output.weight[:] = _EMBEDDING_DEVIATION * attention.value.weight.T
        last = slice(shape.width - shape.head_width, shape.width)
        first = self.layers[0].attention
        noted = first.value.weight[last]
        noted[:, 0] = 0.0
        place = nn.init.orthogonal_(torch.empty(shape.width, shape.head_width))
        first.query.weight[last], first.key.weight[last] = self._previous_token_head()
        first.output.weight[:, last] = 2 * _EMBEDDING_DEVIATION * place
        # Only pairs that hardly turn within the length of a prompt can compare distant tokens.
        slow = (torch.arange(shape.head_width) >= 2 * _PREVIOUS_TOKEN_PAIRS)[:, None]
        for layer in self.layers[1:]:
            layer.attention.query.weight[last] = 3 * noted * slow
            layer.attention.key.weight[last] = 3 * place.T * slow

    def _previous_token_head(self) -> tuple[Tensor, Tensor]:
        """Return query and key weights whose product is largest for the previous position."""
        shape = self.shape
        # A component that all tokens share lets a head attend by position only.
        self.embedding.weight[:, 0] = 3 * _EMBEDDING_DEVIATION
        query, key = torch.zeros(2, shape.head_width, shape.width)
        pairs = torch.arange(_PREVIOUS_TOKEN_PAIRS)
        angle = shape.rope_base ** (-2 * pairs / shape.head_width)
        query[2 * pairs, 0] = 2.0
        key[2 * pairs, 0] = 2.0 * angle.cos()
        key[2 * pairs + 1, 0] = 2.0 * angle.sin()
        return query, key

    def forward(self, tokens: Tensor) -> Tensor:
        """Return hidden states (batch, length, width) for tokens (batch, length)."""
        result: Tensor = self.norm(self.states(tokens)[-1])
        return result

    def states(self, tokens: Tensor) -> list[Tensor]:
        """Return the states (batch, length, width) after each layer, before the last norm."""
        cosine, sine = _angles(self.shape, tokens.shape[1], tokens.device)
        hidden = self.embedding(tokens)
        states = []
        for layer in self.layers:
            hidden = layer(hidden, cosine, sine)
            states.append(hidden)
        return states

    def log_attention(self, layer: int, states: Tensor, row: Tensor, place: Tensor) -> Tensor:
        """Return the log attention weights of the first head of a layer, shape (n, length).

        `states` (batch, length, width) are the input of the layer. `row` and `place`, both of shape
        (n), are the query positions.
        """
        attention, width = self.layers[layer].attention, self.shape.head_width
        normed = self.layers[layer].attention_norm(states)
        cosine, sine = _angles(self.shape, states.shape[1], states.device)
        query = functional.linear(normed[row, place], attention.query.weight[:width])
        query = _rotate(query, cosine[place], sine[place])
        key = _rotate(functional.linear(normed, attention.key.weight[:width]), cosine, sine)
        scores = torch.einsum("nw,nlw->nl", query, key[row]) * width**-0.5
        later = torch.arange(states.shape[1], device=states.device)[None] > place[:, None]
        return scores.masked_fill(later, -torch.inf).log_softmax(-1)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits of the next token."""
        return functional.linear(hidden, self.embedding.weight)


def _angles(shape: Shape, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    exponents = torch.arange(0, shape.head_width, 2, device=device) / shape.head_width
    angles = torch.outer(torch.arange(length, device=device), shape.rope_base**-exponents)
    return angles.cos(), angles.sin()


def _rotate(values: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    even, odd = values[..., 0::2], values[..., 1::2]
    turned = torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), dim=-1)
    return turned.flatten(-2)
