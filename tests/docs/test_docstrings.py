"""Every public name has a docstring, which `help` and the reference show."""

from __future__ import annotations

import doctest
import importlib
import inspect

import pytest
from public_names import ROOMS, undocumented

import eliza_ffi
from eliza_ffi import Cascade, Model

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_has_a_docstring(room: str) -> None:
    names = undocumented(importlib.import_module(room))
    assert not names, f"no docstring, or no string after the assignment of a constant: {names}"


NAMES = [name for name in eliza_ffi.__all__ if inspect.isclass(getattr(eliza_ffi, name))]


@pytest.mark.parametrize("name", [*NAMES, "calibrate", "evaluate"])
def test_the_examples_print_what_they_show(name: str, tiny_model: Model) -> None:
    shared = {each: getattr(eliza_ffi, each) for each in eliza_ffi.__all__}
    shared |= {"model": tiny_model, "cascade": Cascade([tiny_model], below=0.9)}
    shared["tools"] = [{"type": "function", "function": {"name": "get_time"}}]
    runner = doctest.DocTestRunner()
    for test in doctest.DocTestFinder().find(shared[name], name, module=False, globs=shared):
        assert runner.run(test).failed == 0, test.name


def test_methods_of_a_model_have_examples() -> None:
    members = inspect.getmembers(Model, inspect.isroutine)
    public = [member for name, member in members if not name.startswith("_") and name != "close"]
    assert [each.__name__ for each in public if ">>>" not in (each.__doc__ or "")] == []
