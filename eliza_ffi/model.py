"""A model that generates text and chooses."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

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
from .errors import InvalidArgumentError
from .library.binding import CffiBinding, EotScore
from .library.loading import Library
from .library.protocol import Tokens
from .sampling.params import Sampling
from .session.batches import Job, RunJob, labels_for, length_of, run_many
from .session.filling import Fillable
from .session.jobs import STEPS, Jobs
from .session.lifecycle import Work
from .session.options import AnyPrompt, CacheOptions, ChoiceMode, Speculation, Tokenization
from .session.requests import MOST_TOKENS, GenerationResult, check_prompts, lora_option
from .session.session import Session
from .session.text_stream import TextStream
from .session.tool_calls import MOST_CALLS, TextAnswer, ToolCall, ToolCalls, one_call
from .structured.fill_result import FillResult, SpanFill
from .structured.shape import Lark, Regex
from .structured.shaped_result import FieldFill, ShapedResult
from .structured.token_texts import TokenTexts

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .session.options import ChoiceSettings, FillSettings, Strings, TextSettings
    from .session.tool_calls import ToolSettings

__all__ = ["Model"]

R = TypeVar("R")
T = TypeVar("T")
V = TypeVar("V")


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
    gpu_layers
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
    many milliseconds as the option ``slot_wait_ms`` says. Requests that name a slot
    (:class:`~eliza_ffi.CacheOptions`) wait for that slot, and let requests for other slots pass.

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
        gpu_layers: int = -1,
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
            gpu_layers=check_whole("gpu_layers", gpu_layers),
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
        self._jobs = Jobs(self.session)

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

        A conversation that is passed as a prompt gives the same tokens.

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
        score: EotScore = self._run(self._jobs.end_of_turn(prompt, end), True)
        return score

    # ---- Texts ----------------------------------------------------------------------------------

    def generate(
        self,
        prompt: AnyPrompt,
        max_tokens: int = 256,
        *,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        min_p: float = 0.0,
        seed: int | None = None,
        stop: str | Sequence[str] | None = None,
        logprobs: int | None = None,
        shape: Any = None,
        sampling: Sampling | None = None,
        speculation: Speculation | None = None,
        cache: CacheOptions | None = None,
        on_text: Callable[[str], Any] | None = None,
        wait: bool | float = True,
    ) -> GenerationResult:
        """Generate a text.

        Parameters
        ----------
        prompt
            A string is trusted text: it gets BOS, and control tokens are read in all of it. A
            :class:`~eliza_ffi.Prompt` gets BOS, too, and holds text that is not trusted. Messages,
            which are mappings with ``role`` and ``content``, are written in the model's chat
            template up to the beginning of the assistant's turn. Their text cannot end a turn.
            Token ids are taken as they are.
        max_tokens
            0 = until the model ends the text or the context is full.
        temperature
            0 = the most probable token at each step.
        top_p, top_k, min_p
            As in :class:`~eliza_ffi.Sampling`.
        seed
            Of the sampling; None = the model's seed.
        stop
            One or more texts that end the generation. They are not part of the result.
        logprobs
            Compute the log-probability of every token, and of this many most probable tokens beside
            it, 0 to 1,024.
        shape
            A JSON Schema, a class, a :class:`~eliza_ffi.Regex`, a :class:`~eliza_ffi.Lark` or a
            :class:`~eliza_ffi.Gbnf` that the text must match, or token masks
            (:class:`~eliza_ffi.structured.Masks`).
        sampling
            All settings of the sampling, instead of the five above.
        speculation
            Guess several tokens at a time. The result is the same.
        cache
            The KV slot, and the types of its cache.
        on_text
            Called with each piece of text.
        wait
            For a slot, if all are in use: seconds at most; True = as long as other requests get
            theirs; False = not at all.

        Raises
        ------
        InvalidArgumentError
            If a setting is out of range or given twice.
        ChatTemplateError
            If the prompt is messages, and the model has no chat template or its template rejects
            them.
        ContextFullError
            If the prompt does not fit into the context.
        BusyError
            If there was no slot in time.
        """
        work = self._jobs.text(
            prompt,
            method="generate",
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            min_p=min_p,
            seed=seed,
            stop=stop,
            logprobs=logprobs,
            shape=shape,
            sampling=sampling,
            speculation=speculation,
            cache=cache,
            on_text=on_text,
        )
        found: GenerationResult = self._run(work, wait, on_text)
        return found

    def stream(
        self,
        prompt: AnyPrompt,
        max_tokens: int = 256,
        *,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        min_p: float = 0.0,
        seed: int | None = None,
        stop: str | Sequence[str] | None = None,
        logprobs: int | None = None,
        shape: Any = None,
        sampling: Sampling | None = None,
        speculation: Speculation | None = None,
        cache: CacheOptions | None = None,
        wait: bool | float = True,
    ) -> TextStream:
        """Yield the text piece by piece; parameters and errors as :meth:`generate`.

        At the end, :attr:`TextStream.result` has the finish reason, the tokens and the statistics.
        If the context is full before the first piece, the request may be run again, see
        :class:`Model`. Afterwards the text ends where the context is full.
        """
        work = self._jobs.text(
            prompt,
            method="stream",
            is_told=True,
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            min_p=min_p,
            seed=seed,
            stop=stop,
            logprobs=logprobs,
            shape=shape,
            sampling=sampling,
            speculation=speculation,
            cache=cache,
        )
        return TextStream(self.session.steps(work, wait))

    def generate_many(
        self,
        prompts: Iterable[AnyPrompt],
        max_tokens: int = 256,
        *,
        progress: Callable[[int, int | None], Any] | None = None,
        max_concurrency: int | None = None,
        return_exceptions: bool = False,
        **settings: Unpack[TextSettings],
    ) -> list[GenerationResult]:
        """Generate a text for each prompt, as many at once as there are slots.

        Parameters
        ----------
        prompts
            Each as in :meth:`generate`. They are read as they are needed.
        progress
            Called with the number of finished prompts and the number of all, None if unknown.
        max_concurrency
            How many run together; None = as many as the model has slots.
        return_exceptions
            Return the error of a prompt in its place. Otherwise the first error is raised, after
            all other requests have been cancelled.
        max_tokens, **settings
            As :meth:`generate`.

        Returns
        -------
        list of GenerationResult
            In the order of the prompts.
        """

        def job(prompt: AnyPrompt) -> Job[GenerationResult]:
            return self._job(
                self._jobs.text(prompt, method="generate_many", max_tokens=max_tokens, **settings),
                settings.get("on_text"),
            )

        check_prompts(prompts, "generate")
        return self._many(prompts, job, progress, max_concurrency, return_exceptions)

    # ---- Choices --------------------------------------------------------------------------------

    @overload
    def choose(
        self,
        prompt: AnyPrompt,
        labels: Mapping[str, V] | LabelSet[V] | type[V],
        *,
        mode: ChoiceMode = ...,
        temperature: float = ...,
        probabilities: bool = ...,
        tokenization: Tokenization = ...,
        heal_prompt: bool = ...,
        max_tokens: int = ...,
        sampling: Sampling | None = ...,
        seed: int | None = ...,
        cache: CacheOptions | None = ...,
        on_text: Callable[[str], Any] | None = ...,
        wait: bool | float = ...,
    ) -> ChoiceResult[V]: ...

    @overload
    def choose(
        self,
        prompt: AnyPrompt,
        labels: Strings,
        *,
        mode: ChoiceMode = ...,
        temperature: float = ...,
        probabilities: bool = ...,
        tokenization: Tokenization = ...,
        heal_prompt: bool = ...,
        max_tokens: int = ...,
        sampling: Sampling | None = ...,
        seed: int | None = ...,
        cache: CacheOptions | None = ...,
        on_text: Callable[[str], Any] | None = ...,
        wait: bool | float = ...,
    ) -> ChoiceResult[str]: ...

    @overload
    def choose(
        self,
        prompt: AnyPrompt,
        labels: Any,
        *,
        mode: ChoiceMode = ...,
        temperature: float = ...,
        probabilities: bool = ...,
        tokenization: Tokenization = ...,
        heal_prompt: bool = ...,
        max_tokens: int = ...,
        sampling: Sampling | None = ...,
        seed: int | None = ...,
        cache: CacheOptions | None = ...,
        on_text: Callable[[str], Any] | None = ...,
        wait: bool | float = ...,
    ) -> ChoiceResult[Any]: ...

    def choose(
        self,
        prompt: AnyPrompt,
        labels: Any,
        *,
        mode: ChoiceMode = "greedy",
        temperature: float = 1.0,
        probabilities: bool = False,
        tokenization: Tokenization = "own",
        heal_prompt: bool = False,
        max_tokens: int = 0,
        sampling: Sampling | None = None,
        seed: int | None = None,
        cache: CacheOptions | None = None,
        on_text: Callable[[str], Any] | None = None,
        wait: bool | float = True,
    ) -> ChoiceResult[Any]:
        """Choose one of several known labels.

        Parameters
        ----------
        prompt
            The text before the label, as in :meth:`generate`. After messages, the label is the
            beginning of the assistant's turn.
        labels
            Distinct non-empty strings; an enum class, whose members are spelled by their values if
            these are strings, otherwise by their names; a mapping from labels to values; ``bool``,
            spelled ``true`` and ``false``; a ``Literal[...]``; the result of
            :meth:`prepare_labels`.
        mode
            ``"greedy"`` = the most probable token at each step; ``"sample"`` = sampled;
            ``"best"`` = the label with the highest probability.
        temperature
            Of ``mode="sample"``.
        probabilities
            Compute the probability of every label. It usually takes one more forward pass.
        tokenization
            ``"own"`` = each label has the tokens that the tokenizer gives it alone; ``"any"`` = a
            label may be spelled with any tokens, as under a grammar.
        heal_prompt
            With ``tokenization="any"``: the prompt's last token may be spelled anew, together with
            the label.
        max_tokens
            0 = no limit. A choice that does not end within the limit is an error.
        sampling, seed, cache, on_text, wait
            As :meth:`generate`.

        Raises
        ------
        InvalidArgumentError
            If there are no labels, two are the same, the tokenizer cannot spell one, or
            `max_tokens` ends the generation inside a label.
        ContextFullError
            If the prompt or the label does not fit into the context.
        NotSupportedError
            If the library has no token-trie sampler.
        BusyError, ChatTemplateError
            As :meth:`generate`.
        """
        work = self._jobs.choice(
            prompt,
            labels,
            method="choose",
            mode=mode,
            temperature=temperature,
            probabilities=probabilities,
            tokenization=tokenization,
            heal_prompt=heal_prompt,
            max_tokens=max_tokens,
            sampling=sampling,
            seed=seed,
            cache=cache,
            on_text=on_text,
        )
        found: ChoiceResult[Any] = self._run(work, wait, on_text)
        return found

    @overload
    def prepare_labels(
        self, labels: Mapping[str, V] | LabelSet[V] | type[V]
    ) -> PreparedLabels[V]: ...

    @overload
    def prepare_labels(self, labels: Strings) -> PreparedLabels[str]: ...

    @overload
    def prepare_labels(self, labels: Any) -> PreparedLabels[Any]: ...

    def prepare_labels(self, labels: Any) -> PreparedLabels[Any]:
        """Cut labels into tokens once, for any number of choices.

        :meth:`choose` keeps the tokens of the last label sets, and finds them by comparing all
        texts. With thousands of labels this takes longer than a choice. Prepared labels are found
        at once.

        Parameters
        ----------
        labels
            As :meth:`choose`.

        Returns
        -------
        PreparedLabels
            For this model alone. As long as they live, the library keeps about 40 bytes for each
            token.

        Raises
        ------
        InvalidArgumentError
            If there are no labels, two are the same, or the tokenizer cannot spell one.
        """
        _ = self.session.ctx  # is it open, and ours?
        return PreparedLabels(as_label_set(labels), self.session.choices)

    def choose_many(
        self,
        prompts: Iterable[AnyPrompt],
        labels: Any,
        *,
        progress: Callable[[int, int | None], Any] | None = None,
        max_concurrency: int | None = None,
        return_exceptions: bool = False,
        **settings: Unpack[ChoiceSettings],
    ) -> list[ChoiceResult[Any]]:
        """Choose a label for each prompt, as many at once as there are slots.

        Parameters
        ----------
        prompts
            Each as in :meth:`generate`. They are read as they are needed.
        labels
            One set for all prompts, in any form that :meth:`choose` takes, or an iterable with one
            set for each prompt.
        progress, max_concurrency, return_exceptions
            As :meth:`generate_many`.
        **settings
            As :meth:`choose`.

        Returns
        -------
        list of ChoiceResult
            In the order of the prompts.
        """

        def job(item: tuple[AnyPrompt, Any]) -> Job[ChoiceResult[Any]]:
            work = self._jobs.choice(*item, method="choose_many", **settings)
            return self._job(work, settings.get("on_text"))

        check_prompts(prompts, "choose")
        return self._many(
            labels_for(prompts, labels),
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
        cache: CacheOptions | None = None,
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
        cache
            As :meth:`generate`.

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
            stream={} if cache is None else {"cache": cache},
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
        cache: CacheOptions | None = None,
    ) -> list[Decision]:
        """Answer the same questions about many inputs.

        Parameters
        ----------
        inputs
            Each as in :meth:`decide`; read as far as there is room for.
        questions, labels, orders, prompt, scoring, calibration, option_mass, abstain_below, cache
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
            stream={} if cache is None else {"cache": cache},
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
        prompt: AnyPrompt,
        shape: type[T],
        *,
        on_span: Callable[[Any], Any] | None = ...,
        wait: bool | float = ...,
        **settings: Unpack[FillSettings],
    ) -> ShapedResult[T]: ...

    @overload
    def fill(
        self,
        prompt: AnyPrompt,
        shape: Regex | Lark,
        *,
        on_span: Callable[[Any], Any] | None = ...,
        wait: bool | float = ...,
        **settings: Unpack[FillSettings],
    ) -> ShapedResult[str]: ...

    @overload
    def fill(
        self,
        prompt: AnyPrompt,
        shape: Mapping[str, Any],
        *,
        on_span: Callable[[Any], Any] | None = ...,
        wait: bool | float = ...,
        **settings: Unpack[FillSettings],
    ) -> ShapedResult[Any]: ...

    @overload
    def fill(
        self,
        prompt: AnyPrompt,
        shape: Fillable,
        *,
        on_span: Callable[[Any], Any] | None = ...,
        wait: bool | float = ...,
        **settings: Unpack[FillSettings],
    ) -> FillResult: ...

    def fill(
        self,
        prompt: AnyPrompt,
        shape: Any,
        *,
        on_span: Callable[[Any], Any] | None = None,
        wait: bool | float = True,
        **settings: Unpack[FillSettings],
    ) -> Any:
        """Write an answer of a given shape.

        Parameters
        ----------
        prompt
            The text before the answer, as in :meth:`generate`.
        shape
            A JSON Schema as a dict; a class (pydantic, dataclass, typed dictionary), of which an
            object is returned; a :class:`~eliza_ffi.Regex` or :class:`~eliza_ffi.Lark`. Or a
            :class:`~eliza_ffi.Skeleton` or its JSON form.
        on_span
            Called with each field of a shape, a :class:`~eliza_ffi.FieldFill`, or each span of a
            skeleton, a :class:`~eliza_ffi.SpanFill`, when it has been written.
        wait
            As :meth:`generate`.
        **settings
            ``max_tokens``: of the whole answer (1,024); 0 = no limit except the context's.
            ``on_limit``: an answer that does not end within them is an ``"error"``, or with
            ``"close"`` it is brought to a short valid end if one is known. ``retries``: how often
            an answer that is not valid is tried again, with sampling (0). ``temperature``,
            ``top_k`` and ``top_p`` sample the answer; the default is greedy. ``cache``: as in
            :meth:`generate`. For skeletons and closed schemas: ``sampler_plan``, how single spans
            are sampled; ``logprobs``, compute the probability of free values, too;
            ``heal_prompt``, the prompt's last token may be spelled anew, together with the answer.

        Returns
        -------
        FillResult
            For a shape, a :class:`~eliza_ffi.ShapedResult` with a valid value.

        Raises
        ------
        FillError
            If the answer does not end within `max_tokens` or the context. Its `partial` is what was
            written.
        InvalidAnswerError
            If the answer is not valid against its schema or class. It is a FillError.
        InvalidArgumentError
            If the shape or a setting is malformed.
        NotSupportedError
            If the library cannot fill skeletons, or an extra that is needed is not installed.
        BusyError, ChatTemplateError
            As :meth:`generate`.
        """
        check_callback("on_span", on_span)
        is_told = on_span is not None
        work = self._jobs.fill(prompt, shape, method="fill", is_told=is_told, **settings)
        return self._run(work, wait, on_span)

    @overload
    def fill_stream(
        self,
        prompt: AnyPrompt,
        shape: type[T],
        *,
        wait: bool | float = ...,
        **settings: Unpack[FillSettings],
    ) -> Iterator[FieldFill | ShapedResult[T]]: ...

    @overload
    def fill_stream(
        self,
        prompt: AnyPrompt,
        shape: Any,
        *,
        wait: bool | float = ...,
        **settings: Unpack[FillSettings],
    ) -> Iterator[SpanFill | FieldFill | FillResult]: ...

    def fill_stream(
        self,
        prompt: AnyPrompt,
        shape: Any,
        *,
        wait: bool | float = True,
        **settings: Unpack[FillSettings],
    ) -> Iterator[Any]:
        """Yield each field of a shape, or span of a skeleton, and finally the result.

        Parameters and errors as :meth:`fill`, without ``retries``.
        """
        work = self._jobs.fill(prompt, shape, method="fill_stream", is_told=True, **settings)
        return self.session.steps(work, wait)

    def fill_many(
        self,
        prompts: Iterable[AnyPrompt],
        shape: Any,
        *,
        progress: Callable[[int, int | None], Any] | None = None,
        max_concurrency: int | None = None,
        return_exceptions: bool = False,
        **settings: Unpack[FillSettings],
    ) -> list[FillResult]:
        """Write an answer for each prompt, as many at once as there are slots.

        Parameters
        ----------
        prompts
            Each as in :meth:`generate`. They are read as they are needed.
        shape, **settings
            As :meth:`fill`.
        progress, max_concurrency, return_exceptions
            As :meth:`generate_many`.

        Returns
        -------
        list of FillResult
            In the order of the prompts.
        """

        def job(prompt: AnyPrompt) -> Job[FillResult]:
            work = self._jobs.fill(prompt, shape, method="fill_many", is_told=False, **settings)
            return self._job(work)

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
        **settings: Unpack[ToolSettings],
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
        **settings: Unpack[ToolSettings],
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
        **settings: Unpack[ToolSettings],
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
        **settings
            ``temperature``, ``top_k``, ``top_p`` and ``seed`` sample the arguments and the answer
            in words; without them these are greedy. The tool is always the most probable one.
            ``cache`` is as in :meth:`generate`.

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
        work = self._jobs.tools(
            messages,
            tools,
            choice,
            variables=variables,
            max_tokens=max_tokens,
            method="call_tool",
            **settings,
        )
        return one_call(self._run(work, wait))

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
        **settings: Unpack[ToolSettings],
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
        **settings: Unpack[ToolSettings],
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
        **settings: Unpack[ToolSettings],
    ) -> ToolCalls | TextAnswer:
        """Call several tools in one turn, or answer in words.

        After each call, another one follows if the model goes on with one more probably than not.
        If the model's format has one call in a turn, there is one.

        Parameters
        ----------
        messages, tools, choice, variables, wait, **settings
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
        work = self._jobs.tools(
            messages,
            tools,
            choice,
            max_calls=max_calls,
            variables=variables,
            max_tokens=max_tokens,
            method="call_tools",
            **settings,
        )
        found: ToolCalls | TextAnswer = self._run(work, wait)
        return found

    # ---- Prompts on disk ------------------------------------------------------------------------

    def save(
        self,
        path: str | os.PathLike[str],
        prompt: AnyPrompt,
        *,
        cache: CacheOptions | None = None,
        wait: bool | float = True,
    ) -> int:
        """Write a prompt's tokens and their KV cache to a file, so that no one decodes them again.

        Tokens that a slot holds are not decoded: to keep a conversation, save the tokens of its
        prompt and those that were generated.

        Parameters
        ----------
        path
            The file, which is written whole or not at all.
        prompt
            As :meth:`generate`. A text that is to be continued should end where a token does, for
            example after a line or a special token.
        cache, wait
            As :meth:`generate`.

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
        saved: int = self._run(self._jobs.save(path, prompt, cache), wait)
        return saved

    def restore(
        self,
        path: str | os.PathLike[str],
        *,
        cache: CacheOptions | None = None,
        wait: bool | float = True,
    ) -> int:
        """Read a file of :meth:`save` into a free slot, for prompts that begin with its tokens.

        Later requests are asked with their whole prompts, and only what the file does not hold is
        decoded. Another prompt may take the slot later.

        Parameters
        ----------
        path
            The file.
        cache
            The slot, and the cache types that the file was saved with; None = any free slot.
        wait
            As :meth:`generate`.

        Returns
        -------
        int
            How many tokens the file holds.

        Raises
        ------
        NativeFault
            If the file cannot be read, is damaged, or is of another model, adapter, KV cache type
            or version of llama.cpp.
        ContextFullError
            If it holds more tokens than the context has room for.
        NotSupportedError
            If the library cannot restore slots.
        """
        restored: int = self._run(self._jobs.restore(path, cache), wait)
        return restored

    # ---- Requests -------------------------------------------------------------------------------

    def _run(
        self, work: Work[Any], wait: bool | float, tell: Callable[[Any], Any] | None = None
    ) -> Any:
        """Return the result of a request, and call `tell` with each step before it."""
        with closing(self.session.steps(work, wait)) as steps:
            for step in steps:
                if not isinstance(step, STEPS):
                    return step
                if tell is not None:
                    tell(step)
        raise AssertionError("the last step is the result")

    def _job(self, work: Work[Any], tell: Callable[[Any], Any] | None = None) -> RunJob[Any]:
        return RunJob(lambda: self._run(work, True, tell), work.cancel)

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
