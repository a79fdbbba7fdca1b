"""A model that is open: its lifetime, what it says of itself, texts as tokens and as numbers."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from . import _resources
from .chat.template import ChatTemplate, Messages, template_of_model
from .chat.tokens import ChatTokenizer
from .choices.payloads import ChoicePayloads
from .errors import ElizaError, InvalidArgumentError
from .library.binding import CffiBinding, EotScore
from .library.loading import Library
from .library.protocol import Tokens
from .runner.streaming import FfiStreamingRunner, SyncStreamingRunner

__all__ = ["LoadedModel"]

Opened = TypeVar("Opened", bound="LoadedModel")


class LoadedModel:
    """What :class:`~eliza_ffi.model.Model` is before it is asked anything; parameters as there."""

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        library: str | os.PathLike[str] | Library | None = None,
        n_ctx: int = 0,
        n_slots: int | None = None,
        n_threads: int = 0,
        n_gpu_layers: int = -1,
        seed: int | None = None,
        progress: Callable[[str, float], None] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.path = os.fspath(_resources.default_model_path() if path is None else path)
        if not isinstance(library, Library):
            library = Library(library, bundle=self.path)
        self.binding = CffiBinding(library)
        self._n_gpu_layers = n_gpu_layers
        self._payloads = ChoicePayloads()
        self._chat_tokenizer: ChatTokenizer | None = None
        self._ctx = self.binding.create(self.path)
        self._close = weakref.finalize(self, self.binding.destroy, self._ctx)
        try:
            wanted = {
                "n_gpu_layers": None if n_gpu_layers == -1 else n_gpu_layers,
                "n_ctx": n_ctx or None,
                "n_slots": n_slots,
                "n_threads": n_threads or None,
                "seed": seed,
                **(options or {}),
            }
            for key, value in wanted.items():
                if value is not None:
                    self.binding.set_option(self._ctx, key, str(value))
            if progress is not None:
                self.binding.set_progress_callback(self._ctx, progress)
            if self.binding.supports("mmap_acquire"):
                self.binding.load(self._ctx)
        except BaseException:
            self.close()
            raise
        self._sync_runner = SyncStreamingRunner(self.binding, self._ctx)
        self._runner = FfiStreamingRunner(self.binding, self._ctx)

    def close(self) -> None:
        """Free the model; running generations are cancelled. Closing twice is harmless."""
        self._close()

    def __enter__(self: Opened) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def runner(self) -> FfiStreamingRunner:
        """The asynchronous runner over this model."""
        self._check_open()
        return self._runner

    def describe(self) -> dict[str, Any]:
        """Return facts about the library and the model."""
        return self.binding.describe(self._context())

    def tokenize(
        self, text: str, add_special: bool = False, parse_special: bool = False
    ) -> list[int]:
        """Return the tokens of a text.

        Parameters
        ----------
        text
        add_special
            Add the tokens the model begins (and ends) a text with.
        parse_special
            Read ``<|im_start|>`` and the like as the tokens they name.
        """
        return self.binding.tokenize(self._context(), text, add_special, parse_special)

    def detokenize(self, tokens: Tokens, unparse_special: bool = False) -> str:
        """Return the text of tokens; special tokens are left out unless `unparse_special`."""
        return self.binding.detokenize(self._context(), tokens, unparse_special=unparse_special)

    def embed(self, text: str, pooling: str = "mean") -> NDArray[np.float32]:
        """Return the embedding of a text: the product of two is the cosine of their angle.

        Parameters
        ----------
        text
            Of one to as many tokens as the model was trained on; control tokens in it are text.
        pooling
            What is made of the tokens' vectors: ``"mean"``, ``"cls"`` (the first) or ``"last"``.

        Returns
        -------
        array of float32, shape [n_embd]
            Of length 1.

        Raises
        ------
        InvalidArgumentError
            If `pooling` is none of these, or the text has no tokens or too many.
        NotSupportedError
            If the library has no embeddings.
        """
        return self.binding.embed(self._context(), text, pooling)

    def end_of_turn(self, prompt: str | Tokens, end: str | int) -> EotScore:
        """Return how likely it is that someone has finished speaking.

        Parameters
        ----------
        prompt
            What was said so far, in the model's format, its last turn open: a text in which special
            tokens may be spelled out, or tokens. What a slot holds of it is not decoded again.
        end
            The token that ends a turn, or its text, such as ``"<|im_end|>"``.

        Raises
        ------
        InvalidArgumentError
            If `prompt` is empty, or `end` is no single token of the vocabulary.
        ContextFullError
            If the prompt does not fit into the context.
        NotSupportedError
            If the library does not score turns.
        """
        if isinstance(prompt, str):
            prompt = self.tokenize(prompt, add_special=True, parse_special=True)
        if isinstance(end, str):
            tokens = self.tokenize(end, parse_special=True)
            if len(tokens) != 1:
                raise InvalidArgumentError(
                    f"end must be the text of one token: {end!r} has {len(tokens)}"
                )
            (end,) = tokens
        return self.binding.eot_score(self._context(), prompt, end)

    @property
    def chat_template(self) -> ChatTemplate:
        """The model's chat template; raises `ChatTemplateError` where there is none."""
        return self._chat().template

    def chat_tokens(self, messages: Messages, **more: Any) -> list[int]:
        """Return the tokens of a conversation in the model's chat template.

        This is what ``messages=`` does; the tokens can be added to and passed as a prompt.

        Parameters
        ----------
        messages
            As :meth:`~eliza_ffi.chat.ChatTemplate.render`.
        **more
            Further arguments of :meth:`~eliza_ffi.chat.ChatTemplate.render`, such as ``tools``
            or ``enable_thinking``.

        Raises
        ------
        ChatTemplateError
            If the model has no template, or its template fails or refuses the messages.
        NotSupportedError
            If Jinja2 is not installed, or the library does not tell the template.

        Notes
        -----
        The control tokens are those that the template writes. What the messages spell like one is
        read as plain text; see :mod:`eliza_ffi.chat.tokens` for how, and its limits.
        """
        return self._chat().tokens(messages, **more)

    def _chat(self) -> ChatTokenizer:
        context = self._context()
        if self._chat_tokenizer is None:
            # Not this model's own methods: it would keep itself alive.
            self._chat_tokenizer = ChatTokenizer(
                template_of_model(self.describe()["model"]),
                partial(self.binding.tokenize, context),
                partial(self.binding.detokenize, context),
            )
        return self._chat_tokenizer

    def _context(self) -> Any:
        self._check_open()
        return self._ctx

    def _check_open(self) -> None:
        if not self._close.alive:
            raise ElizaError(f"the model {self.path} is closed")
