"""Detect the capabilities of a library."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..checks import wrong
from .abi import MOBILE_CONFIG_SIZE, PREFIX
from .binding import CffiBinding
from .loading import Library
from .protocol import STOP_AT_LEAF, TRIE_ARGMAX, TRIE_BEST_LEAF, TRIE_SAMPLE

_MODES = {"argmax": 1 << TRIE_ARGMAX, "sample": 1 << TRIE_SAMPLE, "best-leaf": 1 << TRIE_BEST_LEAF}
_MODES["stop-at-leaf"] = STOP_AT_LEAF

FEATURES = {
    "push": ("llm_stream_generate",),
    "token_trie": ("set_token_trie", "clear_token_trie"),
    "text_choices": ("set_text_choices",),
    "prepared_choices": ("set_choices",),
    "decisions": ("decide", "cancel_decide"),
    "endings": ("llm_stream_score_endings", "llm_score_endings_supported"),
    "ranking": ("llm_stream_rank", "llm_rank_supported"),
    "token_masks": ("llm_stream_set_forced_tokens", "llm_token_mask_supported"),
    "fill": ("llm_stream_fill", "llm_fill_supported"),
    "sampling": ("llm_stream_set_sampling",),
    "stats": ("llm_stream_stats",),
    "logprobs": ("llm_stream_set_logprobs",),
    "kv_quant": ("llm_kv_quant_supported",),
    "slots": ("llm_stream_save_slot", "llm_stream_restore_slot"),
    "tokenizer": ("tokenize", "tokenize_supported"),
    "embeddings": ("embed", "embed_supported"),
    "token_embeddings": ("token_embeddings", "token_embeddings_supported"),
    "shared_embeddings": ("embed_texts", "embed_supported"),
    "reranking": ("rerank", "rerank_supported"),
    "end_of_turn": ("llm_eot_score", "llm_eot_supported"),
    "verifier_events": ("set_verifier_callback",),
    "vision": ("vision_supported",),
}
"""The functions of each feature. A probe, whose name ends in ``_supported``, must not return 0."""


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
    features : mapping of str to bool
        Whether the library has each of the `FEATURES`.
    trie_modes : tuple of str
        A subset of ``"argmax"``, ``"sample"``, ``"best-leaf"`` and ``"stop-at-leaf"``. Empty if the
        library does not report its modes.
    context_size : str
        How to set the context size: ``"option"`` = by an option; ``"config"`` = in the 88-byte
        configuration of :class:`~eliza_ffi.elizaos.aosp.AospStreamingLlmBinding`.
    config_size : int
        The size in bytes of the stream configuration that the library reads.
    missing_symbols : tuple of str
        Functions that the C header declares and the library lacks.
    """

    streaming_llm: bool = False
    mtp_supported: bool = False
    omnivoice_streaming: bool = False
    max_context_tokens: int = 0
    recommended_gpu_layers: int = 0
    abi_version: str = ""
    features: Mapping[str, bool] = field(default_factory=dict)
    trie_modes: tuple[str, ...] = ()
    context_size: str = ""
    config_size: int = 0
    missing_symbols: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, and each feature, as a dict that can be written as JSON."""
        facts = asdict(self)
        return {**facts.pop("features"), **{name: _json(value) for name, value in facts.items()}}

    def to_mobile(self) -> dict[str, bool | int]:
        """Return the five fields of ``MobileInferenceCapabilities`` under elizaOS's names."""
        return {
            "streamingLlm": self.streaming_llm,
            "mtpSupported": self.mtp_supported,
            "omnivoiceStreaming": self.omnivoice_streaming,
            "maxContextTokens": self.max_context_tokens,
            "recommendedGpuLayers": self.recommended_gpu_layers,
        }


def _json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def detect_capabilities(
    source: Library | CffiBinding | str | os.PathLike[str] | None, ctx: Any | None = None
) -> InferenceCapabilities:
    """Return the capabilities of a library.

    >>> detect_capabilities(model.binding).streaming_llm
    True

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
    size = library.ffi.sizeof("eliza_llm_stream_config_t")
    return InferenceCapabilities(
        streaming_llm=streams,
        mtp_supported=_has(library, "llm_mtp_supported"),
        omnivoice_streaming=_has(library, "tts_stream_supported"),
        max_context_tokens=int(facts.get("model", {}).get("n_ctx_train", 0)) if streams else 0,
        recommended_gpu_layers=-1 if streams and has_devices else 0,
        abi_version=library.abi_version,
        features={name: _has(library, *functions) for name, functions in FEATURES.items()},
        trie_modes=tuple(name for name, bit in _MODES.items() if modes & bit),
        context_size="option" if binding.supports("set_option") else "config",
        config_size=MOBILE_CONFIG_SIZE if library.is_elizaos else size,
        missing_symbols=library.missing_symbols,
    )


def _has(library: Library, *names: str) -> bool:
    """Return whether a library has functions; it may lack a probe that is not the first of them."""
    first, *others = (PREFIX + name for name in names)
    optional = [name for name in others if library.has(name) or not name.endswith("_supported")]
    return all(
        library.probe(name) if name.endswith("_supported") else library.has(name)
        for name in (first, *optional)
    )
