"""The friendly face: a model that generates text and chooses."""

from __future__ import annotations

import enum
import os
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar, overload

from . import _resources
from .actions import Action
from .binding import CffiBinding, token_array
from .chat import ChatTemplate, Messages, template_of_model
from .chat_tokens import ChatTokenizer
from .choices import ANCHOR, Choice, ChoiceSet, enum_choices, string_choices
from .errors import ElizaError, InvalidArgumentError, NotSupportedError
from .fill_result import FillResult, SpanFill
from .filling import Fillable, FillArgs
from .library import Library
from .planning import ActionSkeleton
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
from .sampling import SamplingParams
from .skeleton import Skeleton, SpanSamplerPlan
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
        self._bytes_of_token: dict[int, bytes] = {}
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
        read as plain text; see :mod:`eliza_ffi.chat_tokens` for how, and its limits.
        """
        return self._chat().tokens(messages, **more)

    def generate(
        self,
        prompt: str | Tokens | None = None,
        max_tokens: int = 256,
        *,
        messages: Messages | None = None,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        repeat_penalty: float = 1.0,
        sampling: SamplingParams | None = None,
        grammar: str | None = None,
        on_text_chunk: Callable[[str], Any] | None = None,
        **more: Any,
    ) -> Generation:
        """Generate a text.

        Parameters
        ----------
        prompt
            A text, in which special tokens may be spelled out, or tokens taken as they are.
        messages
            A conversation instead of a prompt: mappings with ``role`` and ``content``, written in
            the model's own chat template up to where the assistant's turn begins; needs the
            ``[chat]`` extra. See :meth:`chat_tokens`.
        max_tokens
            0 = until the model ends or the context is full.
        temperature
            0 = always the most likely token.
        top_p, top_k, repeat_penalty
            As in :class:`~eliza_ffi.protocol.StreamConfig`.
        sampling
            A :class:`~eliza_ffi.sampling.SamplingParams` in place of the four above, with every
            setting there is.
        grammar
            A grammar in GBNF whose start rule is ``root``.
        on_text_chunk
            Called with each piece of text as it comes.
        **more
            Further fields of :class:`~eliza_ffi.runner.FfiStreamingGenerateArgs`.
        """
        args = self.generate_args(
            prompt,
            messages=messages,
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            repeat_penalty=repeat_penalty,
            sampling=sampling,
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
        prompt: str | Tokens | None = None,
        max_tokens: int = 256,
        *,
        messages: Messages | None = None,
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
            messages=messages,
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
        tokenization: str = ...,
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
        tokenization: str = ...,
        **more: Any,
    ) -> Choice[str]: ...

    @overload
    def choose(
        self,
        prompt: None = ...,
        *,
        choices: type[E],
        messages: Messages,
        mode: str = ...,
        temperature: float = ...,
        probabilities: bool = ...,
        tokenization: str = ...,
        **more: Any,
    ) -> Choice[E]: ...

    @overload
    def choose(
        self,
        prompt: None = ...,
        *,
        choices: Sequence[str],
        messages: Messages,
        mode: str = ...,
        temperature: float = ...,
        probabilities: bool = ...,
        tokenization: str = ...,
        **more: Any,
    ) -> Choice[str]: ...

    def choose(
        self,
        prompt: str | Tokens | None = None,
        choices: Any = None,
        *,
        messages: Messages | None = None,
        mode: str = "argmax",
        temperature: float = 1.0,
        probabilities: bool = False,
        tokenization: str = "own",
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
        messages
            A conversation instead of a prompt, as in :meth:`generate`: the answer is the
            beginning of the assistant's turn.
        mode
            ``"argmax"`` = the most likely token at each step; ``"sample"`` = sampled;
            ``"best"`` = the choice that is most likely as a whole.
        temperature
            Of the sampling; the other modes do not use it.
        probabilities
            Find the probability of every choice; mostly one more forward pass.
        tokenization
            ``"own"`` = each choice is cut into tokens as the tokenizer cuts it alone; ``"any"`` =
            in every way there is, as under a grammar of the choices. Then ``heal_prompt=True`` lets
            the prompt's last token be spelled anew together with the choice.
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
            messages=messages,
            mode=mode,
            temperature=temperature,
            tokenization=tokenization,
            score_leaves=probabilities,
            **more,
        )
        begin = time.perf_counter()
        result = self._sync_runner.generate_with_usage(args)
        return self.choice_from(choice_set, args, result, time.perf_counter() - begin)

    def fill(
        self,
        prompt: str | Tokens | None = None,
        skeleton: Fillable | Mapping[str, Any] | None = None,
        *,
        messages: Messages | None = None,
        on_span: Callable[[SpanFill], Any] | None = None,
        **more: Any,
    ) -> FillResult:
        """Fill a skeleton: write a structured answer of which the fixed parts are known.

        Parameters
        ----------
        prompt
            A text that ends where the answer begins, or tokens.
        skeleton
            A :class:`~eliza_ffi.skeleton.Skeleton`, or its JSON form; an
            :class:`~eliza_ffi.planning.ActionSkeleton`.
        messages
            A conversation instead of a prompt, as in :meth:`generate`.
        on_span
            Called with each span when it has been filled.
        **more
            As :meth:`fill_args`.

        Raises
        ------
        FillError
            If the library fails on a span, as when the context is full. What was written until
            then is its `partial`.
        InvalidArgumentError
            If the skeleton or the sampler plan is malformed.
        NotSupportedError
            If the library cannot fill skeletons.
        """
        args = self.fill_args(prompt, skeleton, messages=messages, **more)
        with closing(self._sync_runner.fill_stream(args)) as steps:
            for step in steps:
                if isinstance(step, FillResult):
                    return step
                if on_span is not None:
                    on_span(step)
        raise AssertionError("the last step is the result")

    def fill_stream(
        self,
        prompt: str | Tokens | None = None,
        skeleton: Fillable | Mapping[str, Any] | None = None,
        *,
        messages: Messages | None = None,
        **more: Any,
    ) -> AsyncGenerator[SpanFill | FillResult, None]:
        """Yield each span when it has been filled, and at last the result; off the event loop.

        Parameters and errors as :meth:`fill`. Leave early through ``aclose()`` or
        `contextlib.aclosing`; a cancelled task stops the forward pass that is running.
        """
        return self.runner.fill_stream(self.fill_args(prompt, skeleton, messages=messages, **more))

    def plan(
        self,
        prompt: str | Tokens | None = None,
        actions: Iterable[Action | Mapping[str, Any]] = (),
        *,
        messages: Messages | None = None,
        **more: Any,
    ) -> FillResult:
        """Choose an action and write its parameters: ``{"action":"NAME","parameters":{...}}``.

        Parameters
        ----------
        prompt
            A text that ends where the answer begins, or tokens.
        actions
            The :class:`~eliza_ffi.actions.Action` objects there are, or their JSON form.
        messages, **more
            As :meth:`fill`, which is what it raises, too.
        """
        return self.fill(prompt, ActionSkeleton(actions), messages=messages, **more)

    # ---- for those who drive the runner themselves ---------------------------------------------

    def generate_args(
        self,
        prompt: str | Tokens | None = None,
        *,
        messages: Messages | None = None,
        **more: Any,
    ) -> FfiStreamingGenerateArgs:
        """Return what to hand the runner for a prompt: its tokens and this model's settings."""
        more.setdefault("n_gpu_layers", self._n_gpu_layers)
        return FfiStreamingGenerateArgs(prompt_tokens=self._prompt_tokens(prompt, messages), **more)

    def choice_args(
        self,
        prompt: str | Tokens | None,
        choices: ChoiceSet[Any],
        *,
        messages: Messages | None = None,
        mode: str = "argmax",
        temperature: float = 1.0,
        tokenization: str = "own",
        **more: Any,
    ) -> FfiStreamingGenerateArgs:
        """Return what to hand the runner for a choice; parameters as :meth:`choose`."""
        if mode not in MODES:
            raise InvalidArgumentError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
        if not self.binding.trie_modes() & STOP_AT_LEAF:
            raise NotSupportedError(f"{self.binding.library.path} has no token-trie sampler")
        args = self.generate_args(prompt, messages=messages, temperature=temperature, **more)
        args = replace(args, token_tree_mode=MODES[mode] | STOP_AT_LEAF)
        if tokenization == "own":
            return replace(args, token_tree_payload=self._payload(choices))
        if tokenization != "any":
            raise InvalidArgumentError(f"tokenization must be own or any, not {tokenization!r}")
        self._check_text_choices(choices, mode, args.score_leaves)
        return replace(args, text_choices=choices.texts)

    def fill_args(
        self,
        prompt: str | Tokens | None,
        skeleton: Fillable | Mapping[str, Any] | None,
        *,
        messages: Messages | None = None,
        sampler_plan: SpanSamplerPlan | Mapping[str, Any] | None = None,
        max_tokens: int = 256,
        logprobs: bool = False,
        heal_prompt: bool = False,
        **more: Any,
    ) -> FillArgs:
        """Return what to hand the runner for a skeleton.

        Parameters
        ----------
        prompt, skeleton, messages
            As :meth:`fill`.
        sampler_plan
            How single spans are sampled, or its JSON form.
        max_tokens
            For each free value, 0 = no limit but the context's. One that reaches it is brought to
            its end in the shortest way.
        logprobs
            Find the probability of free values too, which takes longer; that of choices is always
            known.
        heal_prompt
            The prompt's last token may be spelled anew, together with the answer's beginning.
        **more
            Further fields of :class:`~eliza_ffi.runner.FfiStreamingGenerateArgs`; `temperature`,
            `top_k` and `top_p` are those of the free spans.
        """
        if skeleton is None:
            raise InvalidArgumentError("there is no skeleton to fill")
        if isinstance(skeleton, Mapping):
            skeleton = Skeleton.from_dict(skeleton)
        if not hasattr(skeleton, "script"):
            raise InvalidArgumentError(f"this is no skeleton: {skeleton!r:.80}")
        if sampler_plan is None:
            sampler_plan = SpanSamplerPlan()
        elif not isinstance(sampler_plan, SpanSamplerPlan):
            sampler_plan = SpanSamplerPlan.from_dict(sampler_plan)
        return FillArgs(
            skeleton=skeleton,
            generation=self.generate_args(prompt, messages=messages, **more),
            sampler_plan=sampler_plan,
            max_tokens=max_tokens,
            logprobs=logprobs,
            heal_prompt=heal_prompt,
            token_bytes=self._token_bytes,
        )

    def choice_from(
        self,
        choices: ChoiceSet[Any],
        args: FfiStreamingGenerateArgs,
        result: FfiStreamingResult,
        elapsed: float,
    ) -> Choice[Any]:
        """Return the choice that a run of :meth:`choice_args` came to; `elapsed` in seconds."""
        if args.token_tree_payload is None and args.text_choices is None:
            raise InvalidArgumentError("the generation was not one of choices")
        return choices.choice(result, args.token_tree_payload, elapsed)

    def _check_text_choices(self, choices: ChoiceSet[Any], mode: str, scored: bool) -> None:
        if not self.binding.supports("set_text_choices"):
            raise NotSupportedError(f"{self.binding.library.path} has no choices by text")
        if mode == "best" or scored:
            asked = 'mode="best"' if mode == "best" else "probabilities"
            raise InvalidArgumentError(
                f'{asked} needs one way to spell each choice: use tokenization="own"'
            )
        for i, text in enumerate(choices.texts):
            if "\0" in text:
                raise InvalidArgumentError(
                    f'choices[{i}] has a NUL character, which tokenization="any" cannot spell'
                )

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

    def _prompt_tokens(self, prompt: str | Tokens | None, messages: Messages | None) -> Tokens:
        if messages is not None and prompt is None:
            prompt = self.chat_tokens(messages)
        elif prompt is None or messages is not None:
            given = "neither" if messages is None else "both"
            raise InvalidArgumentError(f"give either a prompt or messages, not {given}")
        if isinstance(prompt, str):
            prompt = self.tokenize(prompt, add_special=True, parse_special=True)
        if len(prompt) == 0:
            raise InvalidArgumentError("the prompt is empty: there is nothing to go on from")
        return token_array(prompt)

    def _token_bytes(self, token: int) -> bytes:
        """Return the bytes of a token as it stands inside a text."""
        if token not in self._bytes_of_token:
            # Alone, the space that SentencePiece begins a word with would be left out.
            anchor = self.tokenize(ANCHOR)
            raw = self.binding.detokenize_bytes(self._context(), [*anchor, token])
            self._bytes_of_token[token] = raw.removeprefix(ANCHOR.encode())
        return self._bytes_of_token[token]

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


def as_choice_set(choices: type[enum.Enum] | Iterable[str] | None) -> ChoiceSet[Any]:
    """Return the choices of an enum class or of some strings."""
    if choices is None:
        raise InvalidArgumentError("there are no choices: pass strings or an enum class")
    if isinstance(choices, type) and issubclass(choices, enum.Enum):
        return enum_choices(choices)
    return string_choices(choices)
