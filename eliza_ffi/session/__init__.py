"""An open model and its requests.

:mod:`session` opens the model. Arguments become a checked request (:mod:`requests`,
:mod:`tool_calls`), and the request a run (:mod:`runs`, :mod:`run`). The run waits for a slot
(:mod:`scheduler`, :mod:`turns`), uses one or more streams (:mod:`generation`, :mod:`filling`,
:mod:`scoring`, :mod:`ranking`), and yields steps and a result (:mod:`reading`,
:mod:`text_stream`). A :class:`~.task.Task` lets a caller run, await or cancel it.
"""

from __future__ import annotations

from .options import CacheOptions, Speculation
from .results import GenerationResult, RerankResult, TokenLogprob
from .text_stream import AsyncTextStream, TextStream
from .tool_calls import TextAnswer, ToolCall, ToolCalls

__all__ = [
    "AsyncTextStream",
    "CacheOptions",
    "GenerationResult",
    "RerankResult",
    "Speculation",
    "TextAnswer",
    "TextStream",
    "TokenLogprob",
    "ToolCall",
    "ToolCalls",
]
