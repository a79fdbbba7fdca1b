"""The checks of arguments: accepted values and error messages."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkout import ROOT

from eliza_ffi import checks
from eliza_ffi.errors import InvalidArgumentError


class Icon:
    """A class whose objects are described by the class name."""


def said(call: Callable[[], Any]) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "None"),
        (True, "True"),
        (0.5, "0.5"),
        ("a" * 80, "'" + "a" * 59 + "..."),
        pytest.param(10**5000, "a number of thousands of digits", id="5,000 digits"),
        (b"a", "bytes"),
        ([], "an empty list"),
        ([1], "a list"),
        (Icon(), "an Icon"),
        (Icon, "the class Icon"),
        (np.zeros(2), "an ndarray"),
    ],
)
def test_errors_describe_a_wrong_value_in_a_few_words(value: Any, words: str) -> None:
    assert checks.found(value) == words


@pytest.mark.parametrize(
    ("check", "value", "expected"),
    [
        (checks.check_text, "a", "a"),
        (checks.check_flag, np.True_, True),
        (checks.check_whole, np.int64(5), 5),
        (checks.check_number, np.float32(0.5), 0.5),
        (checks.check_number, 3, 3),
        (checks.check_path, Path("a"), "a"),
    ],
)
def test_right_values_are_returned_as_python_types(
    check: Callable[..., Any], value: Any, expected: Any
) -> None:
    checked = check("value", value)
    assert checked == expected
    assert type(checked) is type(expected)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: checks.check_text("a", 5), "a must be a string, got 5"),
        (lambda: checks.check_flag("a", 1), "a must be True or False, got 1"),
        (lambda: checks.check_whole("a", 0.5), "a must be a whole number, got 0.5"),
        (lambda: checks.check_whole("a", True), "a must be a whole number, got True"),
        (lambda: checks.check_whole("a", -1, 0), "a must be a whole number of 0 or more, got -1"),
        (
            lambda: checks.check_whole("a", 2**31),
            "a must be a whole number from -2147483648 to 2147483647, got 2147483648",
        ),
        (lambda: checks.check_whole("a", 9, 1, 5), "a must be a whole number from 1 to 5, got 9"),
        (lambda: checks.check_number("a", math.nan), "a must be a number, got nan"),
        (lambda: checks.check_number("a", math.inf, 0), "a must be a number of 0 or more, got inf"),
        (lambda: checks.check_number("a", 2, 0, 1), "a must be a number from 0 to 1, got 2"),
        (lambda: checks.check_number("a", "1"), "a must be a number, got '1'"),
        (lambda: checks.check_one_of("a", "c", ("a", "b")), "a must be one of a, b, got 'c'"),
        (
            lambda: checks.check_one_of("a", "agmax", ("argmax", "best")),
            "a must be one of argmax, best, got 'agmax'; did you mean 'argmax'?",
        ),
        (lambda: checks.check_callable("a", None), "a must be a function, got None"),
        (lambda: checks.check_callback("a", 5), "a must be a function or None, got 5"),
        (
            lambda: checks.check_path("a", b"x"),
            "a must be a path, a string or os.PathLike, got bytes",
        ),
        (lambda: checks.check_path("a", ""), "a must be a path, a string or os.PathLike, got ''"),
        (
            lambda: checks.check_path("a", "\0"),
            "a must be a path without NUL characters, got '\\x00'",
        ),
        (
            lambda: checks.check_several("a", "x", "a list of strings", "put it into one"),
            "a must be a list of strings, got 'x'; put it into one",
        ),
        (lambda: checks.check_each("a", ["x", 5], str, "a string"), "a[1] must be a string, got 5"),
        (
            lambda: checks.check_known("a span", ["kind", "kye"], ("kind", "key")),
            "a span has no field 'kye'; did you mean 'key'?",
        ),
        (
            lambda: checks.check_known("a span", [5], ("kind", "key")),
            "a span has no field 5; its fields are key, kind",
        ),
    ],
)
def test_errors_name_the_expected_and_the_found_value(
    call: Callable[[], Any], expected: str
) -> None:
    assert said(call) == expected


def test_fields_are_set_to_the_checked_values() -> None:
    owner = type("Owner", (), {"n": np.int64(5), "text": "a"})()
    checks.check_fields(owner, {"n": (int, checks.check_whole), "text": (str, checks.check_text)})
    assert type(owner.n) is int
    with pytest.raises(InvalidArgumentError, match="text must be a whole number, got 'a'"):
        checks.check_fields(owner, {"text": (int, checks.check_whole)})


def test_errors_have_the_name_of_the_argument() -> None:
    for name, argument in (("n", "n"), ("prompts[3]", "prompts"), ("the name of tool 0", None)):
        with pytest.raises(InvalidArgumentError) as caught:
            checks.check_whole(name, "x")
        assert caught.value.argument == argument
    assert InvalidArgumentError("wrong").argument is None


def test_the_outermost_name_of_an_argument_counts() -> None:
    raises = pytest.raises(InvalidArgumentError)
    with raises as caught, checks.naming("tools"), checks.naming("name"):
        checks.check_text("description", 5)
    assert caught.value.argument == "tools"


CHECKED_ELSEWHERE = {
    "session/session.py",  # only checks the options, which become text
    *("evidence/calibration.py", "evidence/certificates.py"),  # the limits of numbers of JSON
}
CONVERTING = {"check_number", "check_whole", "check_flag", "inner_fraction"}


def test_the_results_of_checks_that_convert_numbers_are_used() -> None:
    """A number of numpy that is only checked fails later, for example when it becomes JSON."""
    unused = []
    package = ROOT / "eliza_ffi"
    for file in sorted(package.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        name = file.relative_to(package).as_posix()
        for node in ast.walk(tree):
            call = node.value if isinstance(node, ast.Expr) else None
            called = getattr(call.func, "id", "") if isinstance(call, ast.Call) else ""
            is_imported = called in CONVERTING - own and "sandbox" not in name
            if is_imported and name not in CHECKED_ELSEWHERE:
                unused.append(f"{name}:{node.lineno}")
    assert unused == []
