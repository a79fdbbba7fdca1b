"""Detect the capabilities of a library."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

from ..checks import wrong
from .abi import CONTEXT_SIZE_SINCE, KV_TYPES_SINCE, MOBILE_CONFIG_SIZE, PREFIX
from .binding import CffiBinding
from .loading import Library
from .protocol import STOP_AT_LEAF, TRIE_ARGMAX, TRIE_BEST_LEAF, TRIE_SAMPLE

_MODES = {"argmax": 1 << TRIE_ARGMAX, "sample": 1 << TRIE_SAMPLE, "best-leaf": 1 << TRIE_BEST_LEAF}
_MODES["stop-at-leaf"] = STOP_AT_LEAF


@dataclass(frozen=True)
class InferenceCapabilities:
    """The capabilities of a library.

    elizaOS's ``MobileInferenceCapabilities`` has the first five fields.

    Attributes
    ----------
    streaming_llm : bool
        Whether the library generates text.
    mtp_supported : bool
        Whether the library drafts tokens if a stream's configuration requests it.
    omnivoice_streaming : bool
        Whether the library streams speech.
    max_context_tokens : int
        The context length that the model was trained for. 0 = unknown: the library does not report
        it, or no context was given.
    recommended_gpu_layers : int
        -1 = all layers, if the library reports a GPU; otherwise 0.
    abi_version : str
        Empty without a library.
    pull, push : bool
        Whether the library has ``next`` (every library does) and ``generate``.
    cancel : bool
        Whether a forward pass can be stopped (every library can).
    token_trie : bool
        Whether a token trie can constrain the output.
    trie_modes : tuple of str
        A subset of ``"argmax"``, ``"sample"``, ``"best-leaf"`` and ``"stop-at-leaf"``. Empty if the
        library does not report its modes.
    text_choices, prepared_choices, endings, ranking, token_masks : bool
        Whether the library accepts choices as strings, prepares choices for repeated use, scores
        several endings of a prompt together, finds the most probable choices without scoring all,
        and accepts a mask for the next token.
    fill, sampling, stats, logprobs : bool
        Whether the library has structured answers, the full set of samplers, counters, and
        log-probabilities of tokens.
    kv_quant : bool
        Whether the data types of the KV cache can be set.
    slots : bool
        Whether the library can save a slot to a file and restore it.
    tokenizer, embeddings, token_embeddings, hidden_states : bool
        Whether the library has a tokenizer, embeddings of texts and of single tokens, and hidden
        states.
    end_of_turn, verifier_events, vision : bool
        Whether the library has the probability of the end of a turn, callbacks for checked drafts,
        and image input.
    context_size : str
        How to set the context size: ``"option"`` = by an option; ``"config"`` = in the 88-byte
        configuration of :class:`~eliza_ffi.elizaos.aosp.AospStreamingLlmBinding`; ``"none"`` = it
        cannot be set.
    config_size : int
        The size in bytes of the stream configuration that a library of this version reads.
    missing_symbols : tuple of str
        Functions that the C header declares and the library lacks.
    """

    streaming_llm: bool = False
    mtp_supported: bool = False
    omnivoice_streaming: bool = False
    max_context_tokens: int = 0
    recommended_gpu_layers: int = 0
    abi_version: str = ""
    pull: bool = False
    push: bool = False
    cancel: bool = False
    token_trie: bool = False
    trie_modes: tuple[str, ...] = ()
    text_choices: bool = False
    prepared_choices: bool = False
    endings: bool = False
    ranking: bool = False
    token_masks: bool = False
    fill: bool = False
    sampling: bool = False
    stats: bool = False
    logprobs: bool = False
    kv_quant: bool = False
    slots: bool = False
    tokenizer: bool = False
    embeddings: bool = False
    token_embeddings: bool = False
    hidden_states: bool = False
    end_of_turn: bool = False
    verifier_events: bool = False
    vision: bool = False
    context_size: str = "none"
    config_size: int = 0
    missing_symbols: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as a dict that can be written as JSON."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
        }

    def to_mobile(self) -> dict[str, bool | int]:
        """Return the five fields of ``MobileInferenceCapabilities`` under elizaOS's names."""
        return {
            "streamingLlm": self.streaming_llm,
            "mtpSupported": self.mtp_supported,
            "omnivoiceStreaming": self.omnivoice_streaming,
            "maxContextTokens": self.max_context_tokens,
            "recommendedGpuLayers": self.recommended_gpu_layers,
        }


def detect_capabilities(
    source: Library | CffiBinding | str | os.PathLike[str] | None, ctx: Any | None = None
) -> InferenceCapabilities:
    """Return the capabilities of a library.

    Parameters
    ----------
    source
        A loaded library, the path of a library, or a binding. With None, the result reports no
        capabilities.
    ctx
        A context, which is needed for `max_context_tokens`. Its model is loaded if necessary.

    Raises
    ------
    ElizaError
        If the library, or the model of `ctx`, cannot be loaded.
    """
    if source is None:
        return InferenceCapabilities()
    if isinstance(source, CffiBinding):
        binding = source
    elif not isinstance(source, Library | str | os.PathLike):
        raise wrong("source", "a Library, its path, a CffiBinding or None", source)
    else:
        binding = CffiBinding(source if isinstance(source, Library) else Library(source))
    library = binding.library
    facts = binding.describe(ctx) if binding.supports("describe") else {}
    has_devices = any(device.get("gpu") for device in facts.get("devices", ()))
    streams = _has(library, "llm_stream_open", "llm_stream_supported")
    modes = binding.trie_modes
    return InferenceCapabilities(
        streaming_llm=streams,
        mtp_supported=library.probe(f"{PREFIX}llm_mtp_supported"),
        omnivoice_streaming=library.probe(f"{PREFIX}tts_stream_supported"),
        max_context_tokens=int(facts.get("model", {}).get("n_ctx_train", 0)) if streams else 0,
        recommended_gpu_layers=-1 if streams and has_devices else 0,
        abi_version=library.abi_version,
        pull=library.has(f"{PREFIX}llm_stream_next"),
        push=library.has(f"{PREFIX}llm_stream_generate"),
        cancel=library.has(f"{PREFIX}llm_stream_cancel"),
        token_trie=binding.supports("set_token_trie") and binding.supports("clear_token_trie"),
        trie_modes=tuple(name for name, bit in _MODES.items() if modes & bit),
        text_choices=binding.supports("set_text_choices"),
        prepared_choices=binding.supports("set_choices"),
        endings=_has(library, "llm_stream_score_endings", "llm_score_endings_supported"),
        ranking=_has(library, "llm_stream_rank", "llm_rank_supported"),
        token_masks=_has(library, "llm_stream_set_forced_tokens", "llm_token_mask_supported"),
        fill=_has(library, "llm_stream_fill", "llm_fill_supported"),
        sampling=binding.supports("set_sampling"),
        stats=binding.supports("stats"),
        logprobs=binding.supports("set_logprobs"),
        kv_quant=library.probe(f"{PREFIX}llm_kv_quant_supported"),
        slots=binding.supports("save_slot") and binding.supports("restore_slot"),
        tokenizer=_has(library, "tokenize", "tokenize_supported"),
        embeddings=_has(library, "embed", "embed_supported"),
        token_embeddings=_has(library, "token_embeddings", "token_embeddings_supported"),
        hidden_states=_has(library, "llm_stream_hidden_states", "llm_hidden_states_supported"),
        end_of_turn=_has(library, "llm_eot_score", "llm_eot_supported"),
        verifier_events=binding.supports("set_verifier_callback"),
        vision=library.probe(f"{PREFIX}vision_supported"),
        context_size=_context_size(library),
        config_size=_config_size(library),
        missing_symbols=library.missing_symbols,
    )


def _has(library: Library, name: str, probe: str) -> bool:
    """Return whether a library has a function and its probe, if there is one, is not 0."""
    if not library.has(PREFIX + name):
        return False
    return not library.has(PREFIX + probe) or library.probe(PREFIX + probe)


def _context_size(library: Library) -> str:
    if library.has(f"{PREFIX}set_option"):
        return "option"
    return "config" if library.version >= CONTEXT_SIZE_SINCE else "none"


def _config_size(library: Library) -> int:
    if not library.is_older:
        return int(library.ffi.sizeof("eliza_llm_stream_config_t"))
    if library.version < KV_TYPES_SINCE:
        return 64
    return 80 if library.version < CONTEXT_SIZE_SINCE else MOBILE_CONFIG_SIZE
