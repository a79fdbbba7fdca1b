"""Prompts kept on disk: their tokens and what the KV cache holds for them."""

from __future__ import annotations

import math
import os
from collections.abc import Generator

from ..checks import check_whole
from ..library.protocol import StreamConfig
from .lifecycle import Lifecycle, Work
from .request import GenerationRequest
from .session import Session

__all__ = ["restore_work", "save_work"]


def save_work(session: Session, path: str | os.PathLike[str], args: GenerationRequest) -> Work[int]:
    """Return the request that writes a prompt and its KV cache to a file.

    Its result is the number of tokens saved. Tokens that a slot holds are not decoded again.
    """
    binding = session.binding

    def steps(life: Lifecycle) -> Generator[int, None, None]:
        with life.prefilled(args.config(), args.prompt_tokens) as stream:
            binding.save_slot(stream, path)
            n_saved = binding.stats(stream).n_past
        yield n_saved

    return Work(
        lambda: Lifecycle(binding, session.ctx, "saving"),
        steps,
        n_tokens=len(args.prompt_tokens),
        slot_id=args.slot_id,
    )


def restore_work(session: Session, path: str | os.PathLike[str], config: StreamConfig) -> Work[int]:
    """Return the request that reads such a file into a slot; its result is the number of tokens."""
    slot_id = check_whole("slot_id", config.slot_id, -1)
    binding = session.binding

    def steps(life: Lifecycle) -> Generator[int, None, None]:
        with life.opened(config) as stream:
            binding.restore_slot(stream, path)
            n_restored = binding.stats(stream).n_past
        yield n_restored

    # The file alone tells how many tokens it has, so it is not known whether a second try can help.
    return Work(
        lambda: Lifecycle(binding, session.ctx, "restoring"),
        steps,
        n_tokens=math.inf,
        slot_id=slot_id,
    )
