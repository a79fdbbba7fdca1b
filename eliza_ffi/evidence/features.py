"""The hidden states that heads are fitted to.

A feature is the hidden state of the prompt's last token, or the mean of the hidden states over the
tokens of the input, at one layer. The last token of deep layers shows what a question asks about an
input, such as its kind. The mean of early layers shows the topic of an input. It is cheaper: the
pass stops after the deepest layer, and reads no token after the input. The embedding of an encoder,
which is also a feature, shows the topic, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from os.path import commonprefix
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, TypeAlias

import numpy as np

from ..decisions.probabilities import Floats
from ..decisions.prompt_tokens import QuestionPrompt
from ..library.protocol import Hidden, StreamConfig
from ..session.scoring import ScoredPrompt

if TYPE_CHECKING:
    from ..session.session import Session

Pooling = Literal["mean", "last", "embedding"]
"""Over the tokens of the input, the last token of the prompt, and the embedding of an encoder."""


class Feature(NamedTuple):
    """The hidden state at a layer, as in :meth:`eliza_ffi.Model.hidden_states`."""

    pooling: Pooling
    layer: Annotated[int, (1,)]


def embedding_of(session: Session) -> Feature | None:
    """Return the embedding of a model's encoder, or of the model if it is an encoder."""
    encoder = session.encoder if session.kind == "decoder" else session
    if encoder is None or encoder.kind == "reranker":
        return None
    return Feature("embedding", encoder.hidden_shape[0])


def feature_width(session: Session) -> int:
    """Return the number of values in a feature. Shorter states end with zeros."""
    compares = [] if session.encoder is None else [session.encoder]
    return max(each.hidden_shape[1] for each in (session, *compares) if each.kind != "reranker")


def padded(rows: Sequence[Floats], width: int) -> Floats:
    """Return states of different lengths as rows, shape [n, width]."""
    result = np.zeros((len(rows), width), np.float32)
    for place, row in enumerate(rows):
        result[place, : len(row)] = row
    return result


StateKey: TypeAlias = "tuple[tuple[int, ...], tuple[tuple[int, int], ...]]"
"""The tokens and the ranges of a request for hidden states."""

FoundStates: TypeAlias = "Mapping[StateKey, tuple[tuple[int, ...], Floats]]"
"""The layers that were read for each request, and the states of all ranges at them."""


def key_of(request: ScoredPrompt) -> StateKey:
    assert request.hidden is not None
    return tuple(request.tokens), request.hidden.ranges


def joined(requests: Iterable[ScoredPrompt]) -> dict[StateKey, ScoredPrompt]:
    """Join requests for the same tokens, so that an input is read once for several questions."""
    found: dict[StateKey, ScoredPrompt] = {}
    for each in requests:
        key, wanted = key_of(each), each.hidden
        assert wanted is not None
        if key in found:
            before = found[key].hidden
            assert before is not None
            wanted = replace(wanted, layers=tuple(sorted({*before.layers, *wanted.layers})))
        found[key] = replace(each, hidden=wanted)
    return found


def read_with_scores(
    states: Mapping[StateKey, ScoredPrompt], scored: Sequence[ScoredPrompt]
) -> tuple[dict[StateKey, ScoredPrompt], dict[StateKey, ScoredPrompt], list[ScoredPrompt]]:
    """Let requests for scores also read the states of prompts that theirs begin with.

    Returns the requests for states that remain, those that the requests for scores replace, in
    their order, and the requests for scores.
    """
    remaining, replaced, prompts = dict(states), {}, []
    for prompt in scored:
        tokens = tuple(prompt.tokens)
        has_scores = any(ending.k is None for ending in prompt.endings)
        begins = (key for key in remaining if has_scores and tokens[: len(key[0])] == key[0])
        if (key := next(begins, None)) is not None:
            replaced[key] = remaining.pop(key)
            prompt = replace(prompt, hidden=replaced[key].hidden)
        prompts.append(prompt)
    return remaining, replaced, prompts


class FeatureReader:
    """Makes the requests for features of a question's prompt, except for embeddings.

    The tokens of the input are those that differ between the prompts of two inputs. If a custom
    prompt does not depend on the input, the last token is used instead of a mean.
    """

    def __init__(
        self, session: Session, prompt: QuestionPrompt, features: Sequence[Feature]
    ) -> None:
        self.prompt = prompt
        self._n_layers, self._n_embd = session.hidden_shape
        self._layers: dict[Pooling, set[int]] = {}
        for pooling in ("mean", "last"):
            if layers := {each.layer for each in features if each.pooling == pooling}:
                self._layers[pooling] = layers
        one, other = (prompt.tokens(session, text).tokens for text in ("a", "0"))
        self._n_before = len(commonprefix([one, other]))
        self._n_after = len(commonprefix([one[::-1], other[::-1]]))

    def requests(
        self, config: StreamConfig, tokens: Sequence[int], apart: bool
    ) -> dict[tuple[Pooling, ...], ScoredPrompt]:
        """Return the requests for the features of a prompt by their poolings.

        The mean and the last token have one request together, or one each. Tokens before their
        states are kept for other prompts.
        """
        begin, end = self._input(len(tokens))
        ranges = {"mean": (begin, end), "last": (len(tokens) - 1, len(tokens))}
        every = tuple(self._layers)
        parts: list[tuple[Pooling, ...]] = [(each,) for each in every] if apart else [every]
        made: dict[tuple[Pooling, ...], ScoredPrompt] = {}
        for poolings in parts:
            layers = sorted(set().union(*(self._layers[each] for each in poolings)))
            wanted = tuple(ranges[each] for each in poolings)
            n_kept = end if apart and "mean" not in poolings else begin
            made[poolings] = ScoredPrompt(
                config,
                tokens if "last" in poolings else tokens[:end],
                hidden=Hidden(tuple(layers), wanted, self._n_embd, min(n_kept, len(tokens) - 1)),
            )
        return made

    @staticmethod
    def found(
        requests: Mapping[tuple[Pooling, ...], ScoredPrompt], states: FoundStates
    ) -> dict[Feature, Floats]:
        """Return the features from what was read for the requests."""
        rows: dict[Feature, Floats] = {}
        for poolings, request in requests.items():
            layers, values = states[key_of(request)]
            for layer, of_layer in zip(layers, values, strict=True):
                rows |= {Feature(each, layer): of_layer[i] for i, each in enumerate(poolings)}
        return rows

    def costs(
        self, session: Session, texts: Iterable[str], groups: Sequence[Sequence[Feature]]
    ) -> tuple[list[float], float]:
        """Return the cost of each group's states, and the cost of an encoder.

        The costs are relative to reading the whole prompt. The cost of states is the number of
        tokens from the input on, times the number of layers. The cost of an encoder is the number
        of its tokens, times the number of weights in its layers.
        """
        lengths, n_encoded = [], 0
        for text in texts:
            lengths.append(len(self.prompt.tokens(session, text).tokens))
            if session.encoder is not None:
                n_encoded += len(session.encoder.tokenize(text))
        spans = [(*self._input(n), n) for n in lengths]
        n_input = fmean(end - begin for begin, end, _ in spans)
        n_all = fmean(n - begin for begin, _, n in spans)

        def cost(group: Sequence[Feature]) -> float:
            layers = [each.layer for each in group if each.pooling != "embedding"]
            n_tokens = n_all if any(each.pooling == "last" for each in group) else n_input
            return n_tokens / n_all * max(layers, default=0) / self._n_layers

        of_encoder = 0.0
        if session.encoder is not None:
            size = _layer_weights(session.encoder) / _layer_weights(session)
            of_encoder = n_encoded / len(lengths) / n_all * size
        return [cost(group) for group in groups], of_encoder

    def _input(self, n_tokens: int) -> tuple[int, int]:
        begin = min(self._n_before, n_tokens - 1)
        return begin, max(begin + 1, n_tokens - self._n_after)


def _layer_weights(session: Session) -> int:
    """Return the number of weights, without token embeddings, because few of these are read."""
    facts = session.describe()["model"]
    return max(1, int(facts["n_params"]) - int(facts["n_vocab"]) * int(facts["n_embd"]))
