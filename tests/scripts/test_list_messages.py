"""`scripts/list_messages.py` finds the messages in Python and C++ sources."""

from __future__ import annotations

from list_messages import Helpers, native_messages, python_messages

CHECKS = """
def wrong(name, expected, value, hint=""):
    then = f"; {hint}" if hint else ""
    return InvalidArgumentError(f"{name}: expected {expected}, got {found(value)}{then}")

def check_kind(name, value, kind, expected): ...
"""
PYTHON = '''
"""raise ValueError("a docstring")"""
def f(path, items):
    check_kind("source", path, str, "a string")
    if not items:
        raise InvalidArgumentError(f"{path} has no items: " + ("add one" if path else "open it"))
    if len(items) > 9:
        raise checks.wrong(f"items[{len(items)}]", "at most 9", items, hint="leave some out")
    return UsageError("a usage " "error")
'''
NATIVE = r"""
// throw Error(ELIZA_ERR_BUSY, "in a comment");
void f(int n, const char * name) {
    require(n > 0 && name[0] != ')', "n: expected \"1\" or more, got "
                                     + std::to_string(n));
    require_text(name, "name");
    if (n == 1) throw invalid_argument(std::string(name) + " (one, two) is wrong");
    throw Error(ELIZA_ERR_BUSY, R"(all "slots")" " are busy");
}
"""


def test_python_messages_have_placeholders_for_values() -> None:
    found = [each[:2] + each[3:] for each in python_messages(PYTHON, "a.py", Helpers(CHECKS))]
    assert found == [
        ("source: expected a string, got …", "check_kind", 4),
        ("{path} has no items: (add one / open it)", "InvalidArgumentError", 6),
        ("items[…]: expected at most 9, got …; leave some out", "wrong", 8),
        ("a usage error", "UsageError", 9),
    ]


def test_native_messages_join_literals_and_show_gaps() -> None:
    found = [each[:2] + each[3:] for each in native_messages(NATIVE, "a.cpp")]
    assert found == [
        ('n: expected "1" or more, got …', "require", 4),
        ("… (one, two) is wrong", "invalid_argument", 7),
        ('all "slots" are busy', "ELIZA_ERR_BUSY", 8),
    ]
