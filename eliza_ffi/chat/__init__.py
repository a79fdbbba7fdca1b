"""Prompts, conversations and tool calls. Text from users never becomes a control token."""

from __future__ import annotations

from .prompt import Prompt, PromptTokenizer
from .template import ChatTemplate, Messages, template_of_model
from .tokens import ChatTokenizer

__all__ = [
    "ChatTemplate",
    "ChatTokenizer",
    "Messages",
    "Prompt",
    "PromptTokenizer",
    "template_of_model",
]
