"""The accuracy of constrained choices, made greedily token by token."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tokenizers import Tokenizer

from .corpus import Example
from .network import Network
from .vocabulary import BOS, special_id


def choose(network: Network, tokenizer: Tokenizer, prompt: str, choices: Sequence[str]) -> str:
    """Choose among `choices` with a greedy walk over their tokens."""
    device = network.embedding.weight.device
    tokens = [special_id(tokenizer, BOS), *tokenizer.encode(prompt).ids]
    spelled = {choice: tokenizer.encode(choice).ids for choice in choices}
    start = len(tokens)
    while True:
        at = len(tokens) - start
        open_choices = [c for c, ids in spelled.items() if ids[:at] == tokens[start:]]
        allowed = sorted({spelled[c][at] for c in open_choices if len(spelled[c]) > at})
        if not allowed or len(open_choices) == 1:
            return open_choices[0]
        if len(allowed) > 1:
            hidden = network(torch.tensor([tokens], device=device))[:, -1]
            scores = network.logits(hidden)[0, allowed]
            tokens.append(allowed[int(scores.argmax())])
        else:
            tokens.append(allowed[0])


def are_right(network: Network, tokenizer: Tokenizer, examples: Sequence[Example]) -> list[bool]:
    """Return, for each example, whether the network chooses the correct answer."""
    with torch.no_grad():
        return [
            choose(network, tokenizer, example.prompt, example.choices) == example.choice
            for example in examples
        ]
