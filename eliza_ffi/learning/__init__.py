"""Methods that learn from labelled examples, or from inputs without labels.

:mod:`.fitting` fits a :mod:`calibration <eliza_ffi.evidence.calibration>` to examples, and
:mod:`.report` evaluates one. :mod:`.heads` fits classifiers to hidden states.
:mod:`.thresholds` decides which answers to trust: it certifies a probability above which few
answers are wrong, and returns sets of options that rarely miss the right one.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .fitting import calibrate
    from .metrics import QuestionReport
    from .report import DecisionReport, evaluate

__all__ = ["DecisionReport", "QuestionReport", "calibrate", "evaluate"]

_MODULE_OF = {
    "DecisionReport": "report",
    "QuestionReport": "metrics",
    "calibrate": "fitting",
    "evaluate": "report",
}


def __getattr__(name: str) -> Any:
    """Import a name that decisions do not need, when it is first used."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
