"""Exceptions of the package cross process boundaries."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest

from eliza_ffi import errors
from eliza_ffi.errors import ContextFullError, ElizaError, FillError
from eliza_ffi.library.protocol import SpanResult
from eliza_ffi.model import Model
from eliza_ffi.structured.fill_result import FilledSpan, FillResult

SPAN = FilledSpan(0, "name", "enum", '{"name":', '"Ann"', "Ann", -0.5, (1, 2), False)
PARTIAL = FillResult('{"name":"Ann"', None, (SPAN,), (1, 2), False, 3, 0.25, None)
KINDS = [
    kind
    for name in errors.__all__
    if isinstance(kind := getattr(errors, name), type) and issubclass(kind, ElizaError)
]


def raised(kind: type[ElizaError]) -> ElizaError:
    if issubclass(kind, FillError):
        return kind("the text", PARTIAL)
    error = kind("the text")
    if isinstance(error, ContextFullError):
        error.partial = SpanResult("Ann", -0.5, 2)
    return error


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("copied", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy])
def test_every_exception_survives_pickling_and_copying(
    kind: type[ElizaError], copied: Callable[[ElizaError], ElizaError]
) -> None:
    error = raised(kind)
    error.note = "added by the caller"  # type: ignore[attr-defined]
    found = copied(error)
    assert type(found) is kind and str(found) == "the text"
    assert vars(found) == vars(error)


def test_an_open_model_cannot_be_pickled(tiny_model: Model) -> None:
    with pytest.raises(TypeError, match="pass the path of its file"):
        pickle.dumps(tiny_model)
