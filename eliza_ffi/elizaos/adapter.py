"""Run elizaOS's requests on an open model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ..checks import check_kind
from ..model import Model
from ..session.options import AnyPrompt
from ..session.requests import generate_request
from ..structured.fill_result import FilledSpan, FillResult
from .actions import Action
from .arguments import FfiStreamingGenerateArgs
from .planning import ActionSkeleton
from .runner import FfiStreamingRunner

TOKEN_TREE_FIELDS = {"token_tree_payload", "token_tree_mode", "token_tree_path", "on_trie_error"}
"""Fields of the runner's arguments that are not keywords of :meth:`Model.generate`."""


def runner_of(model: Model) -> FfiStreamingRunner:
    """Return a streaming runner that uses an open model. Closing the model closes the runner."""
    check_kind("model", model, Model, "a Model")
    return FfiStreamingRunner(model.binding, model.session.ctx, model.session.scheduler)


def generate_args(model: Model, prompt: AnyPrompt, **settings: Any) -> FfiStreamingGenerateArgs:
    """Return the runner's arguments for a prompt and the model's settings.

    `prompt` and `settings` are as in
    :meth:`Model.generate <eliza_ffi.model.Model.generate>`. The fields of
    :class:`FfiStreamingGenerateArgs` for token trees are also allowed: `token_tree_payload`,
    `token_tree_mode`, `token_tree_path` and `on_trie_error`.
    """
    check_kind("model", model, Model, "a Model")
    token_tree = {name: settings.pop(name) for name in TOKEN_TREE_FIELDS & settings.keys()}
    request = generate_request(model.session, prompt, method="generate_args", **settings)
    return replace(FfiStreamingGenerateArgs.of(request), **token_tree)


def plan(
    model: Model,
    prompt: AnyPrompt,
    actions: Iterable[Action | Mapping[str, Any]],
    *,
    on_span: Callable[[FilledSpan], Any] | None = None,
    timeout: float | None = None,
    **settings: Any,
) -> FillResult:
    """Let the model choose an action and write ``{"action":"NAME","parameters":{...}}``.

    `actions` are :class:`Action` objects, or mappings in elizaOS's JSON format; a malformed action
    raises InvalidArgumentError. The other arguments and errors are those of
    :meth:`Model.fill <eliza_ffi.model.Model.fill>`.
    """
    check_kind("model", model, Model, "a Model")
    return model.fill(prompt, ActionSkeleton(actions), on_span=on_span, timeout=timeout, **settings)
