"""The friendly face: a model that generates text and chooses."""

from __future__ import annotations

import enum
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, TypeVar, overload

from . import _resources
from .binding import CffiBinding, token_array
from .choices import Choice, ChoiceSet, enum_choices, string_choices
from .errors import ElizaError, InvalidArgumentError, NotSupportedError
from .library import Library
from .protocol import (
    STOP_AT_LEAF,
    TRIE_ARGMAX,
    TRIE_BEST_LEAF,
    TRIE_SAMPLE,
    StreamStats,
    Tokens,
)
from .runner import (
    FfiStreamingGenerateArgs,
    FfiStreamingResult,
    FfiStreamingRunner,
    SyncStreamingRunner,
)
from .token_tree import TokenTreePayload

__all__ = ["Choice", "Generation", "Model"]

E = TypeVar("E", bound=enum.Enum)

PAYLOADS_KEPT = 128

MODES = {"argmax": TRIE_ARGMAX, "sample": TRIE_SAMPLE, "best": TRIE_BEST_LEAF}


@dataclass(frozen=True)
class Generation:
    """A generated text.

    Attributes
    ----------
    text : str
    tokens : tuple of int
    finish_reason : str
        ``"end"`` (the model ended it), ``"length"`` (`max_tokens`) or ``"context_full"``.
    prompt_tokens : int
    stats : StreamStats or None
        None where the library does not count.
    """

    text: str
    tokens: tuple[int, ...]
    finish_reason: str
    prompt_tokens: int
    stats: StreamStats | None


class Model:
    """A language model, loaded and ready.

    Parameters
    ----------
    path
        A ``.gguf`` file or a bundle directory; None = the embedded model.
    library
        The shared library to use; None finds it, see :func:`~eliza_ffi.library.find_library`.
    n_ctx
        Tokens of KV cache shared by all slots; 0 = what the model was trained for, at most 8192.
    n_slots
        Generations at once, 1 to 64; None = 8.
    n_threads
        Compute threads; 0 = the physical cores.
    n_gpu_layers
        Layers to offload; -1 = all.
    seed
        Seed of every generation's sampling, 32 bits: the same prompt then gives the same text each
        time. None draws one for each generation.
    progress
        Called with a stage (``"load"`` or ``"prefill"``) and the fraction done, 0 to 1.
    options
        More options of the library by name, as the C header lists them.

    Raises
    ------
    LibraryNotFoundError, LibraryLoadError
        If there is no usable library.
    ModelError
        If `path` is not a usable model.
    InvalidArgumentError
        If an option is out of range.

    Notes
    -----
    Several threads may use one model, each with its own generation. Close it, or use it in a
    ``with`` statement; generations that are still running are then cancelled.
    """

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
        self._payloads: dict[tuple[str, ...], TokenTreePayload] = {}
        self._payloads_lock = threading.Lock()
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

    def __enter__(self) -> Model:
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

    def generate(
        self,
        prompt: str | Tokens,
        max_tokens: int = 256,
        *,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        repeat_penalty: float = 1.0,
        grammar: str | None = None,
        on_text_chunk: Callable[[str], Any] | None = None,
        **more: Any,
    ) -> Generation:
        """Generate a text.

        Parameters
        ----------
        prompt
            A text, in which special tokens may be spelled out, or tokens taken as they are.
        max_tokens
            0 = until the model ends or the context is full.
        temperature
            0 = always the most likely token.
        top_p, top_k, repeat_penalty
            As in :class:`~eliza_ffi.protocol.StreamConfig`.
        grammar
            A grammar in GBNF whose start rule is ``root``.
        on_text_chunk
            Called with each piece of text as it comes.
        **more
            Further fields of :class:`~eliza_ffi.runner.FfiStreamingGenerateArgs`.
        """
        args = self.generate_args(
            prompt,
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            repeat_penalty=repeat_penalty,
            gbnf_grammar=grammar,
            on_text_chunk=on_text_chunk,
            **more,
        )
        result = self._sync_runner.generate_with_usage(args)
        return Generation(
            text=result.text,
            tokens=result.tokens,
            finish_reason=result.finish_reason,
            prompt_tokens=result.usage.prompt_tokens,
            stats=result.stats,
        )

    def stream(
        self,
        prompt: str | Tokens,
        max_tokens: int = 256,
        *,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        repeat_penalty: float = 1.0,
        grammar: str | None = None,
        **more: Any,
    ) -> Iterator[str]:
        """Yield the text piece by piece; parameters as :meth:`generate`."""
        args = self.generate_args(
            prompt,
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            repeat_penalty=repeat_penalty,
            gbnf_grammar=grammar,
            **more,
        )
        return self._texts(args)

    @overload
    def choose(
        self,
        prompt: str | Tokens,
        choices: type[E],
        *,
        mode: str = ...,
        temperature: float = ...,
        probabilities: bool = ...,
        **more: Any,
    ) -> Choice[E]: ...

    @overload
    def choose(
        self,
        prompt: str | Tokens,
        choices: Sequence[str],
        *,
        mode: str = ...,
        temperature: float = ...,
        probabilities: bool = ...,
        **more: Any,
    ) -> Choice[str]: ...

    def choose(
        self,
        prompt: str | Tokens,
        choices: Any,
        *,
        mode: str = "argmax",
        temperature: float = 1.0,
        probabilities: bool = False,
        **more: Any,
    ) -> Choice[Any]:
        """Choose one of some known answers.

        Parameters
        ----------
        prompt
            A text that ends where the answer begins, or tokens.
        choices
            Distinct non-empty strings, or an enum class: a member is spelled by its value if that
            is a string, otherwise by its name, and the member is what comes back.
        mode
            ``"argmax"`` = the most likely token at each step; ``"sample"`` = sampled;
            ``"best"`` = the choice that is most likely as a whole.
        temperature
            Of the sampling; the other modes do not use it.
        probabilities
            Find the probability of every choice; mostly one more forward pass.
        **more
            Further fields of :class:`~eliza_ffi.runner.FfiStreamingGenerateArgs`.

        Raises
        ------
        InvalidArgumentError
            If the choices are empty, not distinct, or not spellable by the model's tokenizer, or
            if ``max_tokens`` is given and ends the generation inside a choice.
        ContextFullError
            If the prompt or the choice does not fit into the context.
        NotSupportedError
            If the library has no token-trie sampler.
        """
        choice_set = as_choice_set(choices)
        args = self.choice_args(
            prompt,
            choice_set,
            mode=mode,
            temperature=temperature,
            score_leaves=probabilities,
            **more,
        )
        begin = time.perf_counter()
        result = self._sync_runner.generate_with_usage(args)
        return self.choice_from(choice_set, args, result, time.perf_counter() - begin)

    # ---- for those who drive the runner themselves ---------------------------------------------

    def generate_args(self, prompt: str | Tokens, **more: Any) -> FfiStreamingGenerateArgs:
        """Return what to hand the runner for a prompt: its tokens and this model's settings."""
        more.setdefault("n_gpu_layers", self._n_gpu_layers)
        return FfiStreamingGenerateArgs(prompt_tokens=self._prompt_tokens(prompt), **more)

    def choice_args(
        self,
        prompt: str | Tokens,
        choices: ChoiceSet[Any],
        *,
        mode: str = "argmax",
        temperature: float = 1.0,
        **more: Any,
    ) -> FfiStreamingGenerateArgs:
        """Return what to hand the runner for a choice; parameters as :meth:`choose`."""
        if mode not in MODES:
            raise InvalidArgumentError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
        if not self.binding.trie_modes() & STOP_AT_LEAF:
            raise NotSupportedError(f"{self.binding.library.path} has no token-trie sampler")
        args = self.generate_args(prompt, temperature=temperature, **more)
        return replace(
            args,
            token_tree_payload=self._payload(choices),
            token_tree_mode=MODES[mode] | STOP_AT_LEAF,
        )

    def choice_from(
        self,
        choices: ChoiceSet[Any],
        args: FfiStreamingGenerateArgs,
        result: FfiStreamingResult,
        elapsed: float,
    ) -> Choice[Any]:
        """Return the choice that a run of :meth:`choice_args` came to; `elapsed` in seconds."""
        payload = args.token_tree_payload
        if payload is None:
            raise InvalidArgumentError("the generation was not one of choices")
        return choices.choice(result, payload, elapsed)

    def _texts(self, args: FfiStreamingGenerateArgs) -> Iterator[str]:
        # A method, so that the model lives as long as someone reads from it.
        with closing(self._sync_runner.generate_stream(args)) as steps:
            for step in steps:
                if step.text:
                    yield step.text

    def _payload(self, choices: ChoiceSet[Any]) -> TokenTreePayload:
        """Return the payload of some choices, tokenized once for as long as they keep coming."""
        payload = self._payloads.get(choices.texts)
        if payload is None:
            payload = choices.payload(self.tokenize, self.detokenize)
            with self._payloads_lock:
                if len(self._payloads) >= PAYLOADS_KEPT:
                    del self._payloads[next(iter(self._payloads))]
                self._payloads[choices.texts] = payload
        return payload

    def _prompt_tokens(self, prompt: str | Tokens) -> Tokens:
        if isinstance(prompt, str):
            prompt = self.tokenize(prompt, add_special=True, parse_special=True)
        if len(prompt) == 0:
            raise InvalidArgumentError("the prompt is empty: there is nothing to go on from")
        return token_array(prompt)

    def _context(self) -> Any:
        self._check_open()
        return self._ctx

    def _check_open(self) -> None:
        if not self._close.alive:
            raise ElizaError(f"the model {self.path} is closed")


def as_choice_set(choices: type[enum.Enum] | Iterable[str]) -> ChoiceSet[Any]:
    """Return the choices of an enum class or of some strings."""
    if isinstance(choices, type) and issubclass(choices, enum.Enum):
        return enum_choices(choices)
    return string_choices(choices)
