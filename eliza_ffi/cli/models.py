"""``eliza-ffi models``: list the models in the caches."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from ..chat import ChatTemplate
from ..chat.call_finder import find_call_format
from ..decisions.models.gguf_metadata import MetadataValue, is_truncated, read_metadata
from ..errors import ElizaError
from ..hub import CachedModel, cached_models
from ..terminal import printable, terminal_width, text_table
from .console import add_options, print_json

TYPE, ARCHITECTURE = "general.type", "general.architecture"
TEMPLATE = "tokenizer.chat_template"
WANTED = (".pooling_type", ".decision.type")

POOLING_NONE, POOLING_RANK = 0, 4
"""The numbers of two pooling types in llama.cpp: no pooling, and the score of a reranker."""


def add_models_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "List the models in the caches of Hugging Face and llama.cpp, by the names that --model "
        "takes. Only the headers of the files are read."
    )
    add_options(parser, {"--json": "print JSON: a list of all facts"})


def run_models(arguments: argparse.Namespace) -> int:
    models = [_facts(model) for model in cached_models()]
    if arguments.json:
        print_json(models)
    elif not models:
        print("no models found in the caches of Hugging Face and llama.cpp")
    else:
        rows = [[facts["name"], _uses(facts), _size(facts["size_bytes"])] for facts in models]
        print(text_table([["model", "use", "size"], *rows], left=2, width=terminal_width()))
    return 0


def _facts(model: CachedModel) -> dict[str, Any]:
    problem = None
    entries: Mapping[str, MetadataValue] = {}
    try:
        entries = read_metadata(model.path, _is_wanted)
        if model.missing:
            problem = f"{len(model.missing)} of its files missing, such as {model.missing[0]}"
        elif is_truncated(model.path):
            problem = "the file is incomplete: download it again"
    except ElizaError as error:
        problem = str(error)
    architecture = entries.get(ARCHITECTURE)
    pooling = entries.get(f"{architecture}.pooling_type", POOLING_NONE)
    return {
        "name": model.name,
        "path": str(model.path),
        "size_bytes": model.size_bytes,
        "type": entries.get(TYPE, "model"),
        "architecture": architecture,
        "chat_template": TEMPLATE in entries,
        "tools": _writes_calls(entries.get(TEMPLATE)),
        "embedding": pooling not in (POOLING_NONE, POOLING_RANK),
        "decision_type": entries.get(f"{architecture}.decision.type"),
        "problem": problem,
    }


def _is_wanted(name: str) -> bool:
    return name in (TYPE, ARCHITECTURE, TEMPLATE) or name.endswith(WANTED)


def _writes_calls(template: MetadataValue | None) -> bool:
    """Return whether the model's own chat template has a format for tool calls."""
    try:
        return isinstance(template, str) and not find_call_format(ChatTemplate(template)).generic
    except ElizaError:
        return False


def _uses(facts: dict[str, Any]) -> str:
    if facts["problem"]:
        return printable(facts["problem"])
    if facts["type"] != "model":  # such as a LoRA adapter
        return printable(str(facts["type"]))
    names = {"chat_template": "chat", "tools": "tools", "embedding": "embeddings"}
    found = [word for name, word in names.items() if facts[name]]
    if facts["decision_type"]:
        found.append(f"decisions ({facts['decision_type']})")
    return ", ".join(found) or "text"


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:,.1f} MiB"
