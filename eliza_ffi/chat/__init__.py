"""Prompts, conversations and tool calls. Text from users never becomes a control token.

A chat template (:mod:`template`) runs in a sandbox (:mod:`sandbox`, :mod:`sandbox_builtins`). The
format of tool calls (:mod:`call_format`) is found in the template (:mod:`call_finder`), read
(:mod:`call_reader`), and enforced as a grammar (:mod:`call_grammar`).
"""

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
