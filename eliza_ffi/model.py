"""The synchronous model: generate text, choose labels, decide, fill structures, call tools."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

import numpy as np
from numpy.typing import NDArray

from .chat.prompt import Prompt
from .chat.template import ChatTemplate, Messages
from .checks import (
    check_callback,
    check_kind,
    check_several,
    check_whole,
    suggest_keywords,
    wrong,
)
from .choices.label_set import ChoiceResult, LabelSet, as_label_set
from .choices.prepared_labels import PreparedLabels
from .choices.rank_result import RankResult
from .decisions.answers import Decision
from .decisions.deciding import DecideSettings, plan_of
from .decisions.doubts import Doubts
from .decisions.prompts import check_one_input
from .decisions.reasoning import decision_task, inputs_at_once
from .hub import hub_path
from .library.binding import CffiBinding, EotScore
from .library.loading import Library
from .library.protocol import Tokens
from .sampling.params import Sampling
from .session.batches import kept_or_raised, labels_for, length_of, run_many
from .session.options import AnyPrompt, CacheOptions, ChoiceMode, Speculation, Tokenization
from .session.requests import MOST_TOKENS, Fillable, check_prompts, lora_option
from .session.results import GenerationResult, TokenLogprob
from .session.run import Run
from .session.runs import (
    choice_run,
    end_of_turn_run,
    fill_run,
    hidden_states_run,
    load_run,
    prompt_logprobs_run,
    rank_run,
    save_run,
    text_run,
    tools_run,
)
from .session.session import Session
from .session.task import Task
from .session.text_stream import TextStream
from .session.tool_calls import MOST_CALLS, TextAnswer, ToolCall, ToolCalls, one_call
from .structured.fill_result import FilledSpan, FillResult, PartialField, StructuredResult
from .structured.shape import Lark, Regex
from .structured.token_texts import TokenTexts

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .session.options import (
        ChoiceSettings,
        FillSettings,
        RankSettings,
        StreamSettings,
        Strings,
        TextSettings,
    )
    from .session.tool_calls import ToolSettings

__all__ = ["Model"]

R = TypeVar("R")
T = TypeVar("T")
V = TypeVar("V")


logger = logging.getLogger("eliza_ffi")


@suggest_keywords
class Model:
    """Load a language model from a GGUF file.

    Parameters
    ----------
    path
        A ``.gguf`` file, a folder with a model, or the name of a model on Hugging Face:
        ``"org/repo"``, ``"org/repo:Q4_K_M"`` or ``"hf://org/repo/file.gguf"``. An existing file or
        folder always wins over a repository. A model that is in no cache is downloaded, which
        requires the extra ``hub``. None = the embedded model.
    library
        The shared library to use; None = search for it, see
        :func:`~eliza_ffi.library.find_library`.
    n_ctx
        Size of the KV cache in tokens, shared by all slots; 0 = the length that the model was
        trained for, at most 8192.
    n_slots
        Maximum number of generations that run at the same time, 1 to 64; None = 8. Further requests
        wait.
    n_threads
        Number of compute threads, at most one per CPU; 0 = choose a number for each forward pass,
        at most the number of physical cores.
    n_gpu_layers
        How many layers run on a GPU; -1 = all.
    seed
        The sampling seed of every generation, 32 bits. With a seed, the same prompt gives the same
        text every time. None = a random seed for each generation.
    lora
        LoRA adapters, as pairs of a GGUF file and a scale.
    progress
        Called with a stage (``"download"``, ``"load"`` or ``"prefill"``) and the fraction done, 0
        to 1. To call it about twice a second, the library splits long prompts into shorter forward
        passes.
    options
        Further options of the library by name; the C header lists them.

    Raises
    ------
    LibraryNotFoundError, LibraryLoadError
        If no usable library is found.
    ModelError
        If `path` is not a usable model, names several models, or cannot be downloaded.
    NotSupportedError
        If the model must be downloaded and the extra ``hub`` is not installed.
    InvalidArgumentError
        If an option is out of range.

    See Also
    --------
    eliza_ffi.AsyncModel : the same methods for an event loop.

    Notes
    -----
    **Threads and slots.** Several threads can use one model at the same time. Their generations
    share forward passes, and a shared pass costs little more than a pass for one generation. Each
    generation occupies a slot. If all slots are in use, further requests wait in order. A waiting
    request raises :class:`~eliza_ffi.errors.BusyError` when no request has begun or ended for 30
    seconds; the option ``slot_wait_ms`` changes that limit. Requests that name a slot
    (:class:`~eliza_ffi.CacheOptions`) wait for that slot, and requests for other slots overtake
    them. A :meth:`stream` that is neither read to its end nor closed keeps its slot.

    **A full context.** All slots share the KV cache. If a request does not fit because other
    requests fill the cache, it runs again after they have ended. It cannot run again if an iterator
    or a callback has already received a part of its answer; then it raises
    :class:`~eliza_ffi.errors.ContextFullError`, or :class:`~eliza_ffi.errors.FillError` with the
    partial answer. There are two exceptions. If the context becomes full after :meth:`generate` or
    :meth:`stream` has produced some text, the text ends there, with the finish reason
    ``"context_full"``. A :meth:`load_prompt_cache`, or a request with ``timeout=0``, raises the
    error at once.

    **Closing.** Close the model, or use it in a ``with`` statement. Closing cancels the generations
    that are still running. A forked process cannot use its parent's model: open the model in the
    child process.
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

    @classmethod
    def from_pretrained(cls, repo_id: str, filename: str | None = None, **more: Any) -> Model:
        """Load a model from a repository on Hugging Face, or from a cache.

        Parameters
        ----------
        repo_id
            The repository, such as ``"org/repo"``.
        filename
            The file's path in the repository, or a pattern such as ``"*Q4_K_M.gguf"`` that matches
            one model; None = Q4_K_M, then Q8_0, then the only model.
        **more
            Further arguments of the class.
        """
        return cls(hub_path(repo_id, filename), **more)

    def close(self) -> None:
        """Free the model and cancel running generations. Closing twice is harmless."""
        self.session.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> str:
        raise TypeError("an open model cannot be copied or pickled: pass the path of its file")

    def __repr__(self) -> str:
        return f"Model({self.session})"

    @property
    def path(self) -> str:
        """The path of the model file or bundle."""
        return self.session.path

    @property
    def binding(self) -> CffiBinding:
        """The functions of the native library."""
        return self.session.binding

    # ---- Facts and tokens -----------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """Return facts about the library and the model."""
        return self.session.describe()

    def tokenize(
        self, text: str, add_special: bool = False, parse_special: bool = False
    ) -> list[int]:
        """Convert text to token ids.

        By default, the text is treated as the plain continuation of other text: it gets no BOS
        token, and control tokens are not recognized in it. To tokenize a prompt, use
        :meth:`prompt_tokens`.

        Parameters
        ----------
        text
            A string.
        add_special
            Add the tokens that the model expects at the beginning and the end of its input, such as
            BOS.
        parse_special
            Convert the text of a control token, such as ``<|im_start|>``, to that control token.
        """
        return self.session.tokenize(text, add_special, parse_special)

    def prompt_tokens(self, prompt: str | Prompt) -> list[int]:
        """Convert a prompt to token ids.

        ``choose(prompt)`` gives the same result as ``choose(prompt_tokens(prompt))``, unless the
        prompt ends with spaces: in a prompt of text they become a part of the labels.

        Parameters
        ----------
        prompt
            A string or a :class:`~eliza_ffi.chat.Prompt`. Control tokens are recognized everywhere
            in a string, but not in the plain text of a ``Prompt``. The BOS token is added if the
            model expects it and the prompt does not begin with it.
        """
        return self.session.prompt_tokens(prompt)

    def detokenize(self, tokens: Tokens, unparse_special: bool = False) -> str:
        """Convert token ids to text; special tokens are left out unless `unparse_special`."""
        return self.session.detokenize(tokens, unparse_special)

    def vocabulary(self) -> TokenTexts:
        """Return the text of every token of the vocabulary, for code that computes token masks."""
        return self.session.vocabulary()

    @property
    def chat_template(self) -> ChatTemplate:
        """The model's chat template; raises `ChatTemplateError` if the model has none."""
        return self.session.chat().template

    def chat_tokens(self, messages: Messages, **more: Any) -> list[int]:
        """Write a conversation in the model's chat template and convert it to token ids.

        Passing the same conversation as a prompt gives the same tokens.

        Parameters
        ----------
        messages
            The conversation, as in :meth:`~eliza_ffi.chat.ChatTemplate.render`.
        **more
            Further arguments of :meth:`~eliza_ffi.chat.ChatTokenizer.tokens`, such as ``tools``,
            ``enable_thinking`` or ``continue_final_message``.

        Raises
        ------
        ChatTemplateError
            If the model has no template, or its template fails or rejects the messages.
        NotSupportedError
            If the library does not report the template.

        Notes
        -----
        Only the template can write control tokens. If a message contains the text of a control
        token, that text stays plain text; :mod:`eliza_ffi.chat.tokens` explains how, and the
        limits.
        """
        return self.session.chat().tokens(messages, **more)

    def embed(self, text: str | Iterable[str], pooling: str = "mean") -> NDArray[np.float32]:
        """Compute the embedding of a string, or of several strings.

        The vectors have norm 1, so the dot product of two embeddings is their cosine similarity.

        Parameters
        ----------
        text
            A string or an iterable of strings. Each string must have at least one token, and must
            not be longer than the context that the model was trained for. Control tokens are
            treated as plain text.
        pooling
            How the tokens' vectors become one vector: ``"mean"``, ``"cls"`` (the first token) or
            ``"last"`` (the last token).

        Returns
        -------
        array of float32, shape [n_embd], or [n, n_embd] for an iterable
            Vectors with Euclidean norm 1.

        Raises
        ------
        InvalidArgumentError
            If `pooling` is unknown, or a string has no tokens or too many.
        NotSupportedError
            If the library cannot compute embeddings.
        """
        return self._embed(text, pooling)

    def _embed(
        self, text: str | Iterable[str], pooling: str, check: Callable[[], None] | None = None
    ) -> NDArray[np.float32]:
        """Embed one or several strings; `check` is called before each string and may raise."""
        if isinstance(text, str):
            return self.binding.embed(self.session.ctx, text, pooling)
        rows = []
        for each in check_several("text", text, "a string or a list of strings"):
            if check is not None:
                check()
            rows.append(self.binding.embed(self.session.ctx, each, pooling))
        if not rows:
            raise wrong("text", "a string or a non-empty list of strings", rows)
        return np.stack(rows)

    def end_of_turn(self, prompt: str | Prompt | Tokens, end: str | int) -> EotScore:
        """Return the probability that a speaker has finished their turn.

        Parameters
        ----------
        prompt
            The conversation so far in the model's chat format, with the last turn left open: a
            string, a :class:`~eliza_ffi.chat.Prompt` or token ids. Put the spoken text into the
            plain text of a ``Prompt``, because it is not trusted. Tokens that are already in the KV
            cache of a slot are not decoded again.
        end
            The token that ends a turn, or its text, such as ``"<|im_end|>"``.

        Raises
        ------
        InvalidArgumentError
            If `prompt` is empty, or `end` is not a single token of the vocabulary.
        ContextFullError
            If the prompt does not fit into the context.
        NotSupportedError
            If the library cannot score the end of a turn.
        BusyError
            As :meth:`generate`.
        """
        return cast(EotScore, self._result(end_of_turn_run(self.session, prompt, end)))

    def prompt_logprobs(
        self,
        prompt: AnyPrompt,
        top: int = 0,
        *,
        cache: CacheOptions | None = None,
        timeout: float | None = None,
    ) -> tuple[TokenLogprob, ...]:
        """Return the log-probability of each token of a prompt after the tokens before it.

        A forward pass scores as many tokens as fit into a batch.

        Parameters
        ----------
        prompt, cache, timeout
            As :meth:`generate`.
        top
            How many of the most probable tokens at each position to report as well.

        Returns
        -------
        tuple of TokenLogprob
            One item per token, BOS included. The first one has the log-probability nan.

        Raises
        ------
        ContextFullError
            If the prompt does not fit into the context.
        NotSupportedError
            If the library is an older version.
        BusyError, InvalidArgumentError
            As :meth:`generate`.
        """
        run = prompt_logprobs_run(self.session, prompt, top, cache)
        return cast("tuple[TokenLogprob, ...]", self._result(run, timeout))

    def hidden_states(
        self,
        prompt: AnyPrompt,
        layers: Sequence[int] = (-1,),
        n_rows: int = 1,
        *,
        cache: CacheOptions | None = None,
        timeout: float | None = None,
    ) -> NDArray[np.float32]:
        """Return the hidden states of a prompt's last tokens, for example to train a classifier.

        Parameters
        ----------
        prompt, cache, timeout
            As :meth:`generate`.
        layers
            Layer i is the input of the model's block i, counted from 0. The last layer, also -1, is
            the output of the final norm, and -2 the input of the last block. The forward pass stops
            after the deepest of these layers if it has no other requests.
        n_rows
            The number of tokens at the end of the prompt.

        Returns
        -------
        array of float32, shape [len(layers), n_rows, n_embd]
            Not normalized to unit length.

        Raises
        ------
        ContextFullError
            If the prompt does not fit into the context.
        NotSupportedError
            If the library is an older version, or llama.cpp does not name the layers of this
            model's architecture.
        BusyError, InvalidArgumentError
            As :meth:`generate`.
        """
        run = hidden_states_run(self.session, prompt, layers, n_rows, cache)
        return cast("NDArray[np.float32]", self._result(run, timeout))

    # ---- Text -----------------------------------------------------------------------------------

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
        timeout: float | None = None,
    ) -> GenerationResult:
        """Generate text that continues a prompt.

        Parameters
        ----------
        prompt
            There are four kinds of prompts:

            - A string is trusted text. It gets the BOS token, and control tokens are recognized
              everywhere in it.
            - A :class:`~eliza_ffi.Prompt` gets the BOS token, too. Control tokens are recognized
              only in its template text, so it can hold untrusted text.
            - A list of chat messages, mappings with ``role`` and ``content``. They are written in
              the model's chat template, up to the beginning of the assistant's turn. The content of
              a message cannot end its turn.
            - Token ids are used unchanged.
        max_tokens
            Maximum number of tokens to generate; 0 = until the model ends the text or the context
            is full.
        temperature
            Sampling temperature; 0 = take the most probable token at each step.
        top_p, top_k, min_p
            As in :class:`~eliza_ffi.Sampling`.
        seed
            Sampling seed; None = the model's seed.
        stop
            A string or several strings that end the generation. They are not part of the result.
        logprobs
            Report the log-probability of every generated token, and the `logprobs` most probable
            tokens at each position, 0 to 1,024; None = report nothing. In a stream, each piece also
            has them, as its attribute `logprobs`.
        shape
            A JSON Schema, a class, a :class:`~eliza_ffi.Regex`, a :class:`~eliza_ffi.Lark` or a
            :class:`~eliza_ffi.Gbnf` that the text must match, or token masks
            (:class:`~eliza_ffi.structured.Masks`).
        sampling
            All sampling settings in one object, instead of the five arguments above.
        speculation
            Guess several tokens at a time and check them in one forward pass. The result is the
            same.
        cache
            The KV slot to use, and the data types of its KV cache.
        on_text
            Called with each new piece of text.
        timeout
            How many seconds to wait for a slot if all slots are in use; 0 = do not wait. None: as
            long as other requests keep getting slots; see :class:`Model`.

        Raises
        ------
        InvalidArgumentError
            If a setting is out of range or given twice.
        ChatTemplateError
            If the prompt is a list of messages, and the model has no chat template or its template
            rejects the messages.
        ContextFullError
            If the prompt does not fit into the context.
        BusyError
            If no slot became free in time.
        """
        run = text_run(
            self.session,
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
        return cast(GenerationResult, self._result(run, timeout, on_text))

    def stream(
        self,
        prompt: AnyPrompt,
        max_tokens: int = 256,
        *,
        timeout: float | None = None,
        **settings: Unpack[StreamSettings],
    ) -> TextStream:
        """Generate text and yield it piece by piece.

        The parameters and errors are the same as in :meth:`generate`. After the last piece,
        :attr:`TextStream.result` has the finish reason, the tokens and the statistics. If the
        context is full before the first piece, the request may run again; see :class:`Model`. If it
        is full later, the text ends there.
        """
        given: dict[str, Any] = {"max_tokens": max_tokens, **settings}
        run = text_run(self.session, prompt, method="stream", with_steps=True, **given)
        return self._stream(run, timeout)

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
        """Generate text for each of many prompts, several at the same time.

        Parameters
        ----------
        prompts
            An iterable of prompts as in :meth:`generate`. Each is read when a slot is free for it.
        progress
            Called with the number of finished prompts and the total, which is None if unknown.
        max_concurrency
            How many requests run at the same time; None = as many as the model has slots.
        return_exceptions
            If True, the result of a failed prompt is its exception. Otherwise the first failure
            cancels all other requests and is raised; its message names the prompt by its index.
        max_tokens, **settings
            As :meth:`generate`.

        Returns
        -------
        list of GenerationResult
            In the order of the prompts.
        """

        def task(prompt: AnyPrompt) -> Task[GenerationResult]:
            run = text_run(
                self.session, prompt, method="generate_many", max_tokens=max_tokens, **settings
            )
            return Task(self.session, run, on_step=settings.get("on_text"))

        check_prompts(prompts, "generate")
        return self._many(prompts, task, progress, max_concurrency, return_exceptions)

    # ---- Labels ---------------------------------------------------------------------------------

    @overload
    def choose(
        self,
        prompt: AnyPrompt,
        labels: Mapping[str, V] | LabelSet[V] | type[V],
        *,
        timeout: float | None = ...,
        **settings: Unpack[ChoiceSettings],
    ) -> ChoiceResult[V]: ...

    @overload
    def choose(
        self,
        prompt: AnyPrompt,
        labels: Strings,
        *,
        timeout: float | None = ...,
        **settings: Unpack[ChoiceSettings],
    ) -> ChoiceResult[str]: ...

    @overload
    def choose(
        self,
        prompt: AnyPrompt,
        labels: Any,
        *,
        timeout: float | None = ...,
        **settings: Unpack[ChoiceSettings],
    ) -> ChoiceResult[Any]: ...

    def choose(
        self,
        prompt: AnyPrompt,
        labels: Any,
        *,
        mode: ChoiceMode | None = None,
        temperature: float = 1.0,
        probabilities: bool = False,
        tokenization: Tokenization = "canonical",
        heal_prompt: bool = False,
        max_tokens: int = 0,
        sampling: Sampling | None = None,
        seed: int | None = None,
        think: int = 0,
        cache: CacheOptions | None = None,
        on_text: Callable[[str], Any] | None = None,
        timeout: float | None = None,
    ) -> ChoiceResult[Any]:
        """Choose one of several known labels.

        Parameters
        ----------
        prompt
            The prompt, as in :meth:`generate`. The label follows it directly. After chat messages,
            the label is the beginning of the assistant's turn.
        labels
            One of the following:

            - a list of distinct non-empty strings, or a ``Literal[...]``
            - an enum class; a member's label is its value if that is a string, otherwise its name
            - a mapping from labels to values
            - ``bool``, with the labels ``true`` and ``false``
            - the result of :meth:`prepare_labels`
        mode
            ``"best"``: take the label with the highest probability as a whole. ``"greedy"``: take
            the most probable token at each step, as a grammar does; the label may be less probable
            than another one. ``"sample"``: sample each token. None = ``"best"``, with two
            exceptions that use ``"greedy"``: `tokenization` is ``"any"`` together with
            `heal_prompt` or `max_tokens`, or the library does not support ``"best"``.
        temperature
            The sampling temperature of ``mode="sample"``. Other modes accept only 0 and 1.
        probabilities
            Also compute the probability of every label. With few labels, this usually takes no
            more forward passes; with thousands, it takes many more.
        tokenization
            ``"canonical"``: a label is written with the tokens that the tokenizer gives for the
            label on its own. ``"any"``: a label may be written with any tokens that spell it, as
            under a grammar. In mode ``"best"`` its probability is then the sum over all its
            spellings. If the result is proven, this probability is at most 0.001 too low. The
            result has no `tokens`.
        heal_prompt
            With ``tokenization="any"``, remove the prompt's last token, and let the model write the
            text of this token again, together with the label's beginning.
        max_tokens
            Maximum number of tokens in a label; 0 = no limit. If a label does not end within the
            limit, the call raises an error.
        think
            Let the model write up to this many tokens of reasoning before the label, in the format
            of its chat template, or between ``<think>`` and ``</think>``. It takes the most
            probable tokens, unless `sampling` says otherwise. The probability of a label is then
            its probability after this reasoning.
        sampling, seed, cache, on_text, timeout
            As :meth:`generate`.

        Raises
        ------
        InvalidArgumentError
            If `labels` is empty, two labels are equal, the tokenizer cannot write a label, or
            `max_tokens` ends the generation inside a label.
        ContextFullError
            If the prompt or the label does not fit into the context.
        NotSupportedError
            If the library has no token-trie sampler.
        BusyError, ChatTemplateError
            As :meth:`generate`.
        """
        run = choice_run(
            self.session,
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
            think=think,
            cache=cache,
            on_text=on_text,
        )
        return cast(ChoiceResult[Any], self._result(run, timeout, on_text))

    @overload
    def prepare_labels(
        self, labels: Mapping[str, V] | LabelSet[V] | type[V]
    ) -> PreparedLabels[V]: ...

    @overload
    def prepare_labels(self, labels: Strings) -> PreparedLabels[str]: ...

    @overload
    def prepare_labels(self, labels: Any) -> PreparedLabels[Any]: ...

    def prepare_labels(self, labels: Any) -> PreparedLabels[Any]:
        """Tokenize labels once, for any number of calls of :meth:`choose`.

        :meth:`choose` caches the tokens of recent label sets, and compares all labels to find a set
        in the cache. With thousands of labels, the comparison takes longer than the choice.
        Prepared labels need no comparison.

        Parameters
        ----------
        labels
            As :meth:`choose`.

        Returns
        -------
        PreparedLabels
            The labels, for use with this model only. The library keeps about 40 bytes per token
            until the object is freed.

        Raises
        ------
        InvalidArgumentError
            If `labels` is empty, two labels are equal, or the tokenizer cannot write a label.
        """
        _ = self.session.ctx  # raises if the model is closed or belongs to the parent process
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
        """Choose a label for each of many prompts, several at the same time.

        Parameters
        ----------
        prompts, progress, max_concurrency, return_exceptions
            As :meth:`generate_many`.
        labels
            One label set for all prompts, in any form that :meth:`choose` takes, or an iterable
            with one label set per prompt.
        **settings
            As :meth:`choose`.

        Returns
        -------
        list of ChoiceResult
            In the order of the prompts.
        """

        def task(item: tuple[AnyPrompt, Any]) -> Task[ChoiceResult[Any]]:
            run = choice_run(self.session, *item, method="choose_many", **settings)
            return Task(self.session, run, on_step=settings.get("on_text"))

        check_prompts(prompts, "choose")
        return self._many(
            labels_for(prompts, labels),
            task,
            progress,
            max_concurrency,
            return_exceptions,
            total=length_of(prompts),
        )

    @overload
    def rank(
        self,
        prompt: AnyPrompt,
        labels: Mapping[str, V] | LabelSet[V] | type[V],
        k: int = ...,
        *,
        separator: str | None = ...,
        level: None = ...,
        max_passes: int | None = ...,
        tokenization: Tokenization = ...,
        think: int = ...,
        cache: CacheOptions | None = ...,
        timeout: float | None = ...,
    ) -> RankResult[V]: ...

    @overload
    def rank(
        self,
        prompt: AnyPrompt,
        labels: Strings,
        k: int = ...,
        *,
        separator: str | None = ...,
        level: int | None = ...,
        max_passes: int | None = ...,
        tokenization: Tokenization = ...,
        think: int = ...,
        cache: CacheOptions | None = ...,
        timeout: float | None = ...,
    ) -> RankResult[str]: ...

    @overload
    def rank(
        self,
        prompt: AnyPrompt,
        labels: Any,
        k: int = ...,
        *,
        separator: str | None = ...,
        level: int | None = ...,
        max_passes: int | None = ...,
        tokenization: Tokenization = ...,
        think: int = ...,
        cache: CacheOptions | None = ...,
        timeout: float | None = ...,
    ) -> RankResult[Any]: ...

    def rank(
        self,
        prompt: AnyPrompt,
        labels: Any,
        k: int = 5,
        *,
        separator: str | None = None,
        level: int | None = None,
        max_passes: int | None = None,
        tokenization: Tokenization = "canonical",
        think: int = 0,
        cache: CacheOptions | None = None,
        timeout: float | None = None,
    ) -> RankResult[Any]:
        """Find the `k` most probable labels and their exact probabilities.

        The probability of a label is the product, over its tokens, of the softmax over the tokens
        that can continue a label. So no label is more probable than its beginning. The search reads
        the most probable beginnings first, and ends when no unread beginning is more probable than
        the `k`-th label found. It usually needs a few forward passes, even for 100,000 labels.

        Parameters
        ----------
        prompt, labels
            As :meth:`choose`.
        k
            How many labels to return.
        separator
            The text between the parts of labels such as ``Electronics > Audio``. The result then
            has `levels`.
        level
            Rank the groups of labels that have the same first `level` parts, instead of the labels.
            The labels of the result are then strings such as ``Electronics``.
        max_passes
            Maximum number of forward passes after the prompt; None = as many as the proof needs. If
            the limit ends the search, the result has the labels found, and `proven` is False.
        tokenization
            ``"canonical"`` or ``"any"``, as in :meth:`choose`. With ``"any"``, the probability of a
            label is the sum over all its spellings: `probabilities` are at most 0.001 too low if
            the result is proven, and `max_passes` is 100 unless it is given.
        think
            As :meth:`choose`.
        cache, timeout
            As :meth:`generate`.

        Raises
        ------
        InvalidArgumentError
            If `labels` is empty, two labels are equal, the tokenizer cannot write a label, or no
            label has `level` parts.
        ContextFullError
            If the prompt with the longest label does not fit into the context.
        BusyError, ChatTemplateError
            As :meth:`generate`.
        """
        run = rank_run(
            self.session,
            prompt,
            labels,
            method="rank",
            k=k,
            separator=separator,
            level=level,
            max_passes=max_passes,
            tokenization=tokenization,
            think=think,
            cache=cache,
        )
        return cast(RankResult[Any], self._result(run, timeout))

    def rank_many(
        self,
        prompts: Iterable[AnyPrompt],
        labels: Any,
        *,
        progress: Callable[[int, int | None], Any] | None = None,
        max_concurrency: int | None = None,
        return_exceptions: bool = False,
        **settings: Unpack[RankSettings],
    ) -> list[RankResult[Any]]:
        """Rank labels for each of many prompts, several at the same time.

        Parameters
        ----------
        prompts, labels, progress, max_concurrency, return_exceptions
            As :meth:`choose_many`.
        **settings
            As :meth:`rank`.

        Returns
        -------
        list of RankResult
            In the order of the prompts.
        """

        def task(item: tuple[AnyPrompt, Any]) -> Task[RankResult[Any]]:
            return Task(self.session, rank_run(self.session, *item, method="rank_many", **settings))

        check_prompts(prompts, "rank")
        return self._many(
            labels_for(prompts, labels),
            task,
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
        timeout: float | None = None,
        **settings: Unpack[DecideSettings],
    ) -> Decision:
        """Answer typed questions about an input, with a probability for every answer.

        Tokens that a prompt has in common with an earlier one are not decoded again.

        Parameters
        ----------
        input
            A string, a conversation (a sequence of messages), or other JSON. The model sees it as
            plain text: it cannot end a turn. A list of strings is rejected, because it usually
            means several inputs; pass several inputs to :meth:`decide_many`. A tuple of strings is
            one input.
        questions
            A mapping from names to questions, or a list of questions, at most 400. A question is a
            :class:`~eliza_ffi.decisions.Predicate`, :class:`~eliza_ffi.decisions.Choice`,
            :class:`~eliza_ffi.decisions.Score` or :class:`~eliza_ffi.decisions.MultiLabel`, or a
            mapping in the format of ``/v1/decisions`` or ``/v1/systemone``.
        timeout
            As :meth:`generate`.

        Other Parameters
        ----------------
        prompt_order : str
            ``"question-first"`` or ``"input-first"``. ``"auto"``, the default, takes the order that
            reads fewer tokens; :mod:`eliza_ffi.decisions.prompt_settings` has the rule. The two
            orders give different probabilities.
        prompt_format : str
            ``"chat"``, the model's chat template, or ``"plain"``, text that the model continues.
            ``"auto"``, the default, measures once whether the model answers in its chat format.
        examples : iterable
            Inputs with their right answers, which the prompts show before the input: pairs of an
            input and a mapping from question names to answers, or for a single question the answer
            itself.
        prior : str
            ``"options"``: divide the probabilities by their mean over inputs that favour no option
            (:mod:`eliza_ffi.decisions.option_prior`). ``"none"``: leave them as they are.
            ``"auto"``, the default: ``"options"`` for plain prompts. The path of a
            calibration that ``prior="inputs"`` of :meth:`decide_many` has fitted means the
            same as `calibration`.
        labels : str
            How the model names an option: with its text (``"text"``, the default) or with a letter
            (``"letters"``).
        orders : int
            In how many orders the options of a question are shown; the probabilities are averaged
            over the orders. The default is 1.
        prompt : callable
            A function that writes the prompt in place of :mod:`eliza_ffi.decisions.layout`. It
            gets the input as a string and a :class:`~eliza_ffi.decisions.RenderedQuestion`.
        scoring : str
            ``"constrained"`` (default), ``"full"``, ``"mean"`` or ``"bytes"``;
            :mod:`eliza_ffi.decisions.scoring` explains the rules and their costs.
        calibration : Calibration or path
            A calibration that was fitted for this model and these questions, or the path of its
            file, which is read at every call. It also sets the prompts and `scoring`.
        allowed_probability : bool
            Also compute how much of the model's probability for the next token falls on the
            options.
        min_probability : float
            Abstain if the probability of the most probable answer is lower than this.
        abstain : str
            ``"risk"``: abstain if the answer is not certified by the calibration, which must have
            been fitted with `risk`.
        think : int
            Let the model write up to this many tokens of reasoning about the input and all
            questions. The questions are then asked about the input and this text.
        think_below : float
            Think only if an answer without reasoning has a lower probability than this.
            ``decision.reasoning`` is None if the model did not think.
        think_share : float
            At most this share of the decisions thinks: of the single decisions of this model, or of
            one :meth:`decide_many`.
        cache : CacheOptions
            As :meth:`generate`.

        Returns
        -------
        Decision
            A mapping from names to answers. Without a calibration, the probabilities are the
            model's own, which are mostly overconfident.

        Raises
        ------
        InvalidArgumentError
            If the input, a question or a setting is malformed, or the calibration was fitted for
            another model, other questions or other settings.
        OSError
            If the calibration's file cannot be read.
        ContextFullError
            If the input together with a question does not fit into the context, or the examples do
            not.
        NotSupportedError
            If the library cannot score labels, or if the model is a decision model of unknown type.
        BusyError
            As :meth:`generate`.
        """
        check_one_input(input)
        plan = plan_of(self, questions, settings)
        task = decision_task(self.session, input, plan, timeout)
        return cast(Decision, self._execute(task))

    def decide_many(
        self,
        inputs: Iterable[Any],
        questions: Any,
        *,
        progress: Callable[[int, int | None], Any] | None = None,
        max_concurrency: int | None = None,
        return_exceptions: bool = False,
        **settings: Unpack[DecideSettings],
    ) -> list[Decision]:
        """Answer the same questions about many inputs.

        The logger ``eliza_ffi`` warns if the answers look as if the prompt did not work: see
        :mod:`eliza_ffi.decisions.doubts`.

        Parameters
        ----------
        inputs
            An iterable of inputs as in :meth:`decide`. Each is read when it can begin.
        questions
            As :meth:`decide`.
        progress, return_exceptions
            As :meth:`generate_many`.
        max_concurrency
            How many inputs are decided at the same time. None = the number of slots if the model
            runs on a GPU or another device, and two if it runs on the CPU, where more at the same
            time would not be faster. With `think`, the model reasons about as many inputs as there
            are slots.
        **settings
            As :meth:`decide`; `think` makes the model reason about each input separately. In
            addition, ``prior="inputs"`` divides the probabilities by their mean over a sample of
            these inputs, which must be a list: see :mod:`eliza_ffi.decisions.learning.input_prior`.

        Returns
        -------
        list of Decision
            In the order of the inputs.
        """
        check_prompts(inputs, "decide", "inputs")
        plan = plan_of(self, questions, settings, "decide_many", inputs)
        doubts = Doubts(plan)

        def read(decisions: list[Any]) -> list[Any]:
            for reason in doubts.reasons():
                logger.warning("decide_many: %s", reason)
            return decisions

        return self._many(
            inputs,
            lambda given: decision_task(
                self.session, given, plan, at_once=max_concurrency, doubts=doubts
            ),
            progress,
            inputs_at_once(self.session, plan.settings.think, max_concurrency),
            return_exceptions,
            total=length_of(inputs),
            read=read,
            called="inputs",
        )

    def decision_prompts(
        self,
        input: Any,
        questions: Any,
        **settings: Unpack[DecideSettings],
    ) -> list[str]:
        """Return the prompts of :meth:`decide`, one for each question and order, for inspection.

        Do not pass these strings back to the model. They spell out the control tokens. If the input
        contains the text of a control token, :meth:`decide` treats it as plain text, but in these
        strings the two look the same. Spaces at the end of a prompt are a part of the labels.
        """
        check_one_input(input)
        return plan_of(self, questions, settings, "decision_prompts").texts(self.session, input)

    # ---- Structured answers ---------------------------------------------------------------------

    @overload
    def fill(
        self,
        prompt: AnyPrompt,
        shape: type[T],
        *,
        on_span: Callable[[Any], Any] | None = ...,
        timeout: float | None = ...,
        **settings: Unpack[FillSettings],
    ) -> StructuredResult[T]: ...

    @overload
    def fill(
        self,
        prompt: AnyPrompt,
        shape: Regex | Lark,
        *,
        on_span: Callable[[Any], Any] | None = ...,
        timeout: float | None = ...,
        **settings: Unpack[FillSettings],
    ) -> StructuredResult[str]: ...

    @overload
    def fill(
        self,
        prompt: AnyPrompt,
        shape: Mapping[str, Any],
        *,
        on_span: Callable[[Any], Any] | None = ...,
        timeout: float | None = ...,
        **settings: Unpack[FillSettings],
    ) -> StructuredResult[Any]: ...

    @overload
    def fill(
        self,
        prompt: AnyPrompt,
        shape: Fillable,
        *,
        on_span: Callable[[Any], Any] | None = ...,
        timeout: float | None = ...,
        **settings: Unpack[FillSettings],
    ) -> FillResult: ...

    def fill(
        self,
        prompt: AnyPrompt,
        shape: Any,
        *,
        on_span: Callable[[Any], Any] | None = None,
        timeout: float | None = None,
        **settings: Unpack[FillSettings],
    ) -> Any:
        """Generate an answer that matches a schema, class, regular expression or grammar.

        Parameters
        ----------
        prompt
            The prompt, as in :meth:`generate`. The answer follows it directly.
        shape
            One of the following:

            - a JSON Schema as a dict
            - a class (pydantic, dataclass, typed dictionary, enum) or another type annotation,
              such as ``list[int]``; the value has this type
            - a :class:`~eliza_ffi.Regex` or a :class:`~eliza_ffi.Lark`; the value is a string
            - a :class:`~eliza_ffi.Skeleton` or its JSON form as a dict

            The model does not see the shape. Describe it in the prompt.
        on_span
            Called with each :class:`~eliza_ffi.PartialField` of a shape, or each
            :class:`~eliza_ffi.FilledSpan` of a skeleton, when it is complete.
        timeout
            As :meth:`generate`.
        **settings
            For every shape:

            - ``max_tokens``: maximum number of tokens in the whole answer, 1,024 by default; 0 = no
              limit except the context.
            - ``on_limit``: ``"error"`` (default) raises an error if the answer does not end within
              ``max_tokens``; ``"close"`` completes it with a short valid ending, if there is one.
              The ending comes on top of ``max_tokens``.
            - ``retries``: how many times to try again, with sampling, if the answer is invalid; 0
              by default.
            - ``temperature``, ``top_k``, ``top_p``, ``min_p``, ``seed`` and ``sampling``: sampling
              settings, as in :meth:`generate`; greedy by default.
            - ``think``: as in :meth:`choose`.
            - ``cache``: as in :meth:`generate`.

            - ``heal_prompt``: if True, remove the prompt's last token, and let the model write the
              text of this token again, together with the answer's beginning. Use this if the prompt
              ends in the middle of a word. Only for skeletons, and for answers that begin with a
              choice.

            Only for skeletons:

            - ``sampler_plan``: sampling settings of single spans.
            - ``logprobs``: if True, also compute the probability of free values.

        Returns
        -------
        StructuredResult or FillResult
            A :class:`~eliza_ffi.StructuredResult` with a valid value; for a ``Skeleton``, a
            :class:`~eliza_ffi.FillResult`.

        Raises
        ------
        FillError
            If the answer does not end within ``max_tokens`` or the context. The attribute `partial`
            of the error has the partial answer.
        InvalidAnswerError
            If the answer is not valid against its schema or class. This is a kind of FillError.
        InvalidArgumentError
            If the shape or a setting is malformed.
        NotSupportedError
            If the library cannot fill skeletons, or a required extra is not installed.
        BusyError, ChatTemplateError
            As :meth:`generate`.
        """
        check_callback("on_span", on_span)
        with_steps = on_span is not None
        run = fill_run(
            self.session, prompt, shape, method="fill", with_steps=with_steps, **settings
        )
        return self._result(run, timeout, on_span)

    @overload
    def fill_stream(
        self,
        prompt: AnyPrompt,
        shape: type[T],
        *,
        timeout: float | None = ...,
        **settings: Unpack[FillSettings],
    ) -> Iterator[PartialField | StructuredResult[T]]: ...

    @overload
    def fill_stream(
        self,
        prompt: AnyPrompt,
        shape: Any,
        *,
        timeout: float | None = ...,
        **settings: Unpack[FillSettings],
    ) -> Iterator[FilledSpan | PartialField | FillResult]: ...

    def fill_stream(
        self,
        prompt: AnyPrompt,
        shape: Any,
        *,
        timeout: float | None = None,
        **settings: Unpack[FillSettings],
    ) -> Iterator[Any]:
        """Yield each finished field of a shape, or each span of a skeleton, and then the result.

        A field is a :class:`~eliza_ffi.PartialField`, a span a :class:`~eliza_ffi.FilledSpan`. The
        parameters and errors are the same as in :meth:`fill`, but ``retries`` must be 0.
        """
        run = fill_run(
            self.session, prompt, shape, method="fill_stream", with_steps=True, **settings
        )
        return self._steps(run, timeout)

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
        """Generate a structured answer for each of many prompts, several at the same time.

        Parameters
        ----------
        prompts, progress, max_concurrency, return_exceptions
            As :meth:`generate_many`.
        shape, **settings
            As :meth:`fill`.

        Returns
        -------
        list of FillResult
            In the order of the prompts.
        """

        def task(prompt: AnyPrompt) -> Task[FillResult]:
            run = fill_run(
                self.session, prompt, shape, method="fill_many", with_steps=False, **settings
            )
            return Task(self.session, run)

        check_prompts(prompts, "fill")
        return self._many(prompts, task, progress, max_concurrency, return_exceptions)

    # ---- Tool calls -----------------------------------------------------------------------------

    @overload
    def call_tool(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]],
        tool_choice: Literal["required"],
        *,
        chat_template_kwargs: Mapping[str, Any] | None = ...,
        max_tokens: int = ...,
        timeout: float | None = ...,
        **settings: Unpack[ToolSettings],
    ) -> ToolCall: ...

    @overload
    def call_tool(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]],
        tool_choice: str | Mapping[str, Any] = ...,
        *,
        chat_template_kwargs: Mapping[str, Any] | None = ...,
        max_tokens: int = ...,
        timeout: float | None = ...,
        **settings: Unpack[ToolSettings],
    ) -> ToolCall | TextAnswer: ...

    def call_tool(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]],
        tool_choice: str | Mapping[str, Any] = "auto",
        *,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        max_tokens: int = MOST_TOKENS,
        timeout: float | None = None,
        **settings: Unpack[ToolSettings],
    ) -> ToolCall | TextAnswer:
        """Let the model call a tool or answer in words.

        The prompt and the call are written in the model's own tool-call format. The model does not
        generate the fixed text of this format. It chooses the tool's name from the list of tools,
        and generates arguments that match the tool's schema.

        Parameters
        ----------
        messages
            The conversation, as in :meth:`chat_tokens`, with earlier calls and their results.
        tools
            Tool definitions in OpenAI's format: functions with ``name``, ``description`` and
            ``parameters``, a JSON Schema. Without ``additionalProperties``, the arguments are only
            the listed ``properties``.
        tool_choice
            ``"auto"``: the model calls a tool or answers in words, whichever is more probable.
            ``"required"``: the model calls a tool. The name of a tool, or OpenAI's
            ``{"type": "function", "function": {"name": ...}}``: the model calls that tool.
        chat_template_kwargs
            Variables of the chat template, such as ``{"enable_thinking": False}``.
        max_tokens
            Maximum number of tokens in the call's arguments, or in the answer in words; 0 = no
            limit except the context.
        timeout
            As :meth:`generate`.
        **settings
            ``temperature``, ``top_k``, ``top_p``, ``seed`` and ``sampling`` apply to the arguments
            and to the answer in words, which are greedy by default. The tool is always the most
            probable one. ``stop`` applies only to the answer in words. ``think`` is as in
            :meth:`choose`, and ``cache`` as in :meth:`generate`.

        Returns
        -------
        ToolCall or TextAnswer
            A :class:`~eliza_ffi.session.tool_calls.TextAnswer` is a
            :class:`~eliza_ffi.session.results.GenerationResult`.

        Raises
        ------
        InvalidArgumentError
            If a tool or its schema is malformed or unsupported, two tools have the same name, or
            `tool_choice` names a tool that is not in `tools`.
        FillError
            If the arguments do not end within `max_tokens` or the context.
        InvalidAnswerError
            If the arguments are not valid against the schema. This can happen because token masks
            do not enforce every keyword of JSON Schema. This is a kind of FillError.
        ChatTemplateError
            If the model has no chat template, or the template rejects the messages.
        NotSupportedError
            If the library does not support token masks.
        BusyError
            As :meth:`generate`.
        """
        run = tools_run(
            self.session,
            messages,
            tools,
            tool_choice,
            chat_template_kwargs=chat_template_kwargs,
            max_tokens=max_tokens,
            method="call_tool",
            **settings,
        )
        return cast(ToolCall | TextAnswer, self._result(run, timeout, read=one_call))

    @overload
    def call_tools(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]],
        tool_choice: Literal["required"],
        *,
        max_calls: int = ...,
        chat_template_kwargs: Mapping[str, Any] | None = ...,
        max_tokens: int = ...,
        timeout: float | None = ...,
        **settings: Unpack[ToolSettings],
    ) -> ToolCalls: ...

    @overload
    def call_tools(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]],
        tool_choice: str | Mapping[str, Any] = ...,
        *,
        max_calls: int = ...,
        chat_template_kwargs: Mapping[str, Any] | None = ...,
        max_tokens: int = ...,
        timeout: float | None = ...,
        **settings: Unpack[ToolSettings],
    ) -> ToolCalls | TextAnswer: ...

    def call_tools(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]],
        tool_choice: str | Mapping[str, Any] = "auto",
        *,
        max_calls: int = MOST_CALLS,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        max_tokens: int = MOST_TOKENS,
        timeout: float | None = None,
        **settings: Unpack[ToolSettings],
    ) -> ToolCalls | TextAnswer:
        """Let the model call several tools in one turn or answer in words.

        After each call, the model makes another call if this has a probability of at least one
        half. Some formats allow only one call per turn.

        Parameters
        ----------
        messages, tools, tool_choice, chat_template_kwargs, timeout, **settings
            As :meth:`call_tool`, which also lists the errors.
        max_calls
            Maximum number of calls.
        max_tokens
            Maximum number of tokens in each call's arguments, or in the answer in words.

        Returns
        -------
        ToolCalls or TextAnswer
            A list of :class:`~eliza_ffi.session.tool_calls.ToolCall`, or an answer in words.
        """
        run = tools_run(
            self.session,
            messages,
            tools,
            tool_choice,
            max_calls=max_calls,
            chat_template_kwargs=chat_template_kwargs,
            max_tokens=max_tokens,
            method="call_tools",
            **settings,
        )
        return cast(ToolCalls | TextAnswer, self._result(run, timeout))

    # ---- Prompts on disk ------------------------------------------------------------------------

    def save_prompt_cache(
        self,
        path: str | os.PathLike[str],
        prompt: AnyPrompt,
        *,
        cache: CacheOptions | None = None,
        timeout: float | None = None,
    ) -> int:
        """Save a prompt's tokens and their KV cache to a file, for :meth:`load_prompt_cache`.

        Tokens that are already in the KV cache of a slot are not decoded again. To keep a
        conversation, save the tokens of its prompt followed by the generated tokens.

        Parameters
        ----------
        path
            The file. It is written completely or not at all.
        prompt
            As :meth:`generate`. If you want to continue the text later, end it at a token boundary,
            for example after a line break or a special token.
        cache, timeout
            As :meth:`generate`.

        Returns
        -------
        int
            The number of saved tokens.

        Raises
        ------
        NativeFaultError
            If the file cannot be written.
        ContextFullError
            If the prompt does not fit into the context.
        NotSupportedError
            If the library cannot save slots.
        """
        return cast(int, self._result(save_run(self.session, path, prompt, cache), timeout))

    def load_prompt_cache(
        self,
        path: str | os.PathLike[str],
        *,
        cache: CacheOptions | None = None,
        timeout: float | None = None,
    ) -> int:
        """Load a file of :meth:`save_prompt_cache` into a free slot.

        Pass the whole prompt to later requests. Only the tokens after the restored ones are
        decoded. The slot is not reserved: another prompt may overwrite it later.

        Parameters
        ----------
        path
            The file.
        cache
            The slot to use, and the KV cache types that the file was saved with; None = any free
            slot.
        timeout
            As :meth:`generate`.

        Returns
        -------
        int
            The number of tokens in the file.

        Raises
        ------
        NativeFaultError
            If the file cannot be read, is damaged, or was saved with another model, adapter, KV
            cache type or version of llama.cpp.
        ContextFullError
            If the file has more tokens than fit into the context.
        NotSupportedError
            If the library cannot restore slots.
        """
        return cast(int, self._result(load_run(self.session, path, cache), timeout))

    # ---- Requests: AsyncModel awaits them ------------------------------------------------------

    def _result(
        self,
        run: Run[Any],
        timeout: float | None = None,
        on_step: Callable[[Any], Any] | None = None,
        read: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Run a request and return its result; parameters as :class:`.task.Task`."""
        return self._execute(Task(self.session, run, timeout, on_step=on_step, read=read))

    def _execute(self, task: Task[Any]) -> Any:
        return task.run()

    def _steps(self, run: Run[Any], timeout: float | None) -> Iterator[Any]:
        return self.session.scheduler.steps(run, timeout)

    def _stream(self, run: Run[Any], timeout: float | None) -> TextStream:
        return TextStream(self.session.scheduler.steps(run, timeout))

    def _many(
        self,
        items: Iterable[V],
        task: Callable[[V], Task[R]],
        progress: Callable[[int, int | None], Any] | None,
        max_concurrency: int | None,
        return_exceptions: bool,
        total: int | None = None,
        read: Callable[[list[Any]], list[Any]] = list,
        called: str = "prompts",
    ) -> list[Any]:
        """Run a task for each item; `read` converts the list of all results.

        `called` is the argument that has the items, for errors.
        """
        return self._run_many(
            items,
            task,
            read,
            at_once=self.session.at_once(max_concurrency),
            total=length_of(items) if total is None else total,
            progress=progress,
            on_error=kept_or_raised(return_exceptions, called),
        )

    def _run_many(
        self,
        items: Iterable[V],
        task: Callable[[V], Task[Any]],
        read: Callable[[list[Any]], list[Any]],
        **how: Any,
    ) -> list[Any]:
        return read(run_many(items, task, **how))
