"""Exceptions of the package cross process boundaries."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eliza_ffi import Choice, Classifier, Speculation, errors, evaluate
from eliza_ffi.errors import ContextFullError, ElizaError, FillError, MissingFileError
from eliza_ffi.library.protocol import SpanResult
from eliza_ffi.model import Model
from eliza_ffi.structured.fill_result import FilledSpan, FillResult
from eliza_ffi.tables import open_table

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


def test_a_missing_file_is_a_file_not_found_error(tiny_model: Model, tmp_path: Path) -> None:
    path, question = tmp_path / "missing", Choice("Which?", ["a", "b"])
    opened: dict[str, Callable[[], Any]] = {
        "model": lambda: Model(path),
        "adapter": lambda: Model(lora=[(path, 1.0)]),
        "draft model": lambda: tiny_model.generate("x", speculation=Speculation(4, drafter=path)),
        "library": lambda: Model(library=path),
        "calibration": lambda: tiny_model.decide("x", question, calibration=path),
        "evaluated": lambda: evaluate(tiny_model, question, [("x", "a")], calibration=path),
        "classifier": lambda: Classifier.load(path),
        "table": lambda: open_table(path.with_suffix(".csv")),
        "Parquet": lambda: open_table(path.with_suffix(".parquet")),
        "prompt": lambda: tiny_model.load_prompt_cache(path),
    }
    for name, call in opened.items():
        with pytest.raises(FileNotFoundError, match=str(path)) as caught:
            call()
        assert isinstance(caught.value, MissingFileError), name


def test_an_open_model_cannot_be_pickled(tiny_model: Model) -> None:
    with pytest.raises(TypeError, match="pass the path of its file"):
        pickle.dumps(tiny_model)
