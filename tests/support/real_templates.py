"""The chat templates of many models, from llama.cpp's source."""

from __future__ import annotations

import functools
from pathlib import Path

from fetch_llama_cpp import source_tree

from eliza_ffi.chat import ChatTemplate
from eliza_ffi.chat.call_finder import find_call_format
from eliza_ffi.chat.call_format import CallFormat

REJECTS_TEXT = "google-translategemma-4b-it"
"""A template that needs the names of two languages in each message."""


@functools.cache
def _files() -> list[Path]:
    return sorted((source_tree(with_models=True) / "models" / "templates").glob("*.jinja"))


def template_names() -> list[str]:
    """Return the names of the templates, without `REJECTS_TEXT`. This compiles no template."""
    return [file.stem for file in _files() if file.stem != REJECTS_TEXT]


@functools.cache
def real_templates() -> dict[str, ChatTemplate]:
    return {
        file.stem: ChatTemplate(file.read_text(encoding="utf-8"), "<s>", "</s>")
        for file in _files()
    }


@functools.cache
def real_formats() -> dict[str, CallFormat]:
    """Return the formats of tool calls by the names of their templates, without `REJECTS_TEXT`."""
    return {name: find_call_format(real_templates()[name]) for name in template_names()}
