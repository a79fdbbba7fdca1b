"""Prompts, conversations and tool calls, in which a user's words are never control tokens."""

from __future__ import annotations

from .call_finder import (
    find_call_format,
)
from .call_format import (
    Call,
    CallFormat,
    render_call,
)
from .call_reader import (
    parse_call,
)
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
from .tool_messages import (
    tool_messages,
)
from .tools import (
    Tool,
    read_tools,
)

__all__ = [
    "Call",
    "CallFormat",
    "ChatTemplate",
    "ChatTokenizer",
    "Messages",
    "Prompt",
    "PromptTokenizer",
    "Tool",
    "find_call_format",
    "parse_call",
    "read_tools",
    "render_call",
    "template_of_model",
    "tool_messages",
]
