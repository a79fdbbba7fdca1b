"""Save prompts to files, and restore them. A file holds the tokens and their KV cache."""

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
    """Return a request that saves a prompt and its KV cache to a file.

    The result is the number of saved tokens. Tokens that are already in a slot are not decoded
    again.
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
    """Return a request that loads a saved prompt into a slot; its result is the token count."""
    slot_id = check_whole("slot_id", config.slot_id, -1)
    binding = session.binding

    def steps(life: Lifecycle) -> Generator[int, None, None]:
        with life.opened(config) as stream:
            binding.restore_slot(stream, path)
            n_restored = binding.stats(stream).n_past
        yield n_restored

    # The number of tokens in the file is unknown, so a second run might find the context full even
    # if it ran alone. With infinity, the scheduler never starts a second run.
    return Work(
        lambda: Lifecycle(binding, session.ctx, "restoring"),
        steps,
        n_tokens=math.inf,
        slot_id=slot_id,
    )
