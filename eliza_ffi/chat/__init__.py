"""Conversations as prompts: templates that came with a model, run where they can do no harm."""

from __future__ import annotations

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
    "template_of_model",
]
