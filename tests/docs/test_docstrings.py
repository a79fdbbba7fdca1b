"""Every public name has a docstring, which `help` and the reference show, with an example."""

from __future__ import annotations

import asyncio
import doctest
import importlib
import inspect
from pathlib import Path

import pytest
from public_names import ROOMS, undocumented, without_example

import eliza_ffi
from eliza_ffi import Cascade, Model

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_has_a_docstring(room: str) -> None:
    names = undocumented(importlib.import_module(room))
    assert not names, f"no docstring, or no string after the assignment of a constant: {names}"


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_function_and_member_has_an_example(room: str) -> None:
    names = without_example(importlib.import_module(room))
    assert not names, f"no example in the docstring, nor in that of the class: {names}"


NAMES = {
    name: (room, found)
    for room in reversed(ROOMS)  # so that `eliza_ffi` wins
    for name in importlib.import_module(room).__all__
    if inspect.isfunction(found := getattr(importlib.import_module(room), name))
    or (inspect.isclass(found) and room == ROOMS[0])
}
"""Public functions, and classes of `eliza_ffi`, by name, with their module."""


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_print_what_they_show(
    name: str, tiny_model: Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    room, found = NAMES[name]
    of_package = {each: getattr(eliza_ffi, each) for each in eliza_ffi.__all__}
    shared = of_package | vars(importlib.import_module(room))
    shared |= {"model": tiny_model, "cascade": Cascade([tiny_model, tiny_model], below=0.9)}
    shared["tools"] = [{"type": "function", "function": {"name": "get_time"}}]
    shared["asyncio"] = asyncio
    runner = doctest.DocTestRunner()
    for test in doctest.DocTestFinder().find(found, name, module=False, globs=shared):
        assert runner.run(test).failed == 0, test.name
