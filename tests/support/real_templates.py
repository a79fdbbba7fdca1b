"""The chat templates of many models, from llama.cpp's source."""

from __future__ import annotations

import functools

from fetch_llama_cpp import source_tree

from eliza_ffi.chat import ChatTemplate


@functools.cache
def real_templates() -> dict[str, ChatTemplate]:
    """Return the templates by name."""
    files = sorted((source_tree() / "models" / "templates").glob("*.jinja"))
    return {
        file.stem: ChatTemplate(file.read_text(encoding="utf-8"), "<s>", "</s>") for file in files
    }
