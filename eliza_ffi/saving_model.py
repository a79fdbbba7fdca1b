"""Prompts kept on disk: their tokens and what the KV cache holds for them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .chat.template import Messages
from .library.binding import CffiStream
from .library.protocol import StreamConfig, Tokens
from .prompted_model import PromptedModel

__all__ = ["SavingModel"]


class SavingModel(PromptedModel):
    """The part of :class:`~eliza_ffi.model.Model` that writes and reads files of prompts."""

    def save(
        self,
        path: str | os.PathLike[str],
        prompt: str | Tokens | None = None,
        *,
        messages: Messages | None = None,
        **more: Any,
    ) -> int:
        """Write a prompt's tokens and their KV cache to a file, so that no one decodes them again.

        What a slot holds of the prompt is not decoded: to keep a conversation, save the tokens of
        its prompt and those that were generated.

        Parameters
        ----------
        path
            The file, which is written whole or not at all.
        prompt, messages
            As :meth:`~eliza_ffi.model.Model.generate`. A text that is to be continued should end
            where a token does, such as behind a line or a special token.
        **more
            ``slot_id``, ``prompt_cache_key``, ``cache_type_k`` and ``cache_type_v``, as
            :class:`~eliza_ffi.library.StreamConfig`.

        Returns
        -------
        int
            How many tokens were saved.

        Raises
        ------
        NativeFault
            If the file cannot be written.
        ContextFullError
            If the prompt does not fit into the context.
        NotSupportedError
            If the library cannot save slots.
        """
        args = self.generate_args(prompt, messages=messages, **more)
        with self._stream(args.config()) as stream:
            self.binding.prefill(stream, args.prompt_tokens)
            self.binding.save_slot(stream, path)
            return self.binding.stats(stream).n_past

    def restore(
        self,
        path: str | os.PathLike[str],
        *,
        slot_id: int = -1,
        prompt_cache_key: str | None = None,
        cache_type_k: str | None = None,
        cache_type_v: str | None = None,
    ) -> int:
        """Read a file of :meth:`save` into a free slot: prompts that begin like it start there.

        Nothing else changes: whatever is asked next is asked with its whole prompt, of which only
        what the file does not hold is decoded. Another prompt may take the slot later.

        Parameters
        ----------
        path
            The file.
        slot_id
            The slot to read it into; -1 = any that is free.
        prompt_cache_key
            Names the slot when `slot_id` is -1.
        cache_type_k, cache_type_v
            KV cache types: those it was saved with, and those that will be asked with.

        Returns
        -------
        int
            How many tokens the file holds.

        Raises
        ------
        NativeFault
            If the file cannot be read, is cut short or damaged.
        InvalidArgumentError
            If it is of another model, KV cache type or version of llama.cpp, or the slot is in use.
        ContextFullError
            If it holds more tokens than the context has room for.
        NotSupportedError
            If the library cannot restore slots.
        """
        config = StreamConfig(
            slot_id=slot_id,
            prompt_cache_key=prompt_cache_key,
            n_gpu_layers=self._n_gpu_layers,
            cache_type_k=cache_type_k,
            cache_type_v=cache_type_v,
        )
        with self._stream(config) as stream:
            self.binding.restore_slot(stream, path)
            return self.binding.stats(stream).n_past

    @contextmanager
    def _stream(self, config: StreamConfig) -> Iterator[CffiStream]:
        stream = self.binding.open(self._context(), config)
        try:
            yield stream
        finally:
            self.binding.close(stream)
