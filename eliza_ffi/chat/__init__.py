"""Prompts and conversations as tokens, in which what a user wrote is never a control token."""

from __future__ import annotations

from .prompt import (
    Prompt,
    PromptTokenizer,
)
from .template import (
    ChatTemplate,
    Messages,
    template_of_model,
)
from .tokens import (
    ChatTokenizer,
)

__all__ = [
    "ChatTemplate",
    "ChatTokenizer",
    "Messages",
    "Prompt",
    "PromptTokenizer",
    "template_of_model",
]
