"""Run a language model in process, and make it choose.

>>> import eliza_ffi
>>> with eliza_ffi.Model() as model:  # doctest: +SKIP
...     model.choose("message: stop!\\naction: ", ["RESPOND", "IGNORE", "STOP"]).value
'STOP'
"""

from __future__ import annotations

from .choices.choice_set import Choice
from .choices.token_tree import TokenTreePayload
from .errors import ElizaError
from .library.capabilities import InferenceCapabilities, detect_capabilities
from .model import Generation, Model
from .runner.streaming import FfiStreamingGenerateArgs, FfiStreamingRunner
from .skeleton.fill_result import FillResult
from .skeleton.response import Skeleton

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
