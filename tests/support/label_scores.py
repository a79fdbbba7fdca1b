"""Answer the questions of a decision model with single calls of the library."""

from __future__ import annotations

from sync_runner import SyncRunner

from eliza_ffi.choices.token_tree import TokenTreeDescriptor, TokenTreeLeaf, TokenTreePayload
from eliza_ffi.decisions.models.decision_model import DecisionModel, DecisionPrompt, QuestionPrompts
from eliza_ffi.elizaos import FfiStreamingGenerateArgs
from eliza_ffi.library.protocol import STOP_AT_LEAF
from eliza_ffi.model import Model


def made_of(model: Model) -> DecisionModel:
    """Return the DecisionModel of a model; fail if it is not a decision model."""
    decision_model = DecisionModel.of(model.describe()["model"], model.tokenize, model.detokenize)
    assert decision_model is not None
    return decision_model


def label_scores(model: Model, prompt: DecisionPrompt) -> list[float]:
    """Return the natural logarithm of each label's probability among the labels.

    The model chooses among the label tokens.
    """
    leaves = [TokenTreeLeaf(f"{i:04}", (token,)) for i, token in enumerate(prompt.read)]
    payload = TokenTreePayload("", (TokenTreeDescriptor("labels", tuple(leaves)),))
    args = FfiStreamingGenerateArgs(
        prompt_tokens=prompt.tokens,
        token_tree_payload=payload,
        token_tree_mode=STOP_AT_LEAF,
        score_leaves=True,
        cache_type_k="f32",
        cache_type_v="f32",
    )
    scores = SyncRunner(model.binding, model.session.ctx).generate_with_usage(args)
    assert scores.leaf_logprobs is not None
    return [float(score) for score in scores.leaf_logprobs]


def answered(model: Model, asked: QuestionPrompts) -> list[float]:
    """Return the probabilities of a question's options, computed from all of its prompts."""
    return asked.probabilities(
        [
            label_scores(model, prompt)
            if isinstance(prompt, DecisionPrompt)
            else model.binding.token_embeddings(
                model.session.ctx, prompt.tokens, prompt.read, getattr(prompt, "roles", ())
            )
            for prompt in asked.prompts
        ]
    )
