"""The friendly face: a model that generates text and chooses."""

from __future__ import annotations

import enum
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from .chat.template import Messages
from .choices.choice_set import Choice, as_choice_set
from .library.protocol import StreamStats, Tokens
from .runner.filling import Fillable
from .runner.streaming import FfiStreamingGenerateArgs
from .sampling import SamplingParams
from .saving_model import SavingModel
from .skeleton.actions import Action
from .skeleton.fill_result import FillResult, SpanFill
from .skeleton.planning import ActionSkeleton

__all__ = ["Choice", "Generation", "Model"]

E = TypeVar("E", bound=enum.Enum)


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


class Model(SavingModel):
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
        Generations at once, 1 to 64; None = 8. More wait for one of these to end.
    n_threads
        Compute threads, at most one for each CPU; 0 = as many as a pass has work for, up to the
        physical cores.
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
    Several threads may use one model, each with its own generation: they share forward passes,
    which costs them little more than one of them alone. Where all slots are taken, whatever needs
    one waits for its turn, and raises :class:`~eliza_ffi.errors.BusyError` after 30 seconds, or
    after as many milliseconds as the option ``slot_wait_ms`` says. An iterator of :meth:`stream`
    that is neither read to its end nor closed keeps its slot.

    Close the model, or use it in a ``with`` statement; generations that are still running are then
    cancelled.
    """

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
        draft_max: int = 0,
        drafter: str | os.PathLike[str] | None = None,
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
            As in :class:`~eliza_ffi.library.StreamConfig`.
        sampling
            A :class:`~eliza_ffi.sampling.SamplingParams` in place of the four above, with every
            setting there is.
        grammar
            A grammar in GBNF whose start rule is ``root``.
        draft_max
            Tokens to guess at a time, at most 256, by speculation; 0 = none. The tokens that come
            are those that come without; `stats` tells how many guesses were right.
        drafter
            The file of a small model of the same vocabulary, or of an MTP head for the model, that
            guesses; None = the model's own head, or without one, what followed the same few tokens
            before.
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
            draft_max=draft_max,
            drafter=drafter,
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
            :class:`~eliza_ffi.skeleton.ActionSkeleton`.
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
            The :class:`~eliza_ffi.skeleton.Action` objects there are, or their JSON form.
        messages, **more
            As :meth:`fill`, which is what it raises, too.
        """
        return self.fill(prompt, ActionSkeleton(actions), messages=messages, **more)

    def _texts(self, args: FfiStreamingGenerateArgs) -> Iterator[str]:
        # A method, so that the model lives as long as someone reads from it.
        with closing(self._sync_runner.generate_stream(args)) as steps:
            for step in steps:
                if step.text:
                    yield step.text
