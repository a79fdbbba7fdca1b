"""The chat templates of many models, from llama.cpp's source."""

from __future__ import annotations

import functools

from fetch_llama_cpp import source_tree

from eliza_ffi.chat import ChatTemplate
from eliza_ffi.chat.call_finder import find_call_format
from eliza_ffi.chat.call_format import CallFormat

REJECTS_TEXT = "google-translategemma-4b-it"
"""A template that needs the names of two languages in each message."""


@functools.cache
def real_templates() -> dict[str, ChatTemplate]:
    """Return the templates by name."""
    files = sorted((source_tree() / "models" / "templates").glob("*.jinja"))
    return {
        file.stem: ChatTemplate(file.read_text(encoding="utf-8"), "<s>", "</s>") for file in files
    }


@functools.cache
def real_formats() -> dict[str, CallFormat]:
    """Return the formats of tool calls by the names of their templates, without `REJECTS_TEXT`."""
    return {
        name: find_call_format(template)
        for name, template in real_templates().items()
        if name != REJECTS_TEXT
    }
