"""Prompts kept on disk: their tokens and what the KV cache holds for them."""

from __future__ import annotations

import os

from .library.protocol import StreamConfig
from .runner.arguments import FfiStreamingGenerateArgs
from .runner.lifecycle import open_stream
from .session import Session

__all__ = ["restore_prompt", "save_prompt"]


def save_prompt(
    session: Session, path: str | os.PathLike[str], args: FfiStreamingGenerateArgs
) -> int:
    """Write a prompt and its KV cache to a file; returns how many tokens that is.

    What a slot holds of the prompt is not decoded again.
    """
    binding = session.binding
    with open_stream(binding, session.ctx, args.config()) as stream:
        binding.prefill(stream, args.prompt_tokens)
        binding.save_slot(stream, path)
        return binding.stats(stream).n_past


def restore_prompt(session: Session, path: str | os.PathLike[str], config: StreamConfig) -> int:
    """Read such a file into a slot; returns how many tokens it holds."""
    binding = session.binding
    with open_stream(binding, session.ctx, config) as stream:
        binding.restore_slot(stream, path)
        return binding.stats(stream).n_past
