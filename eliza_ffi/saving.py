"""Prompts kept on disk: their tokens and what the KV cache holds for them."""

from __future__ import annotations

import os

from .library.protocol import StreamConfig
from .runner.arguments import FfiStreamingGenerateArgs
from .session import Session

__all__ = ["restore_prompt", "save_prompt"]


def save_prompt(
    session: Session, path: str | os.PathLike[str], args: FfiStreamingGenerateArgs
) -> int:
    """Write a prompt and its KV cache to a file; returns how many tokens that is.

    What a slot holds of the prompt is not decoded again.
    """
    with session.stream(args.config()) as stream:
        session.binding.prefill(stream, args.prompt_tokens)
        session.binding.save_slot(stream, path)
        return session.binding.stats(stream).n_past


def restore_prompt(session: Session, path: str | os.PathLike[str], config: StreamConfig) -> int:
    """Read such a file into a slot; returns how many tokens it holds."""
    with session.stream(config) as stream:
        session.binding.restore_slot(stream, path)
        return session.binding.stats(stream).n_past
