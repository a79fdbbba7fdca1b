"""Run a language model in process, and make it choose.

>>> import eliza_ffi
>>> with eliza_ffi.Model() as model:  # doctest: +SKIP
...     model.choose("message: stop!\\naction: ", ["RESPOND", "IGNORE", "STOP"]).value
'STOP'
"""

from __future__ import annotations

from .capabilities import InferenceCapabilities, detect_capabilities
from .choices import Choice
from .errors import ElizaError
from .fill_result import FillResult
from .model import Generation, Model
from .runner import FfiStreamingGenerateArgs, FfiStreamingRunner
from .skeleton import Skeleton
from .token_tree import TokenTreePayload

__all__ = [
    "Choice",
    "ElizaError",
    "FfiStreamingGenerateArgs",
    "FfiStreamingRunner",
    "FillResult",
    "Generation",
    "InferenceCapabilities",
    "Model",
    "Skeleton",
    "TokenTreePayload",
    "__version__",
    "detect_capabilities",
]

__version__ = "0.1.0"
