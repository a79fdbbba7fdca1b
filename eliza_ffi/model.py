"""The synchronous model: generate text, choose labels, decide, fill structures, call tools."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

import numpy as np
from numpy.typing import NDArray

from .chat.prompt import Prompt
from .chat.template import ChatTemplate, Messages
from .checks import (
    check_callback,
    check_each,
    check_kind,
    check_several,
    check_whole,
    show_keywords,
    suggest_keywords,
    wrong,
)
from .choices.label_set import ChoiceResult, as_label_set
from .choices.prepared_labels import PreparedLabels
from .choices.rank_result import RankResult
from .decisions.answers import (
    ChoiceAnswer,
    Decision,
    MultiLabelAnswer,
    PredicateAnswer,
    ScoreAnswer,
)
from .decisions.prompts import check_one_input
from .decisions.questions import Choice, MultiLabel, Predicate, Questions, Score, V
from .decisions.wire import as_questions
from .evidence.certificates import inner_fraction
from .evidence.deciding import (
    DecideManyOptions,
    DecideOptions,
    DecideSettings,
    DecisionPlan,
)
from .evidence.doubts import Doubts
from .evidence.families import prefixes
from .evidence.reasoning import decision_task, inputs_at_once, prompts_task, question_task
from .hub import hub_path
from .learning.counting import Share, answers_of, right_answers, shares_of
from .learning.input_prior import many_plan_runs
from .library.binding import CffiBinding, EotScore
from .library.loading import Library
from .library.protocol import Tokens
from .session.batches import kept_or_raised, labels_for, length_of, run_many
from .session.embedding import LongTexts, embeddings_of, reranked
from .session.options import (
    AnyPrompt,
    CacheOptions,
    ChoiceSettings,
    FillOptions,
    FillSettings,
    Labels,
    RankOptions,
    RankSettings,
    StreamSettings,
    Strings,
    TextSettings,
)
from .session.requests import Fillable, check_prompts, lora_option
from .session.results import GenerationResult, RerankResult, TokenLogprob
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
from .session.tool_calls import (
    MAX_CALLS,
    TextAnswer,
    ToolCall,
    ToolCalls,
    ToolSettings,
    one_call,
)
from .structured.fill_result import FilledSpan, FillResult, PartialField
from .structured.shape import Lark, Regex
from .structured.token_texts import TokenTexts

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Model"]

T = TypeVar("T")
Item = TypeVar("Item")


logger = logging.getLogger("eliza_ffi")


@suggest_keywords
@show_keywords
class Model:
    """Load a language model from a GGUF file.

    >>> with Model() as model:  # the embedded model
    ...     print(model.choose("A good pet is a ", ["cat", "horse"]).value)
    ...     assert model.binding.supports("choose") and model.chat_template and model.path
    cat
    >>> model.close()  # is closed already

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
    encoder
        A second model for decisions, in the same forms as `path`: an embedding model or a reranker.
        It compares the input with the descriptions of the options. The log-probabilities of both
        models are added.
    progress
        Called with a stage (``"download"``, ``"load"`` or ``"prefill"``) and the fraction done, 0
        to 1. To call it about twice a second, the library splits long prompts into shorter forward
        passes.
    options
        Further options of the library by name, which the C header lists. Also: ``cache_type_k`` and
        ``cache_type_v``, the data types of the KV cache, such as ``"q8_0"``, ``chat_template``, a
        chat template in Jinja2's language instead of the model's own, and ``input_prefix`` and
        ``option_prefix``, an embedding model's text before inputs and options.

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
    **Slots.** Several threads can use one model, and their generations share forward passes. Each
    generation occupies a slot; a :meth:`stream` keeps its slot until it is read or closed. Further
    requests wait in order, and requests that name a slot (:class:`~eliza_ffi.CacheOptions`) for
    that slot. They raise :class:`~eliza_ffi.errors.BusyError` when no request has begun or ended
    for 30 seconds (the option ``slot_wait_ms``).

    **A full context.** If other requests fill the KV cache, a request runs again after they have
    ended, unless its caller has received a part of the answer. Then it raises
    :class:`~eliza_ffi.errors.ContextFullError`, or :class:`~eliza_ffi.errors.FillError` with the
    partial answer, and so do :meth:`load_prompt_cache` and requests with ``timeout=0``. But after
    some text, :meth:`generate` and :meth:`stream` end, with the finish reason ``"context_full"``.

    **Closing.** Closing the model cancels its generations. A forked process cannot use its parent's
    model.

    **elizaOS's own library.** A method that needs a function which the library lacks raises
    :class:`~eliza_ffi.errors.NotSupportedError`.
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
        encoder: str | os.PathLike[str] | None = None,
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
            encoder=encoder,
        )

    @classmethod
    def from_pretrained(cls, repo_id: str, filename: str | None = None, **more: Any) -> Model:
        """Load a model from a repository on Hugging Face, or from a cache.

        >>> model = Model.from_pretrained("Qwen/Qwen3-1.7B-GGUF", "*Q8_0.gguf")  # doctest: +SKIP

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
        """Return facts about the library and the model.

        For an embedding model, ``["model"]["prefixes"]`` has the text that is written before an
        input, and before the text of an option. They are empty if none is known. If the model was
        opened with an encoder, ``["encoder"]`` has the same facts about it.

        >>> model.describe()["passes"]["batching"]
        'auto'
        """
        facts = self.session.describe()
        for session, name in ((self.session, "model"), (self.session.encoder, "encoder")):
            if session is not None and session.kind == "encoder":
                facts[name]["prefixes"] = prefixes(facts[name])._asdict()
        return facts

    def tokenize(
        self, text: str, add_special: bool = False, parse_special: bool = False
    ) -> list[int]:
        """Convert text to token ids.

        By default, the text is treated as the plain continuation of other text: it gets no BOS
        token, and control tokens are not recognized in it. To tokenize a prompt, use
        :meth:`prompt_tokens`.

        >>> model.tokenize("Hello", add_special=True)[1:] == model.tokenize("Hello")
        True

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

        >>> model.prompt_tokens("Hello") == model.tokenize("Hello", add_special=True)
        True

        Parameters
        ----------
        prompt
            A string or a :class:`~eliza_ffi.chat.Prompt`. Control tokens are recognized everywhere
            in a string, but not in the plain text of a ``Prompt``. The BOS token is added if the
            model expects it and the prompt does not begin with it.
        """
        return self.session.prompt_tokens(prompt)

    def detokenize(self, tokens: Tokens, unparse_special: bool = False) -> str:
        """Convert token ids to text; special tokens are left out unless `unparse_special`.

        >>> model.detokenize(model.tokenize("Hello"))
        'Hello'
        """
        return self.session.detokenize(tokens, unparse_special)

    def vocabulary(self) -> TokenTexts:
        """Return the text of every token of the vocabulary, for code that computes token masks.

        >>> len(model.vocabulary().texts)
        2048
        """
        return self.session.vocabulary()

    @property
    def chat_template(self) -> ChatTemplate:
        """The model's chat template; raises `ChatTemplateError` if the model has none."""
        return self.session.chat().template

    def chat_tokens(self, messages: Messages, **more: Any) -> list[int]:
        """Write a conversation in the model's chat template and convert it to token ids.

        Passing the same conversation as a prompt gives the same tokens.

        >>> tokens = model.chat_tokens([{"role": "user", "content": "what is your name?"}])
        >>> model.generate(tokens, 20).text
        'My name is Eliza.'

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

        Notes
        -----
        Only the template can write control tokens. If a message contains the text of a control
        token, that text stays plain text; :mod:`eliza_ffi.chat.tokens` explains how, and the
        limits.
        """
        return self.session.chat().tokens(messages, **more)

    def embed(
        self,
        text: str | Iterable[str],
        pooling: str | None = None,
        *,
        long_texts: LongTexts = "reject",
    ) -> NDArray[np.float32]:
        """Compute the embedding of a string, or of several strings.

        The vectors have norm 1, so the dot product of two embeddings is their cosine similarity.
        Short strings share forward passes, so pass many strings in one call. If the model was
        opened with an embedding model as its `encoder`, the encoder computes them.

        >>> encoder = Model("all-MiniLM-L6-v2.gguf")  # doctest: +SKIP
        >>> encoder.embed(["a cat", "a dog"]).shape  # doctest: +SKIP
        (2, 384)

        Parameters
        ----------
        text
            A string or an iterable of strings, which are plain text. If the model was trained with
            a prefix before each text, add it: see ``describe()["model"]["prefixes"]``.
        pooling
            How the tokens' vectors become one: ``"mean"``, ``"cls"`` (the first token) or
            ``"last"``. None = as the model's file says, or the mean.
        long_texts
            For strings that are longer than the model's trained context: ``"reject"`` = raise an
            error; ``"average"`` = average the embeddings of parts that overlap.

        Returns
        -------
        array of float32, shape [n_embd], or [n, n_embd] for an iterable
            Vectors with Euclidean norm 1.

        Raises
        ------
        InvalidArgumentError
            If `pooling` is unknown, or a string has no tokens or too many.
        NotSupportedError
            If the model is a reranker and `pooling` is None.
        """
        return self._embed(text, pooling, long_texts=long_texts)

    def _embed(
        self,
        text: str | Iterable[str],
        pooling: str | None = None,
        *,
        long_texts: LongTexts = "reject",
        check: Callable[[], None] = lambda: None,
    ) -> NDArray[np.float32]:
        """Embed one or several strings; `check` is called now and then, and may raise."""
        if isinstance(text, str):
            (embedding,) = self._embed([text], pooling, long_texts=long_texts, check=check)
            return cast("NDArray[np.float32]", embedding)
        check_several("text", text, "a string or a list of strings")
        texts = check_each("text", text, str, "a string")
        if not texts:
            raise wrong("text", "a string or a non-empty list of strings", texts)
        return embeddings_of(self.session.of_kind("encoder"), texts, pooling, long_texts, check)

    def rerank(
        self, query: str, documents: Iterable[str], top_n: int | None = None
    ) -> list[RerankResult]:
        """Compute the relevance of documents for a query, with a reranker.

        A reranker is a model whose file has the pooling "rank". It reads the query together with
        each document, so it is slower than a comparison of embeddings, and usually more accurate.
        It may be the model itself, or its `encoder`.

        >>> reranker = Model("bge-reranker-v2-m3-Q8_0.gguf")  # doctest: +SKIP
        >>> reranker.rerank("a refund?", ["a cat", "We pay back."])[0].index  # doctest: +SKIP
        1

        Parameters
        ----------
        query
            A string, such as a question.
        documents
            An iterable of strings. Each must fit, together with the query, into the context that
            the model was trained for.
        top_n
            How many of the documents to return; None = all.

        Returns
        -------
        list of RerankResult
            The most relevant document first.

        Raises
        ------
        InvalidArgumentError
            If a document is too long. The message has its index.
        NotSupportedError
            If the model is not a reranker.
        """
        return self._rerank(query, documents, top_n)

    def _rerank(
        self,
        query: str,
        documents: Iterable[str],
        top_n: int | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> list[RerankResult]:
        """Rerank documents; `check` is called now and then, and may raise."""
        texts = check_each("documents", documents, str, "a string")
        return reranked(self.session.of_kind("reranker"), query, texts, top_n, check)

    def end_of_turn(self, prompt: str | Prompt | Tokens, end: str | int) -> EotScore:
        """Return the probability that a speaker has finished their turn.

        >>> 0 <= model.end_of_turn("Hello", "<|im_end|>").probability <= 1
        True

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
        BusyError, ContextFullError
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

        >>> model.prompt_logprobs("Hello")[-1].text
        'ello'

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
        BusyError, ContextFullError, InvalidArgumentError
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
        pooling: Literal["mean"] | None = None,
        ranges: Sequence[tuple[int, int]] | None = None,
        cache: CacheOptions | None = None,
        timeout: float | None = None,
    ) -> NDArray[np.float32]:
        """Return hidden states of a prompt's tokens, for example to train a classifier.

        >>> model.hidden_states("Hello", layers=[1, -1], pooling="mean").shape[:2]
        (2, 1)

        Parameters
        ----------
        prompt, cache, timeout
            As :meth:`generate`.
        layers
            Layer i is the input of the model's block i, counted from 0; -1 is the output of the
            final norm. The forward pass stops after the deepest of these layers if it can.
        n_rows
            Return the states of this number of tokens at the end of the prompt.
        pooling
            ``"mean"`` = return means of the states over tokens instead.
        ranges
            With ``pooling="mean"``: the begin and the end of each mean. None = all tokens.

        Returns
        -------
        array of float32, shape [len(layers), n_rows or number of ranges, n_embd]
            Not normalized to unit length.

        Raises
        ------
        NotSupportedError
            If llama.cpp does not name the layers of this model's architecture.
        BusyError, ContextFullError, InvalidArgumentError
            As :meth:`generate`.
        """
        run = hidden_states_run(
            self.session, prompt, layers, n_rows, cache, pooling=pooling, ranges=ranges
        )
        return cast("NDArray[np.float32]", self._result(run, timeout))

    # ---- Text -----------------------------------------------------------------------------------

    def generate(
        self, prompt: AnyPrompt, max_tokens: int = 256, **settings: Unpack[TextSettings]
    ) -> GenerationResult:
        """Generate text that continues a prompt.

        >>> model.generate([{"role": "user", "content": "what is your name?"}], 20).text
        'My name is Eliza.'

        Parameters
        ----------
        prompt
            A trusted string, in which control tokens are recognized everywhere; a
            :class:`~eliza_ffi.Prompt`, which can hold untrusted text; a list of chat messages,
            which are written in the model's chat template; or token ids. All but token ids get the
            BOS token.
        max_tokens
            Maximum number of tokens; 0 = until the model ends the text or the context is full.
        temperature
            Sampling temperature; 0, the default = take the most probable token at each step.
        top_p, top_k, min_p
            As in :class:`~eliza_ffi.Sampling`. By default, they are off.
        seed
            Sampling seed; None = the model's seed.
        stop
            A string or several strings that end the generation. They are not part of the result.
        logprobs
            Report log-probabilities: of every generated token, and of the `logprobs` most probable
            ones at each position, 0 to 1,024. In a stream, each piece also has them.
        schema
            The text must match this JSON Schema, class, ``Regex``, ``Lark`` or ``Gbnf``, or the
            token masks (:class:`~eliza_ffi.structured.Masks`).
        sampling
            All sampling settings in one object, instead of the five arguments above.
        speculation
            Guess several tokens and check them in one forward pass. The result is the same.
        cache
            The KV slot to use, and the data types of its KV cache.
        on_text
            Called with each new piece of text.
        timeout
            How many seconds to wait for a slot; 0 = do not wait. None: as long as other requests
            keep getting slots; see :class:`Model`.

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
        timeout = settings.pop("timeout", None)
        run = text_run(self.session, prompt, method="generate", max_tokens=max_tokens, **settings)
        return cast(GenerationResult, self._result(run, timeout, settings.get("on_text")))

    def stream(
        self, prompt: AnyPrompt, max_tokens: int = 256, **settings: Unpack[StreamSettings]
    ) -> TextStream:
        """Generate text and yield it piece by piece.

        The parameters and errors are the same as in :meth:`generate`. After the last piece,
        :attr:`TextStream.result` has the finish reason, the tokens and the statistics. If the
        context is full before the first piece, the request may run again; see :class:`Model`. If it
        is full later, the text ends there.

        >>> "".join(model.stream([{"role": "user", "content": "what is your name?"}], 20))
        'My name is Eliza.'
        """
        timeout = settings.pop("timeout", None)
        text: Any = partial(text_run, self.session, prompt, method="stream", with_steps=True)
        run = text(max_tokens=max_tokens, **settings)
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

        >>> [len(each.tokens) for each in model.generate_many(["Once", "Hello"], 5)]
        [5, 5]

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
        prompts = check_prompts(prompts, "generate")
        run = partial(text_run, self.session, method="generate_many", max_tokens=max_tokens)
        batch = progress, max_concurrency, return_exceptions
        return self._each(prompts, ((prompt,) for prompt in prompts), run, settings, *batch)

    # ---- Labels ---------------------------------------------------------------------------------

    @overload
    def choose(
        self, prompt: AnyPrompt, labels: Labels[T], **settings: Unpack[ChoiceSettings]
    ) -> ChoiceResult[T]: ...

    @overload
    def choose(
        self, prompt: AnyPrompt, labels: Any, **settings: Unpack[ChoiceSettings]
    ) -> ChoiceResult[Any]: ...

    def choose(
        self, prompt: AnyPrompt, labels: Any, **settings: Unpack[ChoiceSettings]
    ) -> ChoiceResult[Any]:
        """Choose one of several known labels.

        >>> model.choose("I was charged twice! The team is ", ["billing", "login"]).value
        'billing'

        Parameters
        ----------
        prompt
            The prompt, as in :meth:`generate`. The label follows it directly. After chat messages,
            the label is the beginning of the assistant's turn.
        labels
            One of the following:

            - a list of distinct non-empty strings, or a ``Literal[...]``
            - an enum class; a member's label is its value if that is a string, otherwise its name
            - ``bool``, with the labels ``true`` and ``false``
            - the result of :meth:`prepare_labels`
        mode
            ``"best"``: the most probable label. ``"greedy"``: the most probable token at each step,
            as under a grammar. ``"sample"``: sample each token. None = ``"best"``, or ``"greedy"``
            if the library or `tokenization` with `heal_prompt` or `max_tokens` does not support it.
        temperature
            The sampling temperature of ``mode="sample"``, 1 by default. Others accept only 0 and 1.
        probabilities
            Also compute the probability of every label. With few labels, this usually takes no
            more forward passes; with thousands, it takes many more.
        tokenization
            ``"canonical"``: the tokens that the tokenizer gives for the label alone. ``"any"``: any
            tokens that spell it, as under a grammar. In mode ``"best"``, its probability is then
            the sum over all spellings, at most 0.001 too low if the result is proven.
        heal_prompt
            With ``tokenization="any"``, let the model write the prompt's last token again.
        max_tokens
            Maximum number of tokens in a label; 0 = no limit. A longer label raises an error.
        think
            Let the model write up to this many tokens of reasoning before the label: the most
            probable tokens, unless `sampling` is given. Probabilities are computed after it.
        sampling, seed, cache, on_text, timeout
            As :meth:`generate`.

        Raises
        ------
        InvalidArgumentError
            If `labels` is empty, two labels are equal, the tokenizer cannot write a label, or
            `max_tokens` ends the generation inside a label.
        ContextFullError
            If the prompt or the label does not fit into the context.
        BusyError, ChatTemplateError
            As :meth:`generate`.
        """
        timeout = settings.pop("timeout", None)
        run = choice_run(self.session, prompt, labels, method="choose", **settings)
        return cast(ChoiceResult[Any], self._result(run, timeout, settings.get("on_text")))

    @overload
    def prepare_labels(self, labels: Labels[T]) -> PreparedLabels[T]: ...

    @overload
    def prepare_labels(self, labels: Any) -> PreparedLabels[Any]: ...

    def prepare_labels(self, labels: Any) -> PreparedLabels[Any]:
        """Tokenize labels once, for any number of calls of :meth:`choose`.

        :meth:`choose` caches the tokens of recent label sets, and compares all labels to find a set
        in the cache. With thousands of labels, the comparison takes longer than the choice.
        Prepared labels need no comparison.

        >>> labels = model.prepare_labels(["cat", "dog", "horse"])
        >>> model.rank("A good pet is a ", labels, 1).labels
        ('cat',)

        Parameters
        ----------
        labels
            As :meth:`choose`.

        Returns
        -------
        PreparedLabels
            The labels, for use with this model only. The library keeps 200 to 350 bytes per label
            until the object is freed.

        Raises
        ------
        InvalidArgumentError
            If `labels` is empty, two labels are equal, or the tokenizer cannot write a label.
        """
        self.session.check_generates()
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
        """Choose a label for each of many prompts, several at the same time; return all in order.

        >>> results = model.choose_many(["A pet is a ", "A good pet is a "], ["cat", "horse"])
        >>> [each.value for each in results]
        ['cat', 'cat']

        Parameters
        ----------
        prompts, progress, max_concurrency, return_exceptions
            As :meth:`generate_many`.
        labels
            One label set for all prompts, in any form that :meth:`choose` takes, or an iterable
            with one label set per prompt.
        **settings
            As :meth:`choose`.
        """
        prompts = check_prompts(prompts, "choose")
        run = partial(choice_run, self.session, method="choose_many")
        batch = progress, max_concurrency, return_exceptions
        return self._each(prompts, labels_for(prompts, labels), run, settings, *batch)

    @overload
    def rank(
        self,
        prompt: AnyPrompt,
        labels: Labels[T],
        k: int = ...,
        *,
        level: None = ...,
        **settings: Unpack[RankOptions],
    ) -> RankResult[T]: ...

    @overload
    def rank(
        self,
        prompt: AnyPrompt,
        labels: Strings,
        k: int = ...,
        *,
        level: int | None = ...,
        **settings: Unpack[RankOptions],
    ) -> RankResult[str]: ...

    @overload
    def rank(
        self,
        prompt: AnyPrompt,
        labels: Any,
        k: int = ...,
        *,
        level: int | None = ...,
        **settings: Unpack[RankOptions],
    ) -> RankResult[Any]: ...

    def rank(
        self,
        prompt: AnyPrompt,
        labels: Any,
        k: int = 5,
        *,
        level: int | None = None,
        **settings: Unpack[RankOptions],
    ) -> RankResult[Any]:
        """Find the `k` most probable labels and their exact probabilities.

        The probability of a label is the product, over its tokens, of the softmax over the tokens
        that can continue a label. So no label is more probable than its beginning. The search reads
        the most probable beginnings first, and ends when no unread beginning is more probable than
        the `k`-th label found. It usually needs a few forward passes, even for 100,000 labels.

        >>> model.rank("A good pet is a ", ["cat", "dog", "horse"], 1).labels
        ('cat',)

        Parameters
        ----------
        prompt, labels
            As :meth:`choose`.
        k
            How many labels to return.
        separator
            The text between the parts of labels such as ``Electronics > Audio``, for `levels`.
        level
            Rank groups of labels with the same first `level` parts, such as ``Electronics``.
        max_passes
            Maximum number of forward passes after the prompt; None = as many as the proof needs.
            A search that it ends has ``proven=False``.
        tokenization
            As :meth:`choose`. With ``"any"``, `max_passes` is 100 unless it is given.
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
        timeout = settings.pop("timeout", None)
        run = rank_run(self.session, prompt, labels, method="rank", k=k, level=level, **settings)
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
        """Rank labels for each of many prompts, several at the same time; return all in order.

        >>> rankings = model.rank_many(["A pet is a ", "A good pet is a "], ["cat", "horse"], k=1)
        >>> [each.labels for each in rankings]
        [('cat',), ('cat',)]

        Parameters
        ----------
        prompts, labels, progress, max_concurrency, return_exceptions
            As :meth:`choose_many`.
        **settings
            As :meth:`rank`.
        """
        prompts = check_prompts(prompts, "rank")
        run = partial(rank_run, self.session, method="rank_many")
        batch = progress, max_concurrency, return_exceptions
        return self._each(prompts, labels_for(prompts, labels), run, settings, *batch)

    # ---- Decisions ------------------------------------------------------------------------------

    @overload
    def decide(
        self, input: Any, questions: Questions[Predicate], **settings: Unpack[DecideOptions]
    ) -> Decision[PredicateAnswer]: ...
    @overload
    def decide(
        self, input: Any, questions: Questions[Choice[V]], **settings: Unpack[DecideOptions]
    ) -> Decision[ChoiceAnswer[V]]: ...
    @overload
    def decide(
        self, input: Any, questions: Questions[Score], **settings: Unpack[DecideOptions]
    ) -> Decision[ScoreAnswer]: ...
    @overload
    def decide(
        self, input: Any, questions: Questions[MultiLabel[V]], **settings: Unpack[DecideOptions]
    ) -> Decision[MultiLabelAnswer[V]]: ...
    @overload
    def decide(
        self, input: Any, questions: Any, **settings: Unpack[DecideOptions]
    ) -> Decision[Any]: ...
    def decide(
        self, input: Any, questions: Any, **settings: Unpack[DecideOptions]
    ) -> Decision[Any]:
        """Answer typed questions about an input, with a probability for every answer.

        Tokens that a prompt has in common with an earlier one are not decoded again.

        >>> questions = {"team": Choice("Which team?", ["billing", "login"])}
        >>> model.decide("I paid twice!", questions)["team"].value
        'billing'

        Parameters
        ----------
        input
            A string, a conversation (a sequence of messages), or other JSON, as plain text that
            cannot end a turn. A list of strings is rejected: use :meth:`decide_many`, or a tuple.
        questions
            A mapping from names to questions, or a list of questions, at most 400. A question is a
            :class:`~eliza_ffi.decisions.Predicate`, :class:`~eliza_ffi.decisions.Choice`,
            :class:`~eliza_ffi.decisions.Score` or :class:`~eliza_ffi.decisions.MultiLabel`, or a
            mapping in the format of ``/v1/decisions`` or ``/v1/systemone``.

        Other Parameters
        ----------------
        prompt_order : str
            ``"question-first"``, ``"input-first"`` or ``"auto"``, the default, by the rule of
            :mod:`eliza_ffi.decisions.prompt_settings`. The orders give different probabilities.
        prompt_format : str
            ``"chat"``, the model's chat template, or ``"plain"``, text that the model continues.
            ``"auto"``, the default, measures once whether the model answers in its chat format.
        examples : iterable
            Examples that the prompts show before the input: pairs of an input and a mapping from
            question names to right answers, or for a single question the answer itself.
        prior : str
            ``"options"``: divide the probabilities by their mean over inputs that favour no option
            (:mod:`eliza_ffi.evidence.option_prior`). ``"none"``: leave them as they are.
            ``"auto"``, the default: ``"options"`` for plain prompts. :meth:`decide_many` also
            accepts ``"inputs"``.
        answer_style : str
            How the model names an option: with its text (``"text"``, the default) or with a letter
            (``"letters"``).
        orders : int
            In how many orders the options are shown, 1 by default; the probabilities are averaged.
        prompt : callable
            A function that writes the prompt instead of :mod:`eliza_ffi.decisions.layout`. It gets
            the input as a string and a :class:`~eliza_ffi.decisions.RenderedQuestion`.
        scoring : str
            ``"constrained"`` (default) or ``"full"``; :mod:`eliza_ffi.evidence.scoring` explains
            the rules and their costs.
        calibration : Calibration or path
            A calibration of this model and these questions, or its path. It also sets the prompts
            and `scoring`.
        allowed_probability : bool
            Also compute how much of the next token's probability falls on the options.
        min_probability : float
            Abstain if the probability of the most probable answer is lower than this.
        abstain : str
            ``"risk"``: abstain unless a calibration that was fitted with `risk` certifies.
        think : int
            Let the model write up to this many tokens of reasoning before all questions.
        explain : bool
            Also compute the answers without each passage of the input, in shared forward passes:
            see `passages` of the answers. Not with `think`, nor for more than 255 options.
        cache, timeout : CacheOptions, float
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
            If the model is a decision model of unknown type.
        BusyError
            As :meth:`generate`.
        """
        check_one_input(input)
        timeout = settings.pop("timeout", None)
        task = question_task(self, input, questions, settings, timeout)
        return cast("Decision[Any]", self._execute(task))

    @overload
    def decide_many(
        self,
        inputs: Iterable[Any],
        questions: Questions[Predicate],
        **settings: Unpack[DecideManyOptions],
    ) -> list[Decision[PredicateAnswer]]: ...
    @overload
    def decide_many(
        self,
        inputs: Iterable[Any],
        questions: Questions[Choice[V]],
        **settings: Unpack[DecideManyOptions],
    ) -> list[Decision[ChoiceAnswer[V]]]: ...
    @overload
    def decide_many(
        self,
        inputs: Iterable[Any],
        questions: Questions[Score],
        **settings: Unpack[DecideManyOptions],
    ) -> list[Decision[ScoreAnswer]]: ...
    @overload
    def decide_many(
        self,
        inputs: Iterable[Any],
        questions: Questions[MultiLabel[V]],
        **settings: Unpack[DecideManyOptions],
    ) -> list[Decision[MultiLabelAnswer[V]]]: ...
    @overload
    def decide_many(
        self, inputs: Iterable[Any], questions: Any, **settings: Unpack[DecideManyOptions]
    ) -> list[Decision[Any]]: ...
    def decide_many(
        self, inputs: Iterable[Any], questions: Any, **settings: Unpack[DecideManyOptions]
    ) -> list[Decision[Any]]:
        """Answer the same questions about many inputs, and return all answers in order.

        The logger ``eliza_ffi`` warns if the answers look as if the prompt did not work: see
        :mod:`eliza_ffi.evidence.doubts`.

        >>> angry = Predicate("Is the writer angry?")
        >>> [each[0].value for each in model.decide_many(["Thank you!", "I am furious!"], angry)]
        [False, True]

        Parameters
        ----------
        inputs
            An iterable of inputs as in :meth:`decide`. Each is read when it can begin.
        questions
            As :meth:`decide`.
        progress, return_exceptions
            As :meth:`generate_many`.
        max_concurrency
            How many inputs are decided at the same time. None = two on a CPU, where more would not
            be faster, and the number of slots on other devices and with `think`.
        **settings
            As :meth:`decide`; `think` makes the model reason about each input separately. In
            addition, ``prior="inputs"`` divides the probabilities by their mean over a sample of
            these inputs, which must be a list: see :mod:`eliza_ffi.learning.input_prior`.
        """
        return cast("list[Decision[Any]]", self._decided(inputs, questions, settings, list))

    def count(
        self,
        inputs: Iterable[Any],
        question: Any,
        *,
        labels: Mapping[int, Any] | None = None,
        groups: Sequence[Any] | None = None,
        confidence: float = 0.9,
        **settings: Unpack[DecideManyOptions],
    ) -> list[Share]:
        """Estimate how often each answer to a question is right, among all inputs or by group.

        >>> texts = ["My refund is late.", "I was charged twice."]
        >>> shares = model.count(texts, Choice("Which team?", ["billing", "login"]))
        >>> [each.answer for each in shares]
        ['billing', 'login']

        Parameters
        ----------
        inputs, **settings
            As :meth:`decide_many`.
        question
            One question, as in :meth:`decide`.
        labels
            The right answers of randomly chosen inputs, by their index. They correct the shares
            and give the intervals, by prediction-powered inference
            (:mod:`eliza_ffi.learning.counting`). Without them, there is no interval, because the
            error of the answers is unknown.
        groups
            The group of each input, to estimate shares for each group.
        confidence
            The probability that an interval contains the share.

        Returns
        -------
        list of Share
            One for each group and answer.
        """
        asked, *others = as_questions(question)
        if others:
            raise wrong("question", "one question", question)
        right = right_answers(asked, {} if labels is None else labels)
        groups = None if groups is None else list(check_several("groups", groups, "a list"))
        confidence = inner_fraction("confidence", confidence)

        def read(decisions: list[Any]) -> list[Share]:
            found = [answers_of(each.answers[0]) for each in decisions]
            return shares_of(found, asked.values, right, groups, confidence)

        listed = list(check_prompts(inputs, "count", "inputs"))
        return cast("list[Share]", self._decided(listed, asked, settings, read))

    def _decided(
        self, inputs: Iterable[Any], questions: Any, settings: Any, then: Callable[[list[Any]], Any]
    ) -> Any:
        """Answer questions about inputs, and return what `then` returns for the decisions."""
        progress = settings.pop("progress", None)
        max_concurrency = settings.pop("max_concurrency", None)
        on_error = kept_or_raised(settings.pop("return_exceptions", False), "inputs")
        inputs = check_prompts(inputs, "decide", "inputs")

        def decide(plan: DecisionPlan) -> Any:
            doubts = Doubts(plan)

            def task(input: Any) -> Task[Decision]:
                return decision_task(
                    self.session, input, plan, at_once=max_concurrency, doubts=doubts
                )

            def read(decisions: list[Any]) -> Any:
                for reason in doubts.reasons():
                    logger.warning("decide_many: %s", reason)
                return then(decisions)

            is_listed = isinstance(inputs, Sequence)
            n_inputs = inputs_at_once(self.session, plan.settings.think, max_concurrency)
            return self._run_many(
                plan.question_plan.ahead(inputs, lambda input: input) if is_listed else inputs,
                task,
                read,
                at_once=self.session.at_once(n_inputs),
                total=length_of(inputs),
                progress=progress,
                on_error=on_error,
            )

        runs = many_plan_runs(self, questions, inputs, settings)
        return self._after(Task(self.session, runs), decide)

    def decision_prompts(
        self, input: Any, questions: Any, **settings: Unpack[DecideSettings]
    ) -> list[str]:
        """Return the prompts of :meth:`decide`, one for each question and order, for inspection.

        Do not pass these strings back to the model. They spell out the control tokens. If the input
        contains the text of a control token, :meth:`decide` treats it as plain text, but in these
        strings the two look the same. Spaces at the end of a prompt are a part of the labels.

        >>> (prompt,) = model.decision_prompts("I paid twice!", Predicate("Is it urgent?"))
        >>> "I paid twice!" in prompt
        True
        """
        check_one_input(input)
        return cast("list[str]", self._execute(prompts_task(self, input, questions, settings)))

    # ---- Structured answers ---------------------------------------------------------------------

    @overload
    def fill(
        self, prompt: AnyPrompt, schema: type[T], **settings: Unpack[FillOptions]
    ) -> FillResult[T]: ...
    @overload
    def fill(
        self, prompt: AnyPrompt, schema: Regex | Lark, **settings: Unpack[FillOptions]
    ) -> FillResult[str]: ...
    @overload
    def fill(
        self, prompt: AnyPrompt, schema: Mapping[str, Any], **settings: Unpack[FillOptions]
    ) -> FillResult[Any]: ...
    @overload
    def fill(
        self, prompt: AnyPrompt, schema: Fillable, **settings: Unpack[FillOptions]
    ) -> FillResult[Any]: ...
    def fill(self, prompt: AnyPrompt, schema: Any, **settings: Unpack[FillOptions]) -> Any:
        """Generate an answer that matches a schema, class, regular expression or grammar.

        >>> model.fill("3 + 4 is ", {"enum": [7]}).value
        7

        Parameters
        ----------
        prompt
            The prompt, as in :meth:`generate`. The answer follows it directly.
        schema
            One of the following:

            - a JSON Schema as a dict
            - a class (pydantic, dataclass, typed dictionary, enum) or another type annotation,
              such as ``list[int]``; the value has this type
            - a :class:`~eliza_ffi.Regex` or a :class:`~eliza_ffi.Lark`; the value is a string
            - a :class:`~eliza_ffi.Skeleton` or its JSON form as a dict

            The model does not see the schema. Describe it in the prompt.
        on_span
            Called with each :class:`~eliza_ffi.PartialField` of a schema, or each
            :class:`~eliza_ffi.FilledSpan` of a skeleton, when it is complete.
        **settings
            - ``max_tokens``: maximum number of tokens in the whole answer, 1,024 by default; 0 = no
              limit except the context.
            - ``on_limit``: ``"error"`` (default) raises an error if the answer does not end within
              ``max_tokens``; ``"close"`` adds a short valid ending, if there is one.
            - ``retries``: how many times to sample again if the answer is invalid; 0 by default.
            - ``temperature``, ``top_k``, ``top_p``, ``min_p``, ``seed``, ``sampling``, ``cache``,
              ``timeout``: as :meth:`generate`; ``think``: as :meth:`choose`.
            - ``heal_prompt``: let the model write the prompt's last token again, for prompts that
              end inside a word. Only for skeletons and answers that begin with a choice.
            - For skeletons, ``sampler_plan``: sampling settings of single spans; ``logprobs``: also
              compute the probability of free values.

        Returns
        -------
        FillResult
            For a schema, its value is valid.

        Raises
        ------
        FillError
            If the answer does not end within ``max_tokens`` or the context. The attribute `partial`
            of the error has the partial answer.
        InvalidAnswerError
            If the answer is not valid against its schema or class. This is a kind of FillError.
        InvalidArgumentError
            If the schema or a setting is malformed.
        NotSupportedError
            If a required extra is not installed.
        BusyError, ChatTemplateError
            As :meth:`generate`.
        """
        on_span, timeout = settings.pop("on_span", None), settings.pop("timeout", None)
        check_callback("on_span", on_span)
        with_steps = on_span is not None
        run = fill_run(
            self.session, prompt, schema, method="fill", with_steps=with_steps, **settings
        )
        return self._result(run, timeout, on_span)

    @overload
    def fill_stream(
        self, prompt: AnyPrompt, schema: type[T], **settings: Unpack[FillSettings]
    ) -> Iterator[PartialField | FillResult[T]]: ...
    @overload
    def fill_stream(
        self, prompt: AnyPrompt, schema: Any, **settings: Unpack[FillSettings]
    ) -> Iterator[FilledSpan | PartialField | FillResult[Any]]: ...
    def fill_stream(
        self, prompt: AnyPrompt, schema: Any, **settings: Unpack[FillSettings]
    ) -> Iterator[Any]:
        """Yield each finished field of a schema, or each span of a skeleton, and then the result.

        A field is a :class:`~eliza_ffi.PartialField`, a span a :class:`~eliza_ffi.FilledSpan`. The
        parameters and errors are the same as in :meth:`fill`, but ``retries`` must be 0.

        >>> *fields, result = model.fill_stream("3 + 4 is ", {"enum": [7]})
        >>> result.value
        7
        """
        timeout = settings.pop("timeout", None)
        run = fill_run(
            self.session, prompt, schema, method="fill_stream", with_steps=True, **settings
        )
        return self._steps(run, timeout)

    def fill_many(
        self,
        prompts: Iterable[AnyPrompt],
        schema: Any,
        *,
        progress: Callable[[int, int | None], Any] | None = None,
        max_concurrency: int | None = None,
        return_exceptions: bool = False,
        **settings: Unpack[FillSettings],
    ) -> list[FillResult[Any]]:
        """Generate a structured answer for each of many prompts, and return all in order.

        >>> [each.value for each in model.fill_many(["1 + 1 is ", "3 + 4 is "], {"enum": [7]})]
        [7, 7]

        Parameters
        ----------
        prompts, progress, max_concurrency, return_exceptions
            As :meth:`generate_many`.
        schema, **settings
            As :meth:`fill`.
        """
        prompts = check_prompts(prompts, "fill")
        run = partial(fill_run, self.session, method="fill_many", with_steps=False)
        batch = progress, max_concurrency, return_exceptions
        return self._each(prompts, ((each, schema) for each in prompts), run, settings, *batch)

    # ---- Tool calls -----------------------------------------------------------------------------

    @overload
    def call_tool(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]],
        tool_choice: Literal["required"],
        **settings: Unpack[ToolSettings],
    ) -> ToolCall: ...

    @overload
    def call_tool(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]],
        tool_choice: str | Mapping[str, Any] = ...,
        **settings: Unpack[ToolSettings],
    ) -> ToolCall | TextAnswer: ...

    def call_tool(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]],
        tool_choice: str | Mapping[str, Any] = "auto",
        **settings: Unpack[ToolSettings],
    ) -> ToolCall | TextAnswer:
        """Let the model call a tool or answer in words.

        The prompt and the call are written in the model's own tool-call format. The model does not
        generate the fixed text of this format. It chooses the tool's name from the list of tools,
        and generates arguments that match the tool's schema.

        >>> messages = [{"role": "user", "content": "What time is it?"}]
        >>> model.call_tool(messages, tools, "required").name
        'get_time'

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
            Maximum number of tokens in the call's arguments, or in the answer in words, 1,024 by
            default; 0 = no limit except the context.
        **settings
            ``temperature``, ``top_k``, ``top_p``, ``seed`` and ``sampling`` apply to the arguments
            and to the answer in words, which are greedy by default. The tool is always the most
            probable one. ``stop`` applies only to the answer in words. ``think`` is as in
            :meth:`choose`, and ``cache`` and ``timeout`` as in :meth:`generate`.

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
        BusyError
            As :meth:`generate`.
        """
        timeout = settings.pop("timeout", None)
        run = tools_run(self.session, messages, tools, tool_choice, method="call_tool", **settings)
        return cast(ToolCall | TextAnswer, self._result(run, timeout, read=one_call))

    @overload
    def call_tools(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]],
        tool_choice: Literal["required"],
        *,
        max_calls: int = ...,
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
        **settings: Unpack[ToolSettings],
    ) -> ToolCalls | TextAnswer: ...

    def call_tools(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]],
        tool_choice: str | Mapping[str, Any] = "auto",
        *,
        max_calls: int = MAX_CALLS,
        **settings: Unpack[ToolSettings],
    ) -> ToolCalls | TextAnswer:
        """Let the model call several tools in one turn or answer in words.

        After each call, the model makes another call if this has a probability of at least one
        half. Some formats allow only one call per turn.

        >>> messages = [{"role": "user", "content": "What time is it?"}]
        >>> [call.name for call in model.call_tools(messages, tools, "get_time", max_calls=1)]
        ['get_time']

        Parameters
        ----------
        messages, tools, tool_choice, **settings
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
        timeout = settings.pop("timeout", None)
        settings_and_calls: Any = {**settings, "max_calls": max_calls}
        run = tools_run(
            self.session, messages, tools, tool_choice, method="call_tools", **settings_and_calls
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

        >>> n_tokens = model.save_prompt_cache("system.slot", "Be brief.")  # doctest: +SKIP

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
        BusyError, ContextFullError
            As :meth:`generate`.
        """
        return cast(int, self._result(save_run(self.session, path, prompt, cache), timeout))

    def load_prompt_cache(
        self,
        path: str | os.PathLike[str],
        *,
        cache: CacheOptions | None = None,
        timeout: float | None = None,
    ) -> int:
        """Load a prompt that :meth:`save_prompt_cache` saved into a free slot.

        Pass the whole prompt to later requests. Only the tokens after the restored ones are
        decoded. The slot is not reserved: another prompt may overwrite it later.

        >>> n_tokens = model.load_prompt_cache("system.slot")  # doctest: +SKIP

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
        MissingFileError
            If the file does not exist.
        NativeFaultError
            If the file cannot be read, is damaged, or was saved with another model, adapter, KV
            cache type or version of llama.cpp.
        ContextFullError
            If the file has more tokens than fit into the context.
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

    def _after(self, task: Task[T], then: Callable[[T], Any]) -> Any:
        """Run a task, and return what `then` returns for its result."""
        return then(task.run())

    def _steps(self, run: Run[Any], timeout: float | None) -> Iterator[Any]:
        return self.session.scheduler.steps(run, timeout)

    def _stream(self, run: Run[Any], timeout: float | None) -> TextStream:
        return TextStream(self.session.scheduler.steps(run, timeout))

    def _each(
        self,
        prompts: Iterable[Any],
        items: Iterable[tuple[Any, ...]],
        run: Callable[..., Run[Any]],
        settings: Any,
        progress: Callable[[int, int | None], Any] | None,
        max_concurrency: int | None,
        return_exceptions: bool,
    ) -> list[Any]:
        """Run a request for each prompt; `items` has its arguments, and `settings` the keywords."""
        timeout, on_text = settings.pop("timeout", None), settings.get("on_text")

        def task(item: tuple[Any, ...]) -> Task[Any]:
            return Task(self.session, run(*item, **settings), timeout, on_step=on_text)

        return self._run_many(
            items,
            task,
            at_once=self.session.at_once(max_concurrency),
            total=length_of(prompts),
            progress=progress,
            on_error=kept_or_raised(return_exceptions, "prompts"),
        )

    def _run_many(
        self,
        items: Iterable[Item],
        task: Callable[[Item], Task[Any]],
        read: Callable[[list[Any]], list[Any]] = list,
        **options: Any,
    ) -> list[Any]:
        """Run a task for each item; `read` converts the list of all results."""
        return read(run_many(items, task, **options))
