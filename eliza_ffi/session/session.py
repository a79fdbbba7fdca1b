"""An open model: its library, its context, and the state that lives as long as the context."""

from __future__ import annotations

import functools
import logging
import os
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any, Literal

from .. import _resources
from .._lazy import lazy_property
from ..chat.call_finder import find_call_format
from ..chat.call_format import CallFormat
from ..chat.prompt import Prompt, PromptTokenizer
from ..chat.template import ChatTemplate, template_of_model
from ..chat.tokens import ChatTokenizer, frame_of
from ..checks import (
    check_callback,
    check_number,
    check_path,
    check_text,
    check_whole,
    wrong,
)
from ..choices.label_set import LabelSet
from ..choices.prepared_labels import ChoiceCache
from ..errors import (
    ChatTemplateError,
    ElizaError,
    InvalidArgumentError,
    ModelError,
    NotSupportedError,
)
from ..hub import check_exists, find_model
from ..library.binding import CffiBinding
from ..library.loading import Library
from ..library.protocol import PreparedChoices, Tokens
from ..structured.guidance import Guidance
from ..structured.token_texts import TokenSpeller, TokenTexts
from ..terminal import counted
from .run import n_ctx_of
from .scheduler import Scheduler
from .threads import MAX_SLOTS, Threads
from .turns import Turns

logger = logging.getLogger("eliza_ffi")

DEFAULT_SLOTS = 8
DEFAULT_WAIT_MS = 30_000

PREFIXES = ("input_prefix", "option_prefix")
"""The options that set the text before each input and option of an embedding model."""

OWN_SETTINGS = ("cache_type_k", "cache_type_v", "chat_template", *PREFIXES)
"""The options of a model that are not options of the library."""

N_HELPERS = 8
"""How many requests of event loops are prepared at the same time."""

MAX_CALL_FORMATS = 16
"""How many tool-call formats are cached; a format depends on the chat template's variables."""

ABILITIES = {
    "decoder": "it generates text (choose, fill, decide), and computes embeddings (embed)",
    "encoder": "it is an encoder, which computes embeddings (embed) and decides (decide)",
    "reranker": "it is a reranker, which computes the relevance of documents (rerank) and decides "
    "(decide)",
}
"""The abilities of each kind of model, and their methods, for error messages."""

ENCODER_SETTINGS = ("n_threads", "device", "rpc", *PREFIXES)
"""The options that the encoder has in common with the model, or that only the encoder has."""

DECISIONS_ON_CPU = 2
"""How many decisions run at the same time on a CPU."""


class Session:
    """A context of the library. It is open until it is closed or garbage-collected.

    The parameters are as for :class:`~eliza_ffi.model.Model`. `settings` are options of the context
    by name; an option that is None keeps its default. `encoder` is the session of the model's
    encoder, if it was opened with one.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        *,
        library: str | os.PathLike[str] | Library | None,
        n_gpu_layers: int,
        settings: Mapping[str, object],
        progress: Callable[[str, float], None] | None,
        encoder: str | os.PathLike[str] | None = None,
    ) -> None:
        given = _resources.default_model_path() if path is None else path
        check_path("path", given)
        if encoder is not None:
            check_path("encoder", encoder)
        _check_settings(settings)
        check_callback("progress", progress)
        if not isinstance(library, Library | None):
            check_path("library", library)
        if not isinstance(library, Library):
            library = Library(library, bundle=given)
        # After loading the library, because a missing library should be reported before a download.
        self.path = find_model(given, progress)
        self._own_settings = {
            name: check_text(f"the option {name}", settings[name])
            for name in OWN_SETTINGS
            if settings.get(name) is not None and not (encoder is not None and name in PREFIXES)
        }
        for name, own in self._own_settings.items():
            if not own.strip() and name not in PREFIXES:
                raise InvalidArgumentError(f"the option {name} is empty")
        self.binding = CffiBinding(
            library, *map(self._own_settings.get, ("cache_type_k", "cache_type_v"))
        )
        self.n_gpu_layers = n_gpu_layers
        self.settings = dict(settings)
        # For event loops: `workers` run requests, `helpers` prepare them.
        self.workers = Threads(MAX_SLOTS, "eliza-ffi-request")
        self.helpers = Threads(N_HELPERS, "eliza-ffi-prepare")
        self.model_id = str(settings.get("model_id") or "")  # the name in token-tree payloads
        self._chat: ChatTokenizer | None = None
        self._call_formats: dict[str, CallFormat] = {}
        self._guidance: Guidance | None = None
        self._has_warned = False
        self._process = os.getpid()
        self.encoder: Session | None = None
        # Absolute, because the file may be opened again after the working directory has changed.
        try:
            self._ctx = self.binding.create(str(Path(self.path).absolute()))
        except ModelError:
            check_exists(self.path)
            raise
        self.choices = ChoiceCache(partial(_label_tokens, self.binding, self._ctx))
        # The finalizer must not refer to the binding: the binding holds the callbacks, and a
        # callback may refer to an object that holds this session.
        destroy = self.binding.destroyer(self._ctx)
        self._finalizer = weakref.finalize(self, _destroy_in, self._process, destroy)
        # Bind the library's functions here. If this session referred to its own bound methods, the
        # reference cycle would keep it alive until the garbage collector runs.
        self._prompts = PromptTokenizer(
            partial(self.binding.tokenize, self._ctx),
            partial(self.binding.detokenize, self._ctx),
            partial(_frame, self.binding, self._ctx, self._own_settings.get("chat_template")),
        )
        self._speller = TokenSpeller(partial(self.binding.tokenize, self._ctx))
        # The vocabulary is read once, at its first use.
        self._vocabulary = functools.cache(
            partial(_token_texts, self._speller, self.binding, self._ctx)
        )
        has_options = self.binding.supports("set_option")
        try:
            wanted = {"n_gpu_layers": None if n_gpu_layers == -1 else n_gpu_layers, **settings}
            for key, value in wanted.items():
                if value is not None and key not in OWN_SETTINGS:
                    self.binding.set_option(self._ctx, key, str(value))
            if has_options:  # wait in `turns`, because a wait in the library cannot be interrupted
                self.binding.set_option(self._ctx, "slot_wait_ms", "0")
            if progress is not None:
                self.binding.set_progress_callback(self._ctx, progress)
            if self.binding.supports("mmap_acquire"):
                self.binding.load(self._ctx)
            if "chat_template" in self._own_settings:
                _ = self.chat()  # raises an error if the template is not valid
        except BaseException:
            self.close()
            raise

        def setting(name: str, default: int) -> int:
            value = settings.get(name)
            return default if value is None else int(str(value))

        # A library without options does not report its number of slots.
        n_slots = setting("n_slots", DEFAULT_SLOTS) if has_options else 64
        self.turns = Turns(n_slots, setting("slot_wait_ms", DEFAULT_WAIT_MS) / 1000)
        # Again, bind no methods of this session.
        self.scheduler = Scheduler(
            self.turns,
            self.workers,
            slots_wait=not has_options,
        )
        try:
            for name in PREFIXES:
                if name in self._own_settings and self.kind != "encoder":
                    raise InvalidArgumentError(
                        f"the option {name} is for an embedding model, but the model {self.path} "
                        f"is none: {self.abilities}"
                    )
            if encoder is not None:
                self.encoder = self._opened_encoder(encoder, progress)
        except BaseException:
            self.close()
            raise

    def _opened_encoder(
        self, path: str | os.PathLike[str], progress: Callable[[str, float], None] | None
    ) -> Session:
        if self.kind != "decoder":
            raise InvalidArgumentError(
                f"encoder must be None: the model {self.path} does not generate text, and "
                "compares texts itself"
            )
        encoder = Session(
            path,
            library=self.binding.library,
            n_gpu_layers=self.n_gpu_layers,
            settings={name: self.settings.get(name) for name in ENCODER_SETTINGS},
            progress=progress,
        )
        if encoder.kind == "decoder" or encoder.is_encoder_decoder:
            encoder.close()
            kind = "an encoder-decoder" if encoder.is_encoder_decoder else "a decoder"
            raise InvalidArgumentError(
                f"encoder: expected an embedding model or a reranker, got {encoder.path}, {kind}"
            )
        return encoder

    def __str__(self) -> str:
        name = Path(self.path).name
        if not self.is_open:
            return f"{name}, closed"
        facts = self.binding.describe(self._ctx) if self.binding.supports("describe") else {}
        model = facts.get("model", {})
        described = []
        if model:
            n_params, size = model["n_params"] / 1e6, model["size_bytes"] / 2**20
            described = [str(model["description"]), f"{n_params:.3g} M weights, {size:.3g} MiB"]
        with_encoder = [] if self.encoder is None else [f"encoder {Path(self.encoder.path).name}"]
        return ", ".join([name, *described, counted(self.turns.n, "slot"), *with_encoder])

    def at_once(self, asked: int | None) -> int:
        """Return the maximum number of requests of a batch that run at the same time."""
        if asked is None:
            return self.turns.n
        return check_whole("max_concurrency", asked, 1)

    def decisions_at_once(self, asked: int | None) -> int:
        """Return how many decisions run at the same time, in a batch or from several callers.

        The forward passes of decisions are long. On a CPU, running many together saves no time, and
        each pass must also read the KV cache of all the others. Two decisions keep a CPU busy. On
        another device, the limit is the number of slots. So it is for encoders, which read the
        inputs of waiting decisions together.
        """
        if asked is None and self._is_on_cpu and self.kind == "decoder":
            return min(self.turns.n, DECISIONS_ON_CPU)
        return self.at_once(asked)

    @lazy_property
    def _facts(self) -> dict[str, Any]:
        """The facts about the model that do not change; empty for elizaOS's own library."""
        facts = self.describe() if self.binding.supports("describe") else {}
        return dict(facts.get("model", {}))

    @lazy_property
    def kind(self) -> Literal["decoder", "encoder", "reranker"]:
        """Whether the model generates text, computes embeddings, or the relevance of documents.

        Some embedding models and rerankers could also generate text, but were trained for the
        pooling that their file names.
        """
        pooling = self._facts.get("pooling", "none")
        if pooling == "rank":
            return "reranker"
        generates = self._facts.get("generates", True)
        return "decoder" if generates and pooling == "none" else "encoder"

    def of_kind(self, kind: Literal["encoder", "reranker"]) -> Session:
        """Return the encoder that was opened with the model if it is of a kind, or this session."""
        return self if self.encoder is None or self.encoder.kind != kind else self.encoder

    @property
    def abilities(self) -> str:
        """The model's abilities, for errors about unsupported calls."""
        return ABILITIES[self.kind]

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether the model is of an architecture that the library does not support."""
        return self._facts.get("architecture") == "t5"

    def check_generates(self) -> None:
        """Raise NotSupportedError if the model cannot generate text."""
        # The library has its own error for encoder-decoders.
        if not (self._facts.get("generates", True) or self.is_encoder_decoder):
            raise NotSupportedError(f"the model {self.path} cannot generate text: {self.abilities}")

    @lazy_property
    def _is_on_cpu(self) -> bool:
        placement = self._facts.get("placement", [])
        return bool(placement) and all(each["device"] == "CPU" for each in placement)

    @lazy_property
    def hidden_shape(self) -> tuple[int, int]:
        """The model's number of layers, and of values in a hidden state."""
        facts = self.describe()["model"]
        return int(facts["n_layer"]), int(facts["n_embd"])

    def warn_once(self, reason: str) -> None:
        """Log a warning unless this session has logged one before."""
        if not self._has_warned:
            self._has_warned = True
            logger.warning("%s", reason)

    def n_ctx(self) -> int | None:
        """Return the length of the context in tokens; None if the library does not report it."""
        return n_ctx_of(self.binding, self.ctx)

    @lazy_property
    def n_texts(self) -> int:
        """The maximum number of prompts that the KV cache keeps."""
        return int(self.describe()["passes"].get("n_texts", self.turns.n))

    def close(self) -> None:
        """Free the model and cancel running generations. Closing twice is harmless."""
        if self.encoder is not None:
            self.encoder.close()
        self._speller.close()
        self._finalizer()
        self.binding.forget_callbacks(self._ctx)
        self.choices.clear()
        self.workers.close()
        self.helpers.close()

    @property
    def is_open(self) -> bool:
        """Whether the session has not been closed."""
        return self._finalizer.alive

    @property
    def ctx(self) -> Any:
        """The library's context; raises an error in a fork, or if the model is closed."""
        if not self._finalizer.alive:
            raise ElizaError(f"the model {self.path} is closed")
        if os.getpid() != self._process:
            raise ElizaError(
                f"the model {self.path} was opened before this process was forked, and its threads "
                f"exist only in the parent process: open the model in the child process, or start "
                f"processes with spawn"
            )
        return self._ctx

    def tokenize(
        self, text: str, add_special: bool = False, parse_special: bool = False
    ) -> list[int]:
        """Convert text to token ids."""
        return self.binding.tokenize(self.ctx, text, add_special, parse_special)

    def detokenize(self, tokens: Tokens, unparse_special: bool = False) -> str:
        """Convert token ids to text."""
        return self.binding.detokenize(self.ctx, tokens, unparse_special=unparse_special)

    def prompt_tokens(self, prompt: str | Prompt) -> list[int]:
        """Convert a prompt to token ids, with BOS if the model expects it."""
        _ = self.ctx  # raises if the model is closed or belongs to the parent process
        return self._prompts.tokens(prompt)

    def prepared(self, prompt_with: Callable[[str], Prompt]) -> Callable[[str], list[int]]:
        """Return a function from a text to the tokens of a prompt with it, without this session.

        It is as :meth:`PromptTokenizer.filled`; call it only while the session is open.
        """
        return self._prompts.filled(prompt_with)

    def describe(self) -> dict[str, Any]:
        """Return facts about the library and the model."""
        facts = self.binding.describe(self.ctx)
        if self.encoder is not None:
            facts["encoder"] = self.encoder.describe()["model"]
        if "slot_wait_ms" in facts.get("passes", {}):
            # The library's own value is 0, because `turns` does the waiting.
            facts["passes"]["slot_wait_ms"] = round(self.turns.timeout * 1000)
        if template := self._own_settings.get("chat_template"):
            facts["model"] |= {"chat_template": template, "has_chat_template": True}
        given = {name: self._own_settings[name] for name in PREFIXES if name in self._own_settings}
        if given:
            facts["model"] |= given
        return facts

    def chat(self) -> ChatTokenizer:
        """Return the tokenizer of conversations, if the model has a chat template."""
        context = self.ctx
        if self._chat is None:
            # Bind the library's functions, not methods of this session; see the constructor.
            self._chat = ChatTokenizer(
                _template(self.binding, context, self._own_settings.get("chat_template")),
                partial(self.binding.tokenize, context),
                partial(self.binding.detokenize, context),
            )
        return self._chat

    def call_format(self, variables: Mapping[str, Any]) -> CallFormat:
        """Return the tool-call format for the chat template's `variables`, cached if possible."""
        key = repr(sorted(variables.items()))
        if key not in self._call_formats:
            if len(self._call_formats) >= MAX_CALL_FORMATS:
                self._call_formats.clear()
            self._call_formats[key] = find_call_format(self.chat().template, **variables)
        return self._call_formats[key]

    def vocabulary(self) -> TokenTexts:
        """Return the text of every token; the vocabulary is read only once."""
        _ = self.ctx  # raises if the model is closed or belongs to the parent process
        return self._vocabulary()

    def guidance(self) -> Guidance:
        """Return the interface to llguidance, prepared for the model's vocabulary."""
        _ = self.ctx
        if self._guidance is None:
            self._guidance = Guidance(self._vocabulary)
        return self._guidance


def _check_settings(settings: Mapping[str, object]) -> None:
    for name, value in settings.items():
        check_text("the name of an option", name)
        if isinstance(value, Real) and not isinstance(value, bool):
            check_number(f"the option {name}", value)
        elif not isinstance(value, str | bool | None):
            raise wrong(f"the option {name}", "a string or a number", value)


def _template(binding: CffiBinding, ctx: Any, source: str | None) -> ChatTemplate:
    """Return the chat template: `source`, or the model's own template if it is None."""
    facts = binding.describe(ctx)["model"]
    return template_of_model(facts if source is None else {**facts, "chat_template": source})


def _frame(binding: CffiBinding, ctx: Any, source: str | None) -> str:
    """Return the text around the contents of a conversation; empty without a chat template."""
    try:
        return frame_of(_template(binding, ctx, source))
    except (ChatTemplateError, NotSupportedError):
        return ""


def _token_texts(speller: TokenSpeller, binding: CffiBinding, ctx: Any) -> TokenTexts:
    table = binding.vocabulary(ctx)
    eos = binding.describe(ctx)["model"]["eos_token"]
    return TokenTexts.of(table.texts, table.control, table.ends, eos, speller)


def _label_tokens(
    binding: CffiBinding, ctx: Any, labels: LabelSet[Any], lead: str
) -> PreparedChoices:
    # Not a method of the session: that would create a reference cycle; see the constructor.
    texts = [lead + text for text in labels.texts] if lead else labels.texts
    return binding.prepare_choices(ctx, texts)


def _destroy_in(process: int, destroy: Callable[[], None]) -> None:
    # A forked child has the parent's memory, but not its threads, and would wait for them for ever.
    if os.getpid() == process:
        destroy()
