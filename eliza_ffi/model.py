"""The friendly face: a model that generates text and chooses."""

from __future__ import annotations

import enum
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, cast, overload

import numpy as np
from numpy.typing import NDArray

from .chat.prompt import Prompt
from .chat.template import ChatTemplate, Messages
from .checks import check_callback, check_kind, check_several, check_whole
from .choices.label_set import ChoiceResult, LabelSet, as_label_set
from .choices.prepared_labels import PreparedLabels
from .decisions.answers import Decision, expand
from .decisions.asking import How, ScoreJob, WritePrompt, prompt_texts
from .decisions.calibration import Calibration
from .decisions.deciding import DecisionRun, Settings, settings_for
from .decisions.prompts import LabelStyle, check_one_input
from .decisions.questions import Question
from .decisions.scoring import Rule
from .decisions.wire import as_questions
from .errors import InvalidAnswerError, InvalidArgumentError
from .library.binding import CffiBinding, EotScore
from .library.loading import Library
from .library.protocol import StreamConfig, StreamStep, Tokens
from .sampling.params import Sampling
from .session.batches import Job, choices_for, length_of, run_many
from .session.filling import Fillable, FillRequest, FillRun
from .session.generation import GenerationRun
from .session.lifecycle import Lifecycle, Work
from .session.reading import Reading
from .session.request import GenerationRequest, RunResult
from .session.requests import (
    MOST_TOKENS,
    ChoiceMode,
    GenerationResult,
    ShapeRequest,
    Tokenization,
    Tries,
    check_prompts,
    checked_tokens,
    choice_of,
    choice_request,
    fill_request,
    generate_request,
    generation_of,
    lora_option,
    prompt_of,
    shape_request,
)
from .session.saving import restore_work, save_work
from .session.session import Session
from .session.tool_calls import (
    MOST_CALLS,
    TextAnswer,
    ToolCall,
    ToolCalls,
    ToolRequest,
    ToolRun,
    one_call,
    tool_request,
)
from .structured.fill_result import FillResult, SpanFill
from .structured.shape import Lark, Regex, is_shape
from .structured.shaped_result import FieldFill, ShapedResult
from .structured.token_texts import TokenTexts

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .session.requests import (
        ChoiceSettings,
        FillSettings,
        StreamSettings,
        Strings,
        TextSettings,
    )
    from .session.tool_calls import ToolSettings

__all__ = ["ChoiceResult", "GenerationResult", "Model"]

E = TypeVar("E", bound=enum.Enum)
R = TypeVar("R")
T = TypeVar("T")
V = TypeVar("V")

AnyPrompt: TypeAlias = "str | Prompt | Tokens | None"

TOLD = (str, SpanFill, FieldFill)
"""Steps of a request before its result."""


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
        Generations at once, 1 to 64; None = 8. More wait for one of these to end.
    n_threads
        Compute threads, at most one for each CPU; 0 = as many as a pass has work for, up to the
        physical cores.
    n_gpu_layers
        Layers to offload; -1 = all.
    seed
        Seed of every generation's sampling, 32 bits: the same prompt then gives the same text each
        time. None draws one for each generation.
    lora
        LoRA adapters of the model, files in GGUF, each with the scale it is added with.
    progress
        Called with a stage (``"load"`` or ``"prefill"``) and the fraction done, 0 to 1, at least
        twice a second as far as the passes before can tell.
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

    See Also
    --------
    eliza_ffi.AsyncModel : the same for an event loop.

    Notes
    -----
    Several threads may use one model, each with its own generation: they share forward passes,
    which costs them little more than one of them alone. Where all slots are taken, whatever needs
    one waits for its turn, first come, first served, and raises
    :class:`~eliza_ffi.errors.BusyError` once nobody at all has got a turn for 30 seconds, or for as
    many milliseconds as the option ``slot_wait_ms`` says. Requests that name a slot (``slot_id``)
    wait for that slot, and let requests for other slots pass.

    The slots share the context's cells. A request that finds too little room beside other requests
    is run again when these have ended, unless a piece of its answer has already been given out, to
    an iterator or a callback: then it raises :class:`~eliza_ffi.errors.ContextFullError`, or
    :class:`~eliza_ffi.errors.FillError` with what was written. Three kinds of requests are never
    run again: texts of :meth:`generate` and :meth:`stream` that have begun end where the context is
    full, with the finish reason ``"context_full"``; :meth:`restore` raises; so do requests with
    ``wait=False``. An iterator of :meth:`stream` that is neither read to its end nor closed keeps
    its slot.

    Close the model, or use it in a ``with`` statement; generations that are still running are then
    cancelled. A process that is forked cannot use a model of its parent: open it in the child.
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
        lora: Iterable[tuple[str | os.PathLike[str], float]] = (),
        progress: Callable[[str, float], None] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        if options is not None:
            check_kind("options", options, Mapping, "a mapping")
        self.session = Session(
            path,
            library=library,
            n_gpu_layers=check_whole("n_gpu_layers", n_gpu_layers),
            settings={
                "n_ctx": check_whole("n_ctx", n_ctx) or None,
                "n_slots": n_slots,
                "n_threads": check_whole("n_threads", n_threads) or None,
                "seed": seed,
                "lora": lora_option(lora),
                **(options or {}),
            },
            progress=progress,
        )

    def close(self) -> None:
        """Free the model; running generations are cancelled. Closing twice is harmless."""
        self.session.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Model({self.session})"

    @property
    def path(self) -> str:
        """The model's file, or its bundle."""
        return self.session.path

    @property
    def binding(self) -> CffiBinding:
        """The library's functions."""
        return self.session.binding

    # ---- What the model is ----------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """Return facts about the library and the model."""
        return self.session.describe()

    def tokenize(
        self, text: str, add_special: bool = False, parse_special: bool = False
    ) -> list[int]:
        """Return the tokens of a text.

        Without the flags it is plain text that goes on from other text: no BOS, no control tokens.
        A prompt is both begun and parsed; see :meth:`prompt_tokens`.

        Parameters
        ----------
        text
        add_special
            Add the tokens the model begins (and ends) a text with.
        parse_special
            Read ``<|im_start|>`` and the like as the tokens they name.
        """
        return self.session.tokenize(text, add_special, parse_special)

    def prompt_tokens(self, prompt: str | Prompt) -> list[int]:
        """Return the tokens of a prompt: ``choose(prompt)`` is ``choose(prompt_tokens(prompt))``.

        Parameters
        ----------
        prompt
            A string, in all of which control tokens are read, or a
            :class:`~eliza_ffi.chat.Prompt`, in whose plain text they are not. Either gets BOS if
            the model's texts begin with it and this one does not.
        """
        return self.session.prompt_tokens(prompt)

    def detokenize(self, tokens: Tokens, unparse_special: bool = False) -> str:
        """Return the text of tokens; special tokens are left out unless `unparse_special`."""
        return self.session.detokenize(tokens, unparse_special)

    def token_texts(self) -> TokenTexts:
        """Return what every token of the vocabulary spells, for who computes masks of them."""
        return self.session.token_texts()

    @property
    def chat_template(self) -> ChatTemplate:
        """The model's chat template; raises `ChatTemplateError` where there is none."""
        return self.session.chat().template

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
        return self.session.chat().tokens(messages, **more)

    @overload
    def embed(self, text: str, pooling: str = ...) -> NDArray[np.float32]: ...

    @overload
    def embed(self, text: Iterable[str], pooling: str = ...) -> NDArray[np.float32]: ...

    def embed(self, text: str | Iterable[str], pooling: str = "mean") -> NDArray[np.float32]:
        """Return the embedding of a text, or of several: a product of two is their angle's cosine.

        Parameters
        ----------
        text
            Each of one to as many tokens as the model was trained on; control tokens are text.
        pooling
            What is made of the tokens' vectors: ``"mean"``, ``"cls"`` (the first) or ``"last"``.

        Returns
        -------
        array of float32, shape [n_embd], or [n, n_embd] for several texts
            Each of length 1.

        Raises
        ------
        InvalidArgumentError
            If `pooling` is none of these, or a text has no tokens or too many.
        NotSupportedError
            If the library has no embeddings.
        """
        return self._embed(text, pooling)

    def _embed(
        self, text: str | Iterable[str], pooling: str, check: Callable[[], None] | None = None
    ) -> NDArray[np.float32]:
        """Embed texts; `check` is called before each and may raise."""
        if isinstance(text, str):
            return self.binding.embed(self.session.ctx, text, pooling)
        rows = []
        for each in check_several("text", text, "a string or a list of strings"):
            if check is not None:
                check()
            rows.append(self.binding.embed(self.session.ctx, each, pooling))
        if not rows:
            raise InvalidArgumentError("there are no texts to embed")
        return np.stack(rows)

    def end_of_turn(self, prompt: str | Prompt | Tokens, end: str | int) -> EotScore:
        """Return how likely it is that someone has finished speaking.

        Parameters
        ----------
        prompt
            What was said so far, in the model's format, its last turn open, as in
            :meth:`generate`: what was said belongs in a :class:`~eliza_ffi.chat.Prompt`. What a
            slot holds of it is not decoded again.
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
        BusyError
            As :meth:`generate`.
        """
        return cast(EotScore, self._run(self._end_of_turn_work(prompt, end), True))

    def _end_of_turn_work(self, prompt: str | Prompt | Tokens, end: str | int) -> Work[EotScore]:
        if isinstance(prompt, str | Prompt):
            prompt = self.session.prompt_tokens(prompt)
        prompt = checked_tokens(prompt)
        if isinstance(end, str):
            tokens = self.tokenize(end, parse_special=True)
            if len(tokens) != 1:
                raise InvalidArgumentError(
                    f"end must be the text of one token: {end!r} has {len(tokens)}"
                )
            (end,) = tokens
        check_whole("end", end, 0)
        score = partial(self.binding.eot_score, self.session.ctx, prompt, end)

        def steps(life: Lifecycle) -> Generator[EotScore, None, None]:
            life.check()
            yield score()

        make = partial(Lifecycle, self.binding, self.session.ctx, "scoring")
        return Work(make, steps, n_tokens=len(prompt))

    # ---- Texts ----------------------------------------------------------------------------------

    def generate(
        self,
        prompt: str | Prompt | Tokens | None = None,
        max_tokens: int = 256,
        *,
        messages: Messages | None = None,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        repeat_penalty: float = 1.0,
        sampling: Sampling | None = None,
        grammar: str | None = None,
        draft_max: int = 0,
        drafter: str | os.PathLike[str] | None = None,
        on_text_chunk: Callable[[str], Any] | None = None,
        wait: bool | float = True,
        **more: Unpack[TextSettings],
    ) -> GenerationResult:
        """Generate a text.

        Parameters
        ----------
        prompt
            A string, which is trusted text: it gets BOS, and control tokens are read in all of it.
            User input belongs in `messages` or a :class:`~eliza_ffi.chat.Prompt`, which gets BOS,
            too. Tokens are taken as they are.
        messages
            A conversation instead of a prompt: mappings with ``role`` and ``content``, written in
            the model's own chat template up to where the assistant's turn begins. What a user
            wrote cannot end their turn there, as it can in a prompt. See :meth:`chat_tokens`.
        max_tokens
            0 = until the model ends or the context is full.
        temperature
            0 = always the most likely token.
        top_p, top_k, repeat_penalty
            As in :class:`~eliza_ffi.library.StreamConfig`.
        sampling
            A :class:`~eliza_ffi.sampling.Sampling` in place of the four above, with every
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
        wait
            For a slot, if all are taken, or for the one that `slot_id` names: seconds at the most;
            True = as long as others get theirs, False = not at all.
        **more
            ``stop``: a text, or several, that ends the generation where it comes; neither it nor
            what follows is given out. ``schema`` (a JSON Schema or a class), ``regex`` or ``lark``:
            what the text shall be, as in :meth:`fill`; ``masks``: the same, by anyone else, see
            :class:`~eliza_ffi.structured.Masks`. ``logprobs``: find the log-probability of every
            token, and this many of the likeliest in its place, 0 to 1,024. A setting of
            :class:`~eliza_ffi.sampling.Sampling` by name, such as ``seed`` or ``min_p``, or
            of :class:`~eliza_ffi.session.GenerationRequest`, such as ``slot_id``.

        Raises
        ------
        InvalidArgumentError
            If a setting is out of range or given twice.
        ContextFullError
            If the prompt does not fit into the context.
        BusyError
            If there was no slot in time.
        TypeError
            If there is no keyword of that name.
        """
        args = generate_request(
            self.session,
            prompt,
            messages=messages,
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            repeat_penalty=repeat_penalty,
            sampling=sampling,
            grammar=grammar,
            draft_max=draft_max,
            drafter=drafter,
            on_text_chunk=on_text_chunk,
            method="generate",
            **more,
        )
        found: GenerationResult = self._run(self._text_work(args), wait, args.on_text)
        return found

    def stream(
        self,
        prompt: str | Prompt | Tokens | None = None,
        max_tokens: int = 256,
        *,
        messages: Messages | None = None,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        repeat_penalty: float = 1.0,
        sampling: Sampling | None = None,
        grammar: str | None = None,
        draft_max: int = 0,
        drafter: str | os.PathLike[str] | None = None,
        wait: bool | float = True,
        **more: Unpack[TextSettings],
    ) -> Iterator[str]:
        """Yield the text piece by piece; parameters and errors as :meth:`generate`.

        If the context is full before the first piece, the request may be run again, see
        :class:`Model`. Afterwards the text ends where the context is full.
        """
        args = generate_request(
            self.session,
            prompt,
            messages=messages,
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            repeat_penalty=repeat_penalty,
            sampling=sampling,
            grammar=grammar,
            draft_max=draft_max,
            drafter=drafter,
            method="stream",
            **more,
        )
        return self._texts(args, wait)

    def _texts(self, args: GenerationRequest, wait: bool | float) -> Iterator[str]:
        with closing(self.session.steps(self._text_work(args, True), wait)) as steps:
            yield from (step for step in steps if isinstance(step, str))

    def generate_many(
        self,
        prompts: Iterable[str | Prompt | Tokens | Messages],
        max_tokens: int = 256,
        *,
        progress: Callable[[int, int | None], Any] | None = None,
        max_concurrency: int | None = None,
        return_exceptions: bool = False,
        **settings: Any,
    ) -> list[GenerationResult]:
        """Generate a text for each prompt, as many at once as there are slots.

        Parameters
        ----------
        prompts
            Strings, which are trusted text as in :meth:`generate`, prompts, tokens or
            conversations; read as far as there is room for.
        max_tokens, **settings
            As :meth:`generate`, for each of them.
        progress
            Called with how many are done and how many there are, None where that is not known.
        max_concurrency
            How many run together; None = the model's slots.
        return_exceptions
            Return what went wrong with a prompt in its place, where otherwise the first error is
            raised, once all that still ran have been cancelled.

        Returns
        -------
        list of GenerationResult
            In the prompts' order.
        """

        def job(prompt: str | Prompt | Tokens | Messages) -> _Job[GenerationResult]:
            args = generate_request(
                self.session,
                **prompt_of(prompt),
                max_tokens=max_tokens,
                method="generate_many",
                **settings,
            )
            return self._job(self._text_work(args), args.on_text)

        check_prompts(prompts, "generate")
        return self._many(prompts, job, progress, max_concurrency, return_exceptions)

    # ---- Choices --------------------------------------------------------------------------------

    @overload
    def choose(
        self,
        prompt: str | Prompt | Tokens,
        choices: type[E],
        *,
        mode: ChoiceMode = ...,
        temperature: float = ...,
        probabilities: bool = ...,
        tokenization: Tokenization = ...,
        wait: bool | float = ...,
        **more: Unpack[ChoiceSettings],
    ) -> ChoiceResult[E]: ...

    @overload
    def choose(
        self,
        prompt: str | Prompt | Tokens,
        choices: type[bool],
        *,
        mode: ChoiceMode = ...,
        temperature: float = ...,
        probabilities: bool = ...,
        tokenization: Tokenization = ...,
        wait: bool | float = ...,
        **more: Unpack[ChoiceSettings],
    ) -> ChoiceResult[bool]: ...

    @overload
    def choose(
        self,
        prompt: str | Prompt | Tokens,
        choices: Mapping[str, V] | LabelSet[V],
        *,
        mode: ChoiceMode = ...,
        temperature: float = ...,
        probabilities: bool = ...,
        tokenization: Tokenization = ...,
        wait: bool | float = ...,
        **more: Unpack[ChoiceSettings],
    ) -> ChoiceResult[V]: ...

    @overload
    def choose(
        self,
        prompt: str | Prompt | Tokens,
        choices: Strings,
        *,
        mode: ChoiceMode = ...,
        temperature: float = ...,
        probabilities: bool = ...,
        tokenization: Tokenization = ...,
        wait: bool | float = ...,
        **more: Unpack[ChoiceSettings],
    ) -> ChoiceResult[str]: ...

    @overload
    def choose(
        self,
        prompt: None = ...,
        *,
        choices: type[E],
        messages: Messages,
        mode: ChoiceMode = ...,
        temperature: float = ...,
        probabilities: bool = ...,
        tokenization: Tokenization = ...,
        wait: bool | float = ...,
        **more: Unpack[ChoiceSettings],
    ) -> ChoiceResult[E]: ...

    @overload
    def choose(
        self,
        prompt: None = ...,
        *,
        choices: Strings,
        messages: Messages,
        mode: ChoiceMode = ...,
        temperature: float = ...,
        probabilities: bool = ...,
        tokenization: Tokenization = ...,
        wait: bool | float = ...,
        **more: Unpack[ChoiceSettings],
    ) -> ChoiceResult[str]: ...

    @overload
    def choose(
        self,
        prompt: str | Prompt | Tokens | None = ...,
        choices: Any = ...,
        *,
        messages: Messages | None = ...,
        mode: ChoiceMode = ...,
        temperature: float = ...,
        probabilities: bool = ...,
        tokenization: Tokenization = ...,
        wait: bool | float = ...,
        **more: Unpack[ChoiceSettings],
    ) -> ChoiceResult[Any]: ...

    def choose(
        self,
        prompt: str | Prompt | Tokens | None = None,
        choices: Any = None,
        *,
        messages: Messages | None = None,
        mode: str = "greedy",
        temperature: float = 1.0,
        probabilities: bool = False,
        tokenization: str = "own",
        wait: bool | float = True,
        **more: Any,
    ) -> ChoiceResult[Any]:
        """Choose one of some known answers.

        Parameters
        ----------
        prompt
            What ends where the answer begins, as in :meth:`generate`: a string prompt is trusted
            text, and user input belongs in `messages` or a :class:`~eliza_ffi.chat.Prompt`.
        choices
            Distinct non-empty strings; an enum class, whose member is spelled by its value if that
            is a string, otherwise by its name; a mapping from labels to the values that come back;
            ``bool``, spelled ``true`` and ``false``; a ``Literal[...]``; the result of
            :meth:`prepare_labels`.
        messages
            A conversation instead of a prompt, as in :meth:`generate`: the answer is the
            beginning of the assistant's turn.
        mode
            ``"greedy"`` = the most likely token at each step; ``"sample"`` = sampled;
            ``"best"`` = the choice that is most likely as a whole.
        temperature
            Of the sampling; the other modes do not use it.
        probabilities
            Find the probability of every choice; mostly one more forward pass.
        tokenization
            ``"own"`` = each choice is cut into tokens as the tokenizer cuts it alone; ``"any"`` =
            in every way there is, as under a grammar of the choices. Then ``heal_prompt=True`` lets
            the prompt's last token be spelled anew together with the choice.
        wait
            As :meth:`generate`.
        **more
            As :meth:`generate`.

        Raises
        ------
        InvalidArgumentError
            If the choices are empty, not distinct, or not spellable by the model's tokenizer, or
            if ``max_tokens`` is given and ends the generation inside a choice.
        ContextFullError
            If the prompt or the choice does not fit into the context.
        NotSupportedError
            If the library has no token-trie sampler.
        BusyError, TypeError
            As :meth:`generate`.
        """
        choice_set = as_label_set(choices)
        args = choice_request(
            self.session,
            prompt,
            choice_set,
            messages=messages,
            mode=mode,
            temperature=temperature,
            tokenization=tokenization,
            probabilities=probabilities,
            method="choose",
            **more,
        )
        found: ChoiceResult[Any] = self._run(
            self._choice_work(choice_set, args), wait, args.on_text
        )
        return found

    @overload
    def prepare_labels(self, choices: type[E]) -> PreparedLabels[E]: ...

    @overload
    def prepare_labels(self, choices: type[bool]) -> PreparedLabels[bool]: ...

    @overload
    def prepare_labels(self, choices: Mapping[str, V] | LabelSet[V]) -> PreparedLabels[V]: ...

    @overload
    def prepare_labels(self, choices: Strings) -> PreparedLabels[str]: ...

    @overload
    def prepare_labels(self, choices: Any) -> PreparedLabels[Any]: ...

    def prepare_labels(self, choices: Any) -> PreparedLabels[Any]:
        """Prepare choices once, to be given as the choices of any number of requests.

        :meth:`choose` keeps the tokens of the last sets it was given, and finds them by comparing
        all texts. With some thousands that takes longer than a choice; a chooser finds them at
        once.

        Parameters
        ----------
        choices
            As :meth:`choose`.

        Returns
        -------
        PreparedLabels
            For this model alone. It keeps the tokens in the library, about 40 bytes for each of
            them, until nothing refers to it.

        Raises
        ------
        InvalidArgumentError
            If the choices are empty, not distinct, or not spellable by the model's tokenizer.
        """
        _ = self.session.ctx  # is it open, and ours?
        return PreparedLabels(as_label_set(choices), self.session.choices)

    def choose_many(
        self,
        prompts: Iterable[str | Prompt | Tokens | Messages],
        choices: Any,
        *,
        mode: ChoiceMode = "greedy",
        temperature: float = 1.0,
        probabilities: bool = False,
        tokenization: Tokenization = "own",
        progress: Callable[[int, int | None], Any] | None = None,
        max_concurrency: int | None = None,
        return_exceptions: bool = False,
        **more: Unpack[ChoiceSettings],
    ) -> list[ChoiceResult[Any]]:
        """Choose for each prompt, as many at once as there are slots.

        Parameters
        ----------
        prompts
            Strings, which are trusted text as in :meth:`generate`, prompts, tokens or
            conversations; read as far as there is room for.
        choices
            One set for all of them, in any form that :meth:`choose` takes, or an iterable with one
            for each prompt.
        mode, temperature, probabilities, tokenization, **more
            As :meth:`choose`.
        progress, max_concurrency, return_exceptions
            As :meth:`generate_many`.

        Returns
        -------
        list of ChoiceResult
            In the prompts' order.
        """

        def job(item: tuple[str | Prompt | Tokens | Messages, Any]) -> _Job[ChoiceResult[Any]]:
            prompt, choice_set = item[0], as_label_set(item[1])
            args = choice_request(
                self.session,
                **prompt_of(prompt),
                choices=choice_set,
                mode=mode,
                temperature=temperature,
                tokenization=tokenization,
                probabilities=probabilities,
                method="choose_many",
                **more,
            )
            return self._job(self._choice_work(choice_set, args), args.on_text)

        check_prompts(prompts, "choose")
        return self._many(
            choices_for(prompts, choices),
            job,
            progress,
            max_concurrency,
            return_exceptions,
            total=length_of(prompts),
        )

    # ---- Decisions ------------------------------------------------------------------------------

    def decide(
        self,
        input: Any,
        questions: Any,
        *,
        labels: LabelStyle | None = None,
        orders: int | None = None,
        prompt: WritePrompt | None = None,
        scoring: Rule | None = None,
        calibration: Calibration | str | os.PathLike[str] | None = None,
        option_mass: bool = False,
        abstain_below: float = 0.0,
        wait: bool | float = True,
        **more: Unpack[StreamSettings],
    ) -> Decision:
        """Answer typed questions about an input, with a probability for every answer.

        The input is read once, and the questions behind it go through the model together. It stays
        in its slot: further questions about it begin there.

        Parameters
        ----------
        input
            A text, a conversation (a sequence of messages), or other JSON. It is plain text to the
            model: it cannot end a turn. A list of strings is rejected, because it usually means
            several inputs: pass those to :meth:`decide_many`. A tuple of strings is one input.
        questions
            A mapping from names to questions, or several of them:
            :class:`~eliza_ffi.decisions.Predicate`, :class:`~eliza_ffi.decisions.Choice`,
            :class:`~eliza_ffi.decisions.Score`, :class:`~eliza_ffi.decisions.Labels`, or mappings
            in the format of ``/v1/decisions`` or ``/v1/systemone``. At most 400.
        labels
            What the model answers with: ``"text"`` (default), the options' own texts, or
            ``"letters"``.
        orders
            In how many orders a question's options are shown, to be averaged over: 1 by default.
        prompt
            A function of the input's text and an :class:`~eliza_ffi.decisions.Asked` question that
            writes the prompt instead of :mod:`eliza_ffi.decisions.prompts`.
        scoring
            ``"legal"`` (default), ``"joint"``, ``"mean"`` or ``"bytes"``; see
            :mod:`eliza_ffi.decisions.scoring` for what they are and cost.
        calibration
            Of this model and these questions, or the path of its file, which is read at each call;
            says `labels`, `orders` and `scoring`, too.
        option_mass
            Find the share of the model's own probability that falls on the options.
        abstain_below
            Abstain where the likeliest answer's probability is lower.
        wait
            As :meth:`generate`.
        **more
            ``slot_id``, ``prompt_cache_key``, ``cache_type_k`` and ``cache_type_v``, as
            :class:`~eliza_ffi.library.StreamConfig`.

        Returns
        -------
        Decision
            A mapping from names to answers. Without a calibration their probabilities are the
            model's own, and mostly too sure.

        Raises
        ------
        InvalidArgumentError
            If the input, a question or a setting is malformed, or the calibration is for something
            else.
        OSError
            If the calibration's file cannot be read.
        ContextFullError
            If the input with one of the questions does not fit into the context.
        NotSupportedError
            If the library cannot score choices, or the model is one made for decisions whose type
            is not known.
        BusyError
            As :meth:`generate`.
        """
        check_one_input(input)
        asked = as_questions(questions)
        settings = settings_for(
            self.session,
            asked,
            labels=labels,
            orders=orders,
            prompt=prompt,
            scoring=scoring,
            calibration=calibration,
            option_mass=option_mass,
            abstain_below=abstain_below,
            stream=more,
        )
        return self._decision_job(input, asked, settings, wait).run()

    def decide_many(
        self,
        inputs: Iterable[Any],
        questions: Any,
        *,
        labels: LabelStyle | None = None,
        orders: int | None = None,
        prompt: WritePrompt | None = None,
        scoring: Rule | None = None,
        calibration: Calibration | str | os.PathLike[str] | None = None,
        option_mass: bool = False,
        abstain_below: float = 0.0,
        progress: Callable[[int, int | None], Any] | None = None,
        max_concurrency: int | None = None,
        return_exceptions: bool = False,
        **more: Unpack[StreamSettings],
    ) -> list[Decision]:
        """Answer the same questions about many inputs.

        Parameters
        ----------
        inputs
            Each as in :meth:`decide`; read as far as there is room for.
        questions, labels, orders, prompt, scoring, calibration, option_mass, abstain_below, **more
            As :meth:`decide`.
        progress, return_exceptions
            As :meth:`generate_many`.
        max_concurrency
            How many run together; None = the model's slots where a device computes, two where a CPU
            does, which more would not make faster.

        Returns
        -------
        list of Decision
            In the inputs' order.
        """
        check_prompts(inputs, "decide", "inputs")
        asked = as_questions(questions)
        settings = settings_for(
            self.session,
            asked,
            labels=labels,
            orders=orders,
            prompt=prompt,
            scoring=scoring,
            calibration=calibration,
            option_mass=option_mass,
            abstain_below=abstain_below,
            stream=more,
        )
        return self._many(
            inputs,
            lambda given: self._decision_job(given, asked, settings, True, max_concurrency),
            progress,
            self.session.decisions_at_once(max_concurrency),
            return_exceptions,
        )

    def decision_prompts(
        self,
        input: Any,
        questions: Any,
        *,
        labels: LabelStyle = "text",
        orders: int = 1,
        prompt: WritePrompt | None = None,
    ) -> list[str]:
        """Return the prompts that :meth:`decide` asks with, one for each question and order.

        They are to be looked at: control tokens are spelled out in them, as are those that the
        input may spell and that are plain text to the model.
        """
        check_one_input(input)
        expanded = [each for question in as_questions(questions) for each in expand(question)]
        return prompt_texts(self.session, input, expanded, How(labels, orders, prompt))

    # ---- Structured answers ---------------------------------------------------------------------

    @overload
    def fill(
        self,
        prompt: str | Prompt | Tokens | None = ...,
        skeleton: Fillable | None = ...,
        *,
        messages: Messages | None = ...,
        on_span: Callable[[Any], Any] | None = ...,
        wait: bool | float = ...,
        **more: Unpack[FillSettings],
    ) -> FillResult: ...

    @overload
    def fill(
        self,
        prompt: str | Prompt | Tokens | None = ...,
        *,
        skeleton: type[T],
        messages: Messages | None = ...,
        on_span: Callable[[Any], Any] | None = ...,
        wait: bool | float = ...,
        **more: Unpack[FillSettings],
    ) -> ShapedResult[T]: ...

    @overload
    def fill(
        self,
        prompt: str | Prompt | Tokens | None,
        skeleton: type[T],
        *,
        messages: Messages | None = ...,
        on_span: Callable[[Any], Any] | None = ...,
        wait: bool | float = ...,
        **more: Unpack[FillSettings],
    ) -> ShapedResult[T]: ...

    @overload
    def fill(
        self,
        prompt: str | Prompt | Tokens | None,
        skeleton: Regex | Lark,
        *,
        messages: Messages | None = ...,
        on_span: Callable[[Any], Any] | None = ...,
        wait: bool | float = ...,
        **more: Unpack[FillSettings],
    ) -> ShapedResult[str]: ...

    @overload
    def fill(
        self,
        prompt: str | Prompt | Tokens | None = ...,
        skeleton: Mapping[str, Any] = ...,
        *,
        messages: Messages | None = ...,
        on_span: Callable[[Any], Any] | None = ...,
        wait: bool | float = ...,
        **more: Unpack[FillSettings],
    ) -> ShapedResult[Any]: ...

    def fill(
        self,
        prompt: str | Prompt | Tokens | None = None,
        skeleton: Any = None,
        *,
        messages: Messages | None = None,
        on_span: Callable[[Any], Any] | None = None,
        wait: bool | float = True,
        **more: Unpack[FillSettings],
    ) -> Any:
        """Write a structured answer of which the shape, and so some of the text, is known.

        Parameters
        ----------
        prompt
            What ends where the answer begins; a string is trusted text, as in :meth:`generate`.
        skeleton
            A :class:`~eliza_ffi.structured.Skeleton`, or its JSON form; an
            :class:`~eliza_ffi.structured.ActionSkeleton`. Or a shape: a JSON Schema as a dict; a
            class (one of pydantic's, a dataclass, a typed dictionary), an object of which comes
            back (the extra ``schema``); a :class:`~eliza_ffi.structured.Regex` or
            :class:`~eliza_ffi.structured.Lark`.
        messages
            A conversation instead of a prompt, as in :meth:`generate`.
        on_span
            Called with each span of a skeleton, a :class:`~eliza_ffi.structured.SpanFill`, or each
            field of a shape, a :class:`~eliza_ffi.structured.FieldFill`, when it has been filled.
        wait
            As :meth:`generate`.
        **more
            As :meth:`fill_args`. ``retries``: how often an answer that is not valid against its
            schema or class is tried again, with sampling (0); `on_span` then hears of the fields of
            every try.

        Returns
        -------
        FillResult
            Of a shape, a :class:`~eliza_ffi.structured.ShapedResult`, whose value is valid.

        Raises
        ------
        FillError
            If the library fails on a span, as when the context is full; if the answer does not end
            within `max_tokens`. What was written until then is its `partial`.
        InvalidAnswerError
            If the answer is not valid against its schema or class. It is a FillError.
        InvalidArgumentError
            If the skeleton, the shape or the sampler plan is malformed.
        NotSupportedError
            If the library cannot fill skeletons, or an extra that is needed is not installed.
        BusyError, TypeError
            As :meth:`generate`.
        """
        check_callback("on_span", on_span)
        more_of_both: dict[str, Any] = {"messages": messages, "method": "fill", **more}
        if is_shape(skeleton):
            request = shape_request(self.session, prompt, skeleton, **more_of_both)
            return self._run(self._shape_work(request, on_span is not None), wait, on_span)
        args = fill_request(self.session, prompt, skeleton, **more_of_both)
        result: FillResult = self._run(self._fill_work(args, on_span is not None), wait, on_span)
        return ShapedResult.of(result) if isinstance(skeleton, Mapping) else result

    @overload
    def fill_stream(
        self,
        prompt: str | Prompt | Tokens | None = ...,
        skeleton: Fillable | None = ...,
        *,
        messages: Messages | None = ...,
        wait: bool | float = ...,
        **more: Unpack[FillSettings],
    ) -> Iterator[SpanFill | FillResult]: ...

    @overload
    def fill_stream(
        self,
        prompt: str | Prompt | Tokens | None,
        skeleton: type[T],
        *,
        messages: Messages | None = ...,
        wait: bool | float = ...,
        **more: Unpack[FillSettings],
    ) -> Iterator[FieldFill | ShapedResult[T]]: ...

    @overload
    def fill_stream(
        self,
        prompt: str | Prompt | Tokens | None = ...,
        skeleton: Mapping[str, Any] | Regex | Lark = ...,
        *,
        messages: Messages | None = ...,
        wait: bool | float = ...,
        **more: Unpack[FillSettings],
    ) -> Iterator[SpanFill | FieldFill | FillResult]: ...

    def fill_stream(
        self,
        prompt: str | Prompt | Tokens | None = None,
        skeleton: Any = None,
        *,
        messages: Messages | None = None,
        wait: bool | float = True,
        **more: Unpack[FillSettings],
    ) -> Iterator[Any]:
        """Yield each span, or field of a shape, when it has been filled, and at last the result.

        Parameters and errors as :meth:`fill`.
        """
        more_of_both: dict[str, Any] = {"messages": messages, "method": "fill_stream", **more}
        if is_shape(skeleton):
            request = shape_request(self.session, prompt, skeleton, **more_of_both)
            return self.session.steps(self._shape_work(request), wait)
        args = fill_request(self.session, prompt, skeleton, **more_of_both)
        return self.session.steps(self._fill_work(args), wait)

    def fill_many(
        self,
        prompts: Iterable[str | Prompt | Tokens | Messages],
        skeleton: Fillable | Mapping[str, Any] | Regex | Lark | type[Any],
        *,
        progress: Callable[[int, int | None], Any] | None = None,
        max_concurrency: int | None = None,
        return_exceptions: bool = False,
        **more: Unpack[FillSettings],
    ) -> list[FillResult]:
        """Fill a skeleton or shape for each prompt, as many at once as there are slots.

        Parameters
        ----------
        prompts
            Strings, which are trusted text as in :meth:`generate`, prompts, tokens or
            conversations; read as far as there is room for.
        skeleton, **more
            As :meth:`fill`.
        progress, max_concurrency, return_exceptions
            As :meth:`generate_many`.

        Returns
        -------
        list of FillResult
            In the prompts' order.
        """

        def job(prompt: str | Prompt | Tokens | Messages) -> Job[FillResult]:
            asked: dict[str, Any] = {**prompt_of(prompt), "method": "fill_many", **more}
            if is_shape(skeleton):
                request = shape_request(self.session, given=skeleton, **asked)
                return self._job(self._shape_work(request, False))
            args = fill_request(self.session, skeleton=skeleton, **asked)
            return self._job(self._fill_work(args, False))

        check_prompts(prompts, "fill")
        return self._many(prompts, job, progress, max_concurrency, return_exceptions)

    # ---- Tool calls -----------------------------------------------------------------------------

    @overload
    def call_tool(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]],
        choice: Literal["required"],
        *,
        variables: Mapping[str, Any] | None = ...,
        max_tokens: int = ...,
        wait: bool | float = ...,
        **more: Unpack[ToolSettings],
    ) -> ToolCall: ...

    @overload
    def call_tool(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]],
        choice: str | Mapping[str, Any] = ...,
        *,
        variables: Mapping[str, Any] | None = ...,
        max_tokens: int = ...,
        wait: bool | float = ...,
        **more: Unpack[ToolSettings],
    ) -> ToolCall | TextAnswer: ...

    def call_tool(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]],
        choice: str | Mapping[str, Any] = "auto",
        *,
        variables: Mapping[str, Any] | None = None,
        max_tokens: int = MOST_TOKENS,
        wait: bool | float = True,
        **more: Unpack[ToolSettings],
    ) -> ToolCall | TextAnswer:
        """Call a tool, or answer in words.

        The prompt and the call are written in the model's own format. Its fixed text is not
        generated, the name is an exact choice, and the arguments follow the tool's schema.

        Parameters
        ----------
        messages
            The conversation, as in :meth:`chat_tokens`, with earlier calls and their results.
        tools
            OpenAI's tool definitions: functions with ``name``, ``description`` and ``parameters``.
            A JSON Schema without ``additionalProperties`` allows no other arguments.
        choice
            ``"auto"``: the model calls a tool or answers in words, whichever is more probable.
            ``"required"``: it calls one of the tools. Otherwise the name of the tool to call, or
            OpenAI's ``{"type": "function", "function": {"name": ...}}``.
        variables
            Variables of the chat template, such as ``{"enable_thinking": False}``.
        max_tokens
            Of the arguments of a call, or of the answer in words; 0 = no limit but the context's.
        wait
            As :meth:`generate`.
        **more
            ``temperature``, ``top_k``, ``top_p`` and ``seed`` sample the arguments and the answer
            in words; without them these are greedy. The tool is always the most probable one.
            Settings of the slot, such as ``slot_id``, as in :meth:`generate`.

        Returns
        -------
        ToolCall or TextAnswer
            A :class:`~eliza_ffi.session.tool_calls.TextAnswer` is a
            :class:`~eliza_ffi.session.requests.GenerationResult`.

        Raises
        ------
        InvalidArgumentError
            If a tool or its schema is malformed or unsupported, two tools have one name, or
            `choice` names another tool.
        FillError
            If the arguments do not end within `max_tokens` or the context.
        InvalidAnswerError
            If the arguments are not valid against the schema, because token masks do not enforce
            all of it. It is a FillError.
        ChatTemplateError
            If the model has no chat template, or the template rejects the messages.
        NotSupportedError
            If the library takes no masks.
        BusyError, TypeError
            As :meth:`generate`.
        """
        request = tool_request(
            self.session,
            messages,
            tools,
            choice,
            variables=variables,
            max_tokens=max_tokens,
            method="call_tool",
            **more,
        )
        return one_call(self._run(self._tool_work(request), wait))

    @overload
    def call_tools(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]],
        choice: Literal["required"],
        *,
        max_calls: int = ...,
        variables: Mapping[str, Any] | None = ...,
        max_tokens: int = ...,
        wait: bool | float = ...,
        **more: Unpack[ToolSettings],
    ) -> ToolCalls: ...

    @overload
    def call_tools(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]],
        choice: str | Mapping[str, Any] = ...,
        *,
        max_calls: int = ...,
        variables: Mapping[str, Any] | None = ...,
        max_tokens: int = ...,
        wait: bool | float = ...,
        **more: Unpack[ToolSettings],
    ) -> ToolCalls | TextAnswer: ...

    def call_tools(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]],
        choice: str | Mapping[str, Any] = "auto",
        *,
        max_calls: int = MOST_CALLS,
        variables: Mapping[str, Any] | None = None,
        max_tokens: int = MOST_TOKENS,
        wait: bool | float = True,
        **more: Unpack[ToolSettings],
    ) -> ToolCalls | TextAnswer:
        """Call several tools in one turn, or answer in words.

        After each call, another one follows if the model goes on with one more probably than not.
        If the model's format has one call in a turn, there is one.

        Parameters
        ----------
        messages, tools, choice, variables, wait, **more
            As :meth:`call_tool`, which has the errors, too.
        max_calls
            How many calls there are at most.
        max_tokens
            Of the arguments of each call, or of the answer in words.

        Returns
        -------
        ToolCalls or TextAnswer
            A list of :class:`~eliza_ffi.session.tool_calls.ToolCall`, or an answer in words.
        """
        request = tool_request(
            self.session,
            messages,
            tools,
            choice,
            max_calls=max_calls,
            variables=variables,
            max_tokens=max_tokens,
            method="call_tools",
            **more,
        )
        found: ToolCalls | TextAnswer = self._run(self._tool_work(request), wait)
        return found

    # ---- Prompts on disk ------------------------------------------------------------------------

    def save(
        self,
        path: str | os.PathLike[str],
        prompt: str | Prompt | Tokens | None = None,
        *,
        messages: Messages | None = None,
        wait: bool | float = True,
        **more: Unpack[StreamSettings],
    ) -> int:
        """Write a prompt's tokens and their KV cache to a file, so that no one decodes them again.

        What a slot holds of the prompt is not decoded: to keep a conversation, save the tokens of
        its prompt and those that were generated.

        Parameters
        ----------
        path
            The file, which is written whole or not at all.
        prompt, messages
            As :meth:`generate`. A text that is to be continued should end where a token does, such
            as behind a line or a special token.
        wait
            As :meth:`generate`.
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
        args = generate_request(self.session, prompt, messages=messages, method="save", **more)
        return cast(int, self._run(save_work(self.session, path, args), wait))

    def restore(
        self,
        path: str | os.PathLike[str],
        *,
        slot_id: int = -1,
        prompt_cache_key: str | None = None,
        cache_type_k: str | None = None,
        cache_type_v: str | None = None,
        wait: bool | float = True,
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
        wait
            As :meth:`generate`.

        Returns
        -------
        int
            How many tokens the file holds.

        Raises
        ------
        NativeFault
            If the file cannot be read, is cut short or damaged, or is of another model, adapter,
            KV cache type or version of llama.cpp.
        ContextFullError
            If it holds more tokens than the context has room for.
        NotSupportedError
            If the library cannot restore slots.
        """
        config = StreamConfig(
            slot_id=slot_id,
            prompt_cache_key=prompt_cache_key,
            n_gpu_layers=self.session.n_gpu_layers,
            cache_type_k=cache_type_k,
            cache_type_v=cache_type_v,
        )
        return cast(int, self._run(restore_work(self.session, path, config), wait))

    # ---- Requests -------------------------------------------------------------------------------

    def _text_work(
        self, args: GenerationRequest, is_told: bool | None = None
    ) -> Work[str | GenerationResult]:
        """Return the request of a text; `is_told`: whether pieces of it are asked for."""
        return self._work(args, lambda: _texts(args, is_told, partial(generation_of, self.session)))

    def _choice_work(
        self, choices: LabelSet[Any], args: GenerationRequest
    ) -> Work[str | ChoiceResult[Any]]:
        def take() -> Callable[[Any], Iterator[str | ChoiceResult[Any]]]:
            begin = time.perf_counter()
            return _texts(
                args, None, lambda end: choice_of(choices, args, end, time.perf_counter() - begin)
            )

        return self._work(args, take)

    def _fill_work(self, args: FillRequest, is_told: bool = True) -> Work[SpanFill | FillResult]:
        """Return the request of a skeleton; `is_told`: whether single spans are asked for."""

        def take(step: SpanFill | FillResult) -> Iterator[SpanFill | FillResult]:
            if is_told or isinstance(step, FillResult):
                yield step

        return self._work(args, lambda: take)

    def _shape_work(
        self, request: ShapeRequest, is_told: bool = True
    ) -> Work[FieldFill | ShapedResult[Any]]:
        """Return the request of a shape; `is_told`: whether single fields are asked for."""

        def steps(tries: Tries) -> Generator[FieldFill | ShapedResult[Any], None, None]:
            while True:
                try:
                    take = Reading(tries.request.shape, is_told).take
                    with closing(self._drive(tries.run)) as running:
                        for step in running:
                            yield from take(step)
                    return
                except InvalidAnswerError:
                    if not tries.again():
                        raise

        n_tokens, slot_id = _size_of(request.args)
        make = partial(Tries, request, self._begin)
        return Work(make, steps, n_tokens=n_tokens, slot_id=slot_id)

    def _tool_work(self, request: ToolRequest) -> Work[ToolCalls | TextAnswer]:
        n_tokens, slot_id = _size_of(request.args)
        make = partial(ToolRun, request, self._begin, self._drive)
        return Work(make, ToolRun.steps, n_tokens=n_tokens, slot_id=slot_id)

    def _work(
        self,
        args: GenerationRequest | FillRequest,
        begin: Callable[[], Callable[[Any], Iterator[R]]],
    ) -> Work[R]:
        """Return a request; each run of it begins what makes its steps of the runner's."""

        def steps(run: Any) -> Generator[R, None, None]:
            take = begin()
            with closing(self._drive(run)) as running:
                for step in running:
                    yield from take(step)

        n_tokens, slot_id = _size_of(args)
        return Work(partial(self._begin, args), steps, n_tokens=n_tokens, slot_id=slot_id)

    def _begin(self, args: GenerationRequest | FillRequest) -> FillRun | GenerationRun:
        """Return a run of a request."""
        if isinstance(args, FillRequest):
            return FillRun(self.binding, self.session.ctx, args)
        return GenerationRun(self.binding, self.session.ctx, args, self.session.warn_once)

    def _drive(self, run: FillRun | GenerationRun) -> Generator[Any, None, None]:
        """Yield the steps of a run, the last of which is its result."""
        with closing(run.steps()) as steps:
            yield from steps
        yield run.result()

    def _run(
        self, work: Work[Any], wait: bool | float, tell: Callable[[Any], Any] | None = None
    ) -> Any:
        """Return the result of a request, and tell of the steps before it."""
        with closing(self.session.steps(work, wait)) as steps:
            for step in steps:
                if not isinstance(step, TOLD):
                    return step
                if tell is not None:
                    tell(step)
        raise AssertionError("the last step is the result")

    def _job(self, work: Work[Any], tell: Callable[[Any], Any] | None = None) -> _Job[Any]:
        return _Job(lambda: self._run(work, True, tell), work.cancel)

    def _decision_job(
        self,
        given: Any,
        questions: Sequence[Question],
        settings: Settings,
        wait: bool | float,
        at_once: int | None = None,
    ) -> ScoreJob[Decision]:
        decision = DecisionRun(self.session, given, questions, settings)
        return ScoreJob(self.session, decision.args, decision.decision, wait, at_once)

    def _many(
        self,
        items: Iterable[V],
        job: Callable[[V], Job[R]],
        progress: Callable[[int, int | None], Any] | None,
        max_concurrency: int | None,
        return_exceptions: bool,
        total: int | None = None,
    ) -> list[Any]:
        return run_many(
            items,
            job,
            at_once=self.session.at_once(max_concurrency),
            total=length_of(items) if total is None else total,
            progress=progress,
            return_exceptions=return_exceptions,
        )


def _texts(
    args: GenerationRequest, is_told: bool | None, read: Callable[[RunResult], R]
) -> Callable[[Any], Iterator[str | R]]:
    """Return what makes pieces of text and a result of the runner's steps.

    Pieces are left out where nobody asked for them; without `is_told`, a callback asks for them.
    """
    are_told = args.on_text is not None if is_told is None else is_told

    def take(step: StreamStep | RunResult) -> Iterator[str | R]:
        if isinstance(step, RunResult):
            yield read(step)
        elif are_told and step.text:
            yield step.text

    return take


def _size_of(args: GenerationRequest | FillRequest) -> tuple[int, int]:
    """Return the tokens of a request's prompt, and the slot that it names."""
    generation = args.generation if isinstance(args, FillRequest) else args
    return len(generation.prompt_tokens), generation.slot_id


class _Job(Generic[R]):
    """A request that is ready to run, and how another thread ends it."""

    def __init__(self, run: Callable[[], R], cancel: Callable[[], None]) -> None:
        self.run = run
        self.cancel = cancel
