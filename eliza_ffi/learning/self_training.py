r"""Heads that learn from unlabelled inputs: self-training.

A model's own answers to many inputs are right more often than not, and inputs with the same right
answer have similar hidden states. The mean state of each option, weighted by the model's own
probabilities, is therefore close to the mean of the inputs for which the option is right, although
some of the answers are wrong. With states h that are standardized, and p_k the own probabilities,

.. math:: m_k = \sum_i p_{ik} h_i \Big/ \sum_i p_{ik} \qquad
          \ell_k = (h \cdot m_k - m_k \cdot m_k / 2) / (s T)

This is linear discriminant analysis with one variance s for all directions and the same prior for
all options. The temperature T is fitted so that heads predict the own answers of inputs that they
were not trained on. The log-probabilities of the head are added to the own ones. The sum is too
sure, because both agree on the same mistakes, so a second temperature makes it as sure as the own
answers are on average. A second round with the new probabilities helps some data sets and harms
others, so there is only one.

**The gate.** Self-training can make answers worse, and no right answer shows it. A head is accepted
only if all of this holds. Half of the rows, at random, train one head and the other half another:

1. The answers of both agree with each other more often than with the model's own answers.
2. Each head alone predicts the own answers of the other half well enough. Let a be the share of the
   answers that it predicts, and m the share of the most frequent answer. Then (a - m) / (1 - m),
   the explained part of the other answers, must exceed m squared. If the states do not tell the
   options apart, or if most inputs have the same right answer, it does not.
3. No option loses more than half of its answers.

Otherwise a second head must pass the first test. It keeps the shares of the model's own answers: a
constant for each option makes its mean probability equal to its share.

References
----------
Cho et al., "Prototypical Calibration for Few-shot Learning of Language Models", arXiv:2205.10183.
Blum and Mitchell, "Combining Labeled and Unlabeled Data with Co-Training", 1998. The measurements
are in docs/explanation/measurements.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..decisions.probabilities import Array, Floats, log_softmax, tempered
from ..evidence.features import Feature
from ..evidence.heads import Head
from ..evidence.self_training import MIN_ROWS, SelfTraining
from .heads import MAX_FOLDS, Design
from .temperature import fit_temperature

MAX_ROWS = 1000
"""The maximum number of unlabelled inputs that are read, evenly spaced."""

N_SPLITS = 5
"""How many times the rows are split into halves."""

MAX_LOSS = 0.5
"""The largest part of its answers that an option may lose."""

_N_STEPS = 30  # of iterations, each of which at least halves the error


def feature_of_rows(features: Sequence[Feature]) -> Feature:
    """Return the feature to learn from: a decoder's last state, or an encoder's only one."""
    return max(features, key=lambda each: (each.pooling == "last", each.layer))


def learn_from_rows(states: Floats, log_p: Array, feature: Feature) -> SelfTraining:
    """Train a head on unlabelled rows, and keep it if it passes the gate.

    `states` has the feature of each row, shape [n, n_embd], and `log_p` the model's own
    log-probabilities, shape [n, n_options]. All rows are different.
    """
    if len(log_p) < MIN_ROWS:
        return SelfTraining(n_rows=len(log_p))
    free = _tested(states, log_p, feature, keeps_shares=False)
    if free.head is not None:
        return free
    kept = _tested(states, log_p, feature, keeps_shares=True)
    return free if kept.head is None else kept


def _tested(states: Floats, log_p: Array, feature: Feature, *, keeps_shares: bool) -> SelfTraining:
    n, n_options = log_p.shape
    own = log_p.argmax(axis=1)
    head = _trained(states, log_p, feature, keeps_shares)
    values = head.log_probabilities(states[None]) + log_p
    answers = values.argmax(axis=1)
    same = with_own = predicted = 0.0
    for seed in range(N_SPLITS):
        half = np.random.default_rng(seed).permutation(n) % 2 == 0
        found = []
        for part in (half, ~half):
            trained = _trained(states[part], log_p[part], feature, keeps_shares)
            of_head = trained.log_probabilities(states[None])
            predicted += float((of_head.argmax(axis=1) == own)[~part].sum()) / n
            found.append((of_head + log_p).argmax(axis=1))
        same += float((found[0] == found[1]).mean())
        with_own += float(np.mean([each == own for each in found]))
    before, after = (np.bincount(each, minlength=n_options) for each in (own, answers))
    most = float(before.max()) / n
    explained = (predicted / N_SPLITS - most) / (1 - most) if most < 1 else 0.0
    accepted = same > with_own
    if not keeps_shares:
        loses = (after < (1 - MAX_LOSS) * before).any()
        accepted = accepted and explained > most**2 and not loses
    return SelfTraining(
        n_rows=n,
        head=head if accepted else None,
        agreement=same / N_SPLITS,
        own_agreement=with_own / N_SPLITS,
        explained=explained,
        keeps_shares=keeps_shares,
        changed=float((answers != own).mean()),
        temperature=_as_sure_as(log_p, values),
    )


def _trained(states: Floats, log_p: Array, feature: Feature, keeps_shares: bool) -> Head:
    p = np.exp(log_p)
    folds = np.random.default_rng(0).permutation(len(p)) % MAX_FOLDS
    logits = np.empty_like(p)
    for fold in range(MAX_FOLDS):
        weights, bias = _nearest_mean(states[folds != fold], p[folds != fold])
        logits[folds == fold] = states[folds == fold] @ weights + bias
    temperature = fit_temperature(log_softmax(logits), p.argmax(axis=1))
    weights, bias = _nearest_mean(states, p)
    weights, bias = weights / temperature, bias / temperature
    if keeps_shares:
        bias = bias - _constants(states @ weights + bias + log_p, p.argmax(axis=1))
    return Head((feature,), weights[None].astype("f4"), bias.astype("f4"), len(p))


def _nearest_mean(states: Floats, p: Array) -> tuple[Array, Array]:
    """Return the weights and the biases for unscaled states."""
    design = Design(states)
    x = design.x
    means = x.T @ p / np.maximum(p.sum(axis=0), 1e-9)
    variance = max(float(((x - p @ means.T) ** 2).mean()), 1e-12)
    weights = means / variance
    bias = -0.5 * (means * weights).sum(axis=0)
    weights = weights / design.scale[:, None]
    return weights, bias - design.mean @ weights


def _constants(logits: Array, own: NDArray[np.intp]) -> Array:
    """Return what to subtract so that the mean probabilities are the shares of the own answers."""
    n, n_options = logits.shape
    shares = (np.bincount(own, minlength=n_options) + 1) / (n + n_options)  # Laplace's rule
    constants = np.zeros(n_options)
    for _ in range(_N_STEPS):
        mean = np.exp(log_softmax(logits - constants)).mean(axis=0)
        constants += np.log(np.maximum(mean, 1e-9) / shares)
    return constants


def _as_sure_as(log_p: Array, values: Array) -> float:
    """Return the temperature with which the mean of the highest probabilities is the same."""
    wanted = np.exp(log_p.max(axis=1)).mean()
    low, high = np.log(1e-2), np.log(1e2)
    for _ in range(_N_STEPS):
        middle = (low + high) / 2
        is_surer = np.exp(tempered(values, float(np.exp(middle))).max(axis=1)).mean() > wanted
        low, high = (middle, high) if is_surer else (low, middle)
    return float(np.exp((low + high) / 2))
