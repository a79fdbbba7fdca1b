"""The sandbox stops hostile chat templates and does not change the output of real ones."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import jinja2
import pytest
from effort import share
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import ChainableUndefined, Undefined
from jinja2.sandbox import SandboxedEnvironment
from real_templates import real_templates

from eliza_ffi.chat.sandbox import (
    FILTERS,
    FUNCTIONS,
    MAX_UNITS,
    METHODS,
    TESTS,
    Rejected,
    bounded,
    remaining,
)
from eliza_ffi.chat.template import ChatTemplate
from eliza_ffi.errors import ChatTemplateError

pytestmark = pytest.mark.slow

Message = dict[str, Any]


# ---- hostile templates -------------------------------------------------------------------------

BIG = "{% set big = 'x' * 9999000 %}"  # close to the maximum length of a string
WIDE = "{% set wide = '\N{CJK UNIFIED IDEOGRAPH-4E2D}' * 9000000 %}"


def doing(expression: str, start: str = "''", turns: int = 99_999) -> str:
    """Return a template that repeatedly replaces ``ns.x`` by `expression`."""
    return (
        "{% set ns = namespace(x=" + start + ") %}{% for i in range(" + str(turns) + ") %}"
        "{% set ns.x = " + expression + " %}{% endfor %}{{ ns.x | length }}"
    )


def holding(expression: str, before: str = "") -> str:
    """Return a template that stores many values of `expression` in a list."""
    return (
        before + "{% set ns = namespace(x=[]) %}{% for i in range(300) %}"
        "{% set ns.x = ns.x + [" + expression + "] %}{% endfor %}"
    )


def many(statement: str) -> str:
    """Return a template that runs a statement as often as possible."""
    inner = "{% for j in range(99999) %}" + statement + "{% endfor %}"
    return "{% for i in range(99999) %}" + inner + "{% endfor %}"


NESTED = "{% set ns = namespace(x=[1]) %}{% for i in range(40) %}{% set ns.x = VALUE %}{% endfor %}"
SHARED = NESTED.replace("VALUE", "[ns.x, ns.x]")
SHARED_TUPLE = NESTED.replace("VALUE", "(ns.x, ns.x)").replace("[1]", "(1,)")
DEEP = NESTED.replace("VALUE", "[ns.x]").replace("40", "99999")
DEEP_TUPLE = NESTED.replace("VALUE", "(ns.x,)").replace("40", "99999").replace("[1]", "(1,)")

RUNS_LONG = {
    "write a method of shared values": SHARED
    + "{{ ns.x.append }}"
    + SHARED
    + "{{ [ns.x].pop }}{{ ns.x }}",
    "call shared values": SHARED + "{{ namespace(__qualname__=ns.x)() }}",
    "name a filter by shared values": SHARED_TUPLE + "{{ [1] | map(ns.x) | list }}",
    "an attribute of shared values": SHARED_TUPLE + "{{ [1] | map(attribute=ns.x) | list }}",
    "many sorts by attributes": "{{ ([[1]] * 99999) | sort(attribute='" + "0," * 2000 + "0') }}",
    "compare slices": BIG + many("{{ big[1:] == big[1:] }}"),
    "unpack shared values in loops": "{% for a, b in [(1, 2)] * 99999 %}"
    + many("")
    + "{% endfor %}",
    "loop over a loop's attributes": many("{{ loop.previtem }}{{ loop.last }}{{ loop.revindex }}"),
    "search in an iterator": SHARED
    + "{% set a = ns.x %}"
    + SHARED
    + "{{ a in ([ns.x] | map('list')) }}",
    "compare iterators": SHARED
    + "{% set a = ns.x %}"
    + SHARED
    + "{{ ([a] | select) == ([ns.x] | select) }}",
    "macro with default arguments": "{% macro f(a=range(99999) | list) %}{{ a }}{% endmacro %}"
    + many("{{ f() }}"),
    "loop": many(""),
    "loop with a test": "{% for i in range(9) %}{% for j in range(99999) if false %}{% endfor %}"
    "{% endfor %}" * 400,
    "loop of many nodes": many("{% if i is defined and j.x is defined %}{% endif %}" * 900),
    "output": many("{{ i }}" * 2000),
    "data": many("words" * 1000 + "{{ i }}"),
    "empty output": "{% set x %}" + many("{{ '' ~ '' }}{{ z }}" * 900) + "{% endset %}",
    "macros": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}"
    "{{ f(45) }}",
    "macro that calls itself": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "in strings": BIG + many("{{ ('y' * 90) in big }}"),
    "count": BIG + many("{{ big.count('x' * 50) }}"),
    "find from the right": BIG + "{{ big.rsplit('xy' * 4000000) }}",
    "find from the right, short": BIG + many("{{ big.rsplit('x' ~ 'y' ~ 'x' * 80) }}"),
    "startswith": BIG + "{{ big.startswith((big ~ 'x',) * 99999) }}",
    "strip": BIG + "{% set y = 'y' * 9000000 ~ 'x' %}{{ big.strip(y) }}",
    "strip, again": BIG + many("{{ (big ~ 'y').lstrip('x' * 99) | length }}"),
    "compare": BIG + "{% set other = big[1:] ~ 'y' %}{% set l = [big] * 99999 %}{{ other in l }}",
    "compare lazily": BIG
    + "{% set other = big[1:] ~ 'y' %}{{ other in ([big] * 99999) | select }}",
    "compare many times": BIG + "{% set other = big[1:] ~ 'y' %}" + many("{{ big == other }}"),
    "compare with a constant": "{{ '" + "x" * 99_999 + "y' in ['x' * 100000] * 99999 }}",
    "compare shared values": SHARED + "{% set a = ns.x %}" + SHARED + "{{ a == ns.x }}",
    "compare in tests": SHARED + "{% set a = ns.x %}" + SHARED + "{{ a is eq ns.x }}",
    "search shared values": SHARED + "{% set a = ns.x %}" + SHARED + "{{ a is in [ns.x] }}",
    "hash shared values": SHARED_TUPLE + "{{ {ns.x: 1} }}",
    "hash a key": SHARED_TUPLE + "{{ messages[0][ns.x] }}",
    "hash a key in get": SHARED_TUPLE + "{{ messages[0].get(ns.x) }}",
    "hash a key in dict": SHARED_TUPLE + "{{ dict([(ns.x, 1)]) }}",
    "hash in": SHARED_TUPLE + "{{ ns.x in messages[0] }}",
    "hash in unique": SHARED_TUPLE + "{{ [ns.x] | unique | list }}",
    "write shared values": SHARED + "{{ ns.x }}",
    "write JSON of shared values": SHARED + "{{ ns.x | tojson }}",
    "write a namespace": SHARED + "{{ ns }}",
    "write views": SHARED + "{{ {'x': ns.x}.items() }}",
    "write deep values": DEEP + "{{ ns.x }}",
    "write JSON of deep values": DEEP + "{{ ns.x | tojson }}",
    "hash deep values": DEEP_TUPLE + "{{ {ns.x: 1} }}",
    "compare deep values": DEEP + "{% set a = ns.x %}" + DEEP + "{{ a == ns.x }}",
    "sort": "{{ range(99999) | list | sort | sort | sort | length }}",
    "sort equal strings": "{{ (['x' * 9000000] * 9999) | sort }}",
    "sort by long parts": "{{ ([['x' * 90000 ~ 1]] * 90000) | sort(attribute='0,0,0,0') }}",
    "sort shared values": SHARED + "{{ [ns.x, ns.x] | sort }}",
    "dictsort": SHARED + "{{ {'a': ns.x, 'b': ns.x} | dictsort(by='value') }}",
    "max": SHARED + "{{ [ns.x, ns.x] | max }}",
    "lazy": many("{{ range(99999) | map('string') | select('eq', 5) | list }}"),
    "nested lazy filters": doing("ns.x | map('string')", "[1]"),
    "lazy filters of lists": doing("[ns.x] | map('list')", "[1]") + "{{ ns.x | list }}",
    "reversed": doing("ns.x | reverse", "[1]"),
    "attributes": "{{ [1] | map(attribute='a.' * 4000000) | list }}",
    "power": many("{{ 3 ** 5000 }}"),
    "numbers": many("{{ (3 ** 5000) * (3 ** 5000) }}"),
    "divisions": many("{{ (3 ** 5000) // 7 % (7 ** 2000) }}"),
    "a number in hexadecimal": "{{ 0x" + "f" * 150_000 + " }}",
    "a number in decimal": "{{ " + "9" * 150_000 + " }}",
    "a number from a string": "{{ ('9' * 5000000) | int }}",
    "a number of another base": "{{ ('f' * 9000000) | int(0, 16) }}",
    "a number from a long string": "{{ ('9' * 9000000) | float }}",
    "range": "{{ range(10 ** 18) | list }}",
    "range of huge numbers": "{{ range(2 ** 9000) }}",
    "loop.length": "{% for x in range(99999) | map('string') %}{{ loop.length }}{% endfor %}" * 40,
    "splits": BIG + many("{{ big.split('y') | length }}"),
    "a long raised message": BIG + "{{ raise_exception(big) }}",
    "an error of a long name": "{% set x = '\\U000e0001' * 9000000 %}{{ messages[x].y.z }}",
    "an error of a long argument": "{% set x = '\\U000e0001' * 9000000 %}{{ [1] | map(x) | list }}",
}

TAKES_MUCH = {
    "upper beside large values": WIDE + "{% set held = wide[1:] %}"
    "{{ ('\\U00010428' * 4000000).upper() | length }}{{ wide[1:].title() }}",
    "format with digits of other scripts": "{{ '{:>"
    + "\N{ARABIC-INDIC DIGIT NINE}" * 7
    + "}'.format(1) }}",
    "format of long fields": BIG + "{{ ('{0}' * 50).format(big) }}",
    "join by attribute": "{{ ([{'a': 'x' * 99999}] * 99999) | join('y', attribute='a') }}",
    "map": BIG + "{{ ([big] * 99999) | map('upper') | list }}",
    "map of replace": "{{ (['x' * 9999] * 99999) | map('replace', 'x', 'y' * 9999) | list }}",
    "batch": "{{ [1] | batch(10 ** 9, 'x') }}",
    "slice": "{{ [1] | slice(10 ** 9) }}",
    "wordwrap": "{{ ('x' * 999999) | wordwrap(1, wrapstring='y' * 99999) }}",
    "pprint": SHARED + "{{ ns.x | pprint }}",
    "xmlattr": SHARED + "{{ {'x': ns.x} | xmlattr }}",
    "urlize": BIG + "{{ big | urlize }}",
    "loop.cycle": "{% for i in range(9) %}{{ loop.cycle(i, 10 ** 9) }}{% endfor %}",
    "JSON of large text with escapes": BIG.replace("x", "\\U0001f600")
    + "{{ big | tojson(ensure_ascii=true) }}",
    "JSON with wide indentation": "{{ [[[1]]] | tojson(indent='x' * 9999999) }}",
    "indent": "{{ ('a\\n' * 9000) | indent('x' * 900000) }}",
    "indent many lines": "{{ ('a\\r' * 1000000) | indent(1000) }}",
    "indent without lines": "{{ ('\\x85' * 9000000) | indent(1, true, true) }}",
    "strftime_now": "{{ strftime_now('%999Y' * 200000) }}",
    "lists of characters": WIDE + holding("wide | list"),
    "ten lists of characters": WIDE + "{% set x = [" + "wide | list, " * 10 + "] %}",
    "str.format": "{{ ('{0:😀>999}' * 150000).format('') }}",
    "str.format, wide": "{{ '{:>9999999999}'.format(1) }}",
    "str.format, twice": "{{ '{:>{}}'.format(1, 9999999999) }}",
    "str.format of a large string": BIG + "{{ '{0}{0}{0}'.format(big) }}",
    "str.format of a number": "{{ '{:.999999999f}'.format(1.5) }}",
    "str.format of names": "{{ ('{' ~ 'x' * 9000000 ~ '}').format(1) }}",
    "format_map": "{{ '{x}'.format_map({'x': 1}) }}",
    "%": "{{ '%9999999999d' % 1 }}",
    "%, wide by an argument": "{{ '%*d' % (9999999999, 1) }}",
    "% in a test": "{{ '%9999999999d' is odd }}",
    "% in another test": "{{ '%9999999999d' is divisibleby(3) }}",
    "% as a filter": "{{ '%9999999999d' | format(1) }}",
    "striptags": "{{ ('<' * 900000) | striptags }}",
    "sum": "{{ ([[1]] * 99999) | sum(start=[]) }}",
    "groupby": "{{ range(99999) | groupby('x') }}",
    "center": "{{ 'x' | center(9999999999) }}",
    "ljust": "{{ 'x'.ljust(10 ** 10) }}",
    "expandtabs": "{{ '\\t'.expandtabs(10 ** 10) }}",
    "lipsum": "{{ lipsum(n=1000000) }}",
    "cycler": "{{ cycler(1, 2) }}",
    "joiner": "{{ joiner('x') }}",
    "* of strings": "{{ 'x' * 10 ** 10 }}",
    "* of lists": "{{ [[]] * 10 ** 9 }}",
    "* of tuples": "{{ 10 ** 9 * (1, 2) }}",
    "* of *": "{{ ([[[0] * 99999] * 99999] * 99999) | tojson }}",
    "**": "{{ 10 ** (10 ** 10) }}",
    "~": doing("ns.x ~ ns.x", "'x'", 80),
    "+": doing("ns.x + ns.x", "'x'", 80),
    "+ of safe strings": doing("(ns.x | safe) + '<' * 5000000", "'x'", 80),
    "+ of lists": doing("ns.x + ns.x", "[1]", 80),
    "join": "{{ range(99999) | list | join('y' * 999999) }}",
    "join of lazy items": "{{ range(99999) | select | join('y' * 999999) }}",
    "str.join": "{{ ('y' * 999999).join(['a'] * 99999) }}",
    "str.join of lazy items": "{{ ('y' * 999999).join((['a'] * 99999) | map('upper')) }}",
    "replace": "{{ ('x' * 999999).replace('x', 'y' * 999999) }}",
    "replace nothing": "{{ ('x' * 999999) | replace('', 'y' * 999999) }}",
    "replace by name": "{{ ('x' * 999999) | replace(new='y' * 999999, old='x') }}",
    "split": WIDE + holding("wide.split(wide[0])"),
    "split at spaces": "{{ ('x ' * 4500000).split() }}",
    "splitlines": "{{ ('中\\n' * 4500000).splitlines() }}",
    "upper": "{% set ns = namespace(x='\\U00010428' * 9000000) %}{{ ns.x.upper() | length }}"
    "{{ ns.x.title() | length }}{{ ns.x | upper | length }}{{ 'x' * 10 ** 10 }}",
    "growing upper": holding("('\\u0390' * 3000000).upper()"),
    "title": "{{ ('x ' * 4500000) | title }}",
    "slices": WIDE + holding("wide[1:]"),
    "slices of lists": holding("big[:]", "{% set big = [1] * 99999 %}"),
    "tojson": BIG.replace("x", "\\0") + "{{ big | tojson }}",
    "tojson, indented": "{{ [1] | tojson(indent=9999999999) }}",
    "tojson, indented a little": DEEP.replace("99999", "45")
    + "{{ ([ns.x] * 9999) | tojson(indent=16) }}",
    "tojson, with separators": "{{ ([1] * 99999) | tojson(separators=('x' * 99999, '')) }}",
    "repr": holding("('\\U000e0001' * 900000) | list | string"),
    "repr of one string": "{{ ['\\U000e0001' * 9000000] }}",
    "unpacked arguments": WIDE + "{{ dict(*wide) }}",
    "unpacked strings": WIDE + "{% set a, b = wide %}",
    "literals": many("{% set ns.x = ns.x + [[" + "[], " * 3000 + "]] %}").replace(
        "{% for i", "{% set ns = namespace(x=[]) %}{% for i", 1
    ),
    "undefined": holding("[" + "u, " * 5000 + "]"),
    "namespaces": doing("[ns.x, namespace()]", "[]"),
    "methods": doing("[ns.x, ''.upper]", "[]"),
    "characters": holding("[" + "wide[0], " * 3000 + "]", WIDE),
    "blocks": "{% set ns = namespace(x='x') %}{% for i in range(80) %}"
    "{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}",
    "filter blocks": "{% filter replace('x', 'y' * 9999) %}" + many("x") + "{% endfilter %}",
    "data in a loop": many("x" * 100_000),
    "macros in a loop": "{% for i in range(9) %}{% macro f() %}{% endmacro %}{% endfor %}",
    "recursive loops": "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "dict": doing("dict(ns.x, **{'x' ~ i: 1})", "{}"),
    "long keyword names": "{{ dict(**{'\\U000e0001' * 9000000: 1}) }}",
    "pieces of output": "{% set x %}" + many("{{ a }}b" * 2000) + "{% endset %}",
    "append": "{% set x = [] %}" + many("{{ x.append(1) }}"),
    "append of long strings": "{% set x = [] %}" + many("{{ x.append('x' * 99999) }}"),
    "append to itself": "{% set x = [1] %}{{ x.append(x) }}{{ x }}",
    "nested append": NESTED.replace("VALUE", "[]").replace(
        "%}{% endfor", "%}{{ ns.x.append(ns.x) }}{% endfor"
    )
    + "{{ ns.x | tojson }}",
    "append while looping": "{% set x = [1] %}{% for i in x %}{{ x.append(i) }}{% endfor %}",
    "pop": many("{% set x = range(99999) | list %}{{ x.pop(0) }}{{ x.pop(0) }}"),
    "views": SHARED + "{{ {'x': ns.x}.values() == {'x': ns.x}.values() }}",
}

COMPILES_LONG = {
    "parentheses": "{{ " + "(" * 60_000 + "1" + ")" * 60_000 + " }}",
    "nested lists": "{{ " + "[" * 3_000 + "]" * 3_000 + " }}",
    "not not": "{{ " + "not " * 15_000 + "x }}",
    "minus minus": "{{ " + "- " * 15_000 + "1 }}",
    "sums": "{{ " + "x + " * 7_000 + "x }}",
    "concatenations": "{{ " + "x ~ " * 7_000 + "x }}",
    "chained attributes": "{{ x" + ".y" * 7_000 + " }}",
    "chained filters": "{{ x" + " | trim" * 7_000 + " }}",
    "nested conditions": "{{ " + "1 if x else " * 3_000 + "1 }}",
    "chained calls": "{{ x" + "()" * 5_000 + " }}",
    "nested ifs": "{% if x %}" * 2_500 + "{% endif %}" * 2_500,
    "nested loops": "{% for x in y %}" * 40 + "{{ x }}" * 500 + "{% endfor %}" * 40,
    "many nested loops": ("{% for x in y %}" * 10 + "{{ x }}" + "{% endfor %}" * 10) * 150,
    "many ifs": "{% if x %}{% set a = 1 %}{% endif %}" * 1_400,
    "many names": "".join(
        f"{{% if x{i} %}}{{% set a{i} = 1 %}}{{% endif %}}" for i in range(1_300)
    ),
    "many macros": "".join(
        f"{{% macro m{i}(a, b) %}}{{{{ a }}}}{{% endmacro %}}" for i in range(900)
    ),
    "nested macros": "{% macro m() %}" * 45 + "{{ x }}" * 900 + "{% endmacro %}" * 45,
    "elifs": "{% if x %}" + "{% elif x %}{% set a = 1 %}" * 1_700 + "{% endif %}",
    "many outputs": "{{ x }}" * 20_000,
    "comments": "{##}" * 50_000,
    "unterminated comment": "{#" * 99_999,
    "unterminated string": "{{ '" + "\\'" * 90_000,
    "raw": "{% raw %}{% endraw %}" * 9_000,
    "braces": "{" * 199_999,
    "lines": "\n" * 199_999,
    "lines and tags": "  \n {%- if x -%} \n" * 5_000 + "{% endif %}" * 5_000,
    "digits": "{{ " + "1_" * 90_000 + "1 }}",
    "digits and dots": "{{ " + "1." * 8_000 + " }}",
    "a long list": "{{ [" + "1," * 7_900 + "] }}",
    "a long mapping": "{{ {" + "1:1," * 3_900 + "} }}",
    "comparisons": "{{ 1" + " < 2" * 7_000 + " }}{{ 1" + " in [x]" * 50 + " }}",
    "a name": "{{ " + "x" * 199_000 + " }}",
    "a filter's name": "{{ x | " + "x" * 199_000 + " }}",
    "too long": "x" * 200_001,
}

# A child process that renders each template in its own child process, to measure its memory.
PROGRAM = """
import json, os, resource, sys, time
from eliza_ffi.chat import sandbox
from eliza_ffi.chat.template import ChatTemplate
from eliza_ffi.errors import ChatTemplateError

sandbox.MAX_SECONDS = 0.1  # shorter than usual, to keep the test fast
messages = [{"role": "user", "content": "x"}]
ChatTemplate("{{ messages[0].content }}").render(messages)  # import everything now

def grown():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT

for line in sys.stdin:
    if os.fork():
        code = os.wait()[1]
        if code:
            print(json.dumps([0, 0, f"ended with {code}"]), flush=True)
        continue
    resource.setrlimit(resource.RLIMIT_CPU, (10, 10))
    before, start = grown(), time.process_time()
    try:
        outcome = f"rendered {len(ChatTemplate(json.loads(line)).render(messages))}"
    except ChatTemplateError as error:
        outcome = str(error)
    seconds = time.process_time() - start
    print(json.dumps([grown() - before, seconds, outcome]), flush=True)
    os._exit(0)
""".replace("UNIT", "1" if sys.platform == "darwin" else "1024")

MAX_BYTES = 200_000_000
MAX_SECONDS = 10.0

Render = Callable[[str], str]


@pytest.fixture(scope="module")
def render_in_a_child() -> Iterator[Render]:
    """Yield a function that renders a template in its own process and returns the outcome."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None and child.stdout is not None

        def render(source: str) -> str:
            child.stdin.write(json.dumps(source) + "\n")
            child.stdin.flush()
            grown, seconds, outcome = json.loads(child.stdout.readline())
            assert grown < MAX_BYTES
            assert seconds < MAX_SECONDS
            return str(outcome)

        yield render


def named(templates: dict[str, str]) -> Any:
    return pytest.mark.parametrize("source", templates.values(), ids=templates.keys())


@named(RUNS_LONG)
def test_a_template_that_would_run_too_long_is_stopped(
    render_in_a_child: Render, source: str
) -> None:
    assert re.match(STOPPED, render_in_a_child(source))


@named(TAKES_MUCH)
def test_a_template_that_would_use_too_much_memory_is_stopped(
    render_in_a_child: Render, source: str
) -> None:
    assert re.match(STOPPED, render_in_a_child(source))


@named(COMPILES_LONG)
def test_a_complex_template_is_rejected_or_compiles_quickly(
    render_in_a_child: Render, source: str
) -> None:
    outcome = render_in_a_child(source)
    assert re.match(f"{STOPPED}|rendered|the chat template is (not valid|too long)", outcome)


# Matches the errors of limits and allow-lists. Any other error is unexpected.
STOPPED = (
    "the chat template was stopped: it (needs (a range of )?more than |takes |nests |formats )"
    "|the chat template is not valid: LimitReached: it (needs|nests)"
    "|the chat template failed: SecurityError: templates may not call "
    "|the chat template is not valid: (ValueError: Exceeds the limit|TemplateAssertionError: )"
    "|the chat template failed: UndefinedError: '(cycler|joiner|lipsum)' is undefined"
    "|the chat template failed: (TypeError: templates cannot apply|ValueError: too many values)"
    "|the chat template failed: ValueError: Exceeds the limit"
    "|the chat template rejects the messages: x{1000}$"
)


def test_a_harmless_template_is_rendered_in_the_child(render_in_a_child: Render) -> None:
    assert render_in_a_child("{{ messages[0].content }}") == "rendered 1"


# ---- unsupported names and operations ----------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ 'x' | center(9) }}", "No filter named 'center'"),
        ("{% filter wordwrap %}x{% endfilter %}", "No filter named 'wordwrap'"),
        ("{{ 'x' is filter }}", "No test named 'filter'"),
        ("{{ dict(*x) }}", r"templates may not use \* and \*\*"),
        ("{{ dict(**x) }}", r"templates may not use \* and \*\*"),
        ("{% include 'x' %}", "templates may not use the tag 'include'"),
        ("{% block x %}{% endblock %}", "templates may not use the tag 'block'"),
        ("{% for x in y recursive %}{% endfor %}", "templates may not use recursive loops"),
    ],
)
def test_unsupported_syntax_is_reported_at_compile_time(source: str, message: str) -> None:
    with pytest.raises(ChatTemplateError, match=f"is not valid: .*{message}"):
        ChatTemplate(source)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ 'x'.ljust(9) }}", "may not call str.ljust"),
        ("{{ 'x'['ljust'](9) }}", "may not call str.ljust"),
        ("{{ 'x'.format_map({}) }}", "may not call str.format_map"),
        ("{{ [1] | map(' charge') | list }}", "No filter named 'charge'"),
        ("{{ namespace(__qualname__=1)() }}", "may not call Namespace"),
        ("{% set f = 'x'.ljust %}{{ f(9) }}", "may not call str.ljust"),
        ("{{ [1].count(1) }}", "may not call list.count"),
        ("{{ ['x'] | map('center', 9) | list }}", "No filter named 'center'"),
        ("{{ ['x'] | select('filter') | list }}", "No test named 'filter'"),
        ("{{ loop }}{% for x in [1] %}{{ loop.cycle(1) }}{% endfor %}", "may not call .*cycle"),
        ("{{ messages.append(1) }}", "is unsafe"),
        ("{{ messages[0].pop('role') }}", "is unsafe"),
        ("{{ '{0.real}'.format(1) }}", "a field that is too wide or not supported"),
        ("{{ '{!r}'.format(1) }}", "a field that is too wide or not supported"),
        ("{{ f() }}", "may not call .*lambda"),
    ],
)
def test_unsupported_operations_are_reported_at_run_time(source: str, message: str) -> None:
    messages = [{"role": "user", "content": "x"}]
    with pytest.raises(ChatTemplateError, match=message):
        ChatTemplate(source).render(messages, f=lambda: 1)
    assert messages == [{"role": "user", "content": "x"}]


def test_a_template_can_change_only_lists_it_created() -> None:
    messages = [user("x"), user("y")]
    source = (
        "{% set own = [] %}{% for m in messages %}{% set _ = own.append(m.content) %}{% endfor %}"
        "{{ own.pop(0) }}{{ own }}"
        "{% set copied = messages | list + [1] %}{{ copied.append(2) }}{{ copied | length }}"
    )
    assert ChatTemplate(source).render(messages) == "x['y']None4"
    assert messages == [user("x"), user("y")]
    given = [1]
    for change in ("x.append(2)", "x.pop()", "[x][0].append(2)", "x.extend([2])", "[].extend(x)"):
        with pytest.raises(ChatTemplateError, match="is unsafe"):
            ChatTemplate("{{ " + change + " }}").render(messages, x=given)
    assert given == [1]


def test_an_unknown_filter_is_allowed_in_unreached_code() -> None:
    source = "{% if x %}{{ x | from_json }}{% endif %}y"
    assert ChatTemplate(source).render([{"role": "user", "content": "x"}]) == "y"


# ---- random programs ---------------------------------------------------------------------------

NUMBERS = ("0", "1", "-1", "2", "7", "99", "9999", "100000", "10000000", "2.5")
VALUES = (
    *NUMBERS,
    *("''", "'a'", "'{}{:>99}'", "'a b,'", "'é\\n'"),
    *("true", "none", "x", "ns.y", "messages"),
)
OPERATORS = ("+", "-", "*", "/", "//", "%", "**", "~", "==", "<", "in", "and", "or")


def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def made(pattern: str, *parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.tuples(*parts).map(lambda texts: pattern.format(*texts))

    def one_of(names: Any) -> st.SearchStrategy[str]:
        return st.sampled_from(sorted(name for name in names if name.isidentifier()))

    arguments = st.lists(inner, max_size=2).map(", ".join)
    methods = one_of({name for _, methods in METHODS for name in methods})
    return st.one_of(
        made("({} {} {})", inner, st.sampled_from(OPERATORS), inner),
        made("({} | {})", inner, one_of(FILTERS)),
        made("({} | {}({}))", inner, one_of(FILTERS), arguments),
        made("({} | map('{}') | list)", inner, one_of(FILTERS)),
        made("({} | select('{}', {}) | list)", inner, one_of(TESTS), inner),
        made("({}).{}({})", inner, methods, arguments),
        made("({} is {})", inner, one_of(TESTS)),
        made("{}({})", one_of({*FUNCTIONS} - {"raise_exception"}), arguments),
        made("[{}, {}]", inner, inner),
        made("({}, {})", inner, inner),
        made("{{{{{}: {}}}}}", inner, inner),
        made("({})[{}]", inner, inner),
        made("({})[{}:]", inner, inner),
        made("({} if {} else {})", inner, inner, inner),
    )


@settings(max_examples=share(400))
@given(st.recursive(st.sampled_from(VALUES), larger, max_leaves=12))
@example("('a' * 9999999 | list)")
@example("(['a'] * 100000 | map('upper') | list)")
def test_every_expression_terminates(expression: str) -> None:
    source = (
        "{% set ns = namespace(y=[1]) %}{% set x = 'xy ' * 99 %}"
        "{% for i in range(99) %}{% set ns.y = " + expression + " %}{{ ns.y }}{% endfor %}"
    )
    start = time.process_time()
    try:
        template = ChatTemplate(source)
        with bounded():
            template._run([user("hello")])
    except jinja2.TemplateError:
        pass
    except Exception as error:
        outcome = str(error)
        assert not isinstance(error, MemoryError | RecursionError | SystemError), expression
        assert "object at 0x" not in outcome and len(outcome) < 2000, expression
    assert time.process_time() - start < MAX_SECONDS


# ---- real templates ----------------------------------------------------------------------------


class GenerationTag(Extension):
    """The tag ``generation`` of Hugging Face's templates."""

    tags = frozenset(("generation",))  # type: ignore[assignment]

    def parse(self, parser: Parser) -> Any:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


COMMAND_R = "CohereForAI-c4ai-command-r-plus-tool_use"
"""A template whose macros read attributes of undefined arguments."""


def without_bounds(source: str, undefined: type[Undefined]) -> jinja2.Template:
    """Return a template for plain Jinja2, without limits and with permission to change lists."""

    def reject(message: str) -> None:
        raise jinja2.TemplateError(message)

    def to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, default=list)

    environment = SandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[GenerationTag, LoopControlExtension],
        undefined=undefined,
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = reject
    environment.globals["strftime_now"] = lambda format: datetime.now().strftime(format)
    return environment.from_string(source)


def user(content: Any) -> Message:
    return {"role": "user", "content": content}


def assistant(content: Any, **more: Any) -> Message:
    return {"role": "assistant", "content": content, **more}


def call(arguments: Any, name: str = "call12345") -> Message:
    function = {"name": "get_weather", "arguments": arguments}
    return {"id": name, "type": "function", "function": function}


def result(content: Any, name: str = "call12345") -> Message:
    return {"role": "tool", "name": "get_weather", "tool_call_id": name, "content": content}


SYSTEM = {"role": "system", "content": "Be <brief>."}
CITY = {"type": "string", "description": "Where, \"as\" 'said'"}
PROPERTIES = {
    "city": CITY,
    "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
    "days": {"type": "array", "items": {"type": "integer"}},
    "more": {"type": ["string", "null"]},
    "place": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
}
PARAMETERS = {"type": "object", "properties": PROPERTIES, "required": ["city"]}
EMPTY = {"type": "object", "properties": {}}
FUNCTIONS_OF_TOOLS = (
    {"name": "get_weather", "description": "<It>", "parameters": PARAMETERS},
    {"name": "nothing", "description": "", "parameters": EMPTY},
)
TOOLS = [{"type": "function", "function": each} for each in FUNCTIONS_OF_TOOLS]

ROME = '{"city": "Rome"}'
TALKS = {
    "a question": [user("Hi!")],
    "a talk": [SYSTEM, user("Hi!"), assistant("Hello."), user("Grüße 日本 😀 <b> ")],
    "tools": [
        user("Well?"),
        assistant("", tool_calls=[call({"city": "Rome", "days": [1]})]),
        result('{"degrees": 20}'),
        assistant("It is 20."),
        user("Thanks"),
    ],
    "two tools": [
        SYSTEM,
        user("Well?"),
        assistant("Hm", tool_calls=[call({"city": "A"}, "abcdefghi"), call({}, "abcdefghj")]),
        result("20", "abcdefghi"),
        result("2", "abcdefghj"),
    ],
    "arguments as text": [user("Well?"), assistant(None, tool_calls=[call(ROME)]), result("x")],
    "thoughts": [
        user("x"),
        assistant("<think>\nhm\n</think>\n\nWell."),
        user("y"),
        assistant("z", reasoning_content="deep"),
        user("?"),
    ],
    "parts": [user([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}])],
    "a developer": [{"role": "developer", "content": "x"}, user("y")],
    "roles that do not alternate": [user("x"), user("y"), assistant("z")],
    "languages": [
        user([{"type": "text", "text": "x", "source_lang_code": "en", "target_lang_code": "de"}])
    ],
}
ARGUMENTS: list[dict[str, Any]] = [
    {},
    {"tools": TOOLS},
    {"enable_thinking": True},
    {"enable_thinking": False, "tools": TOOLS, "add_generation_prompt": False},
    {"documents": [{"title": "T", "text": "x"}], "thinking": True, "reasoning_effort": "high"},
]


def test_the_sandbox_does_not_change_the_output_of_llama_cpps_templates() -> None:
    written = rejected = 0
    cases = list(itertools.product(TALKS.items(), ARGUMENTS))
    step = len(cases) // share(len(cases))
    for place, (name, template) in enumerate(real_templates().items()):
        undefined = ChainableUndefined if name == COMMAND_R else Undefined
        unbounded = without_bounds(template.source, undefined)
        for (talk, messages), arguments in cases[place % step :: step]:
            try:
                text = template.render(messages, **arguments)
            except ChatTemplateError:
                text = None
            with bounded():
                given = template._older_variables(arguments.get("tools"))
            given |= {"bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True}
            given["tools"] = template._forms.no_tools
            try:
                expected = unbounded.render(messages=template.fit(messages), **given | arguments)
            except Exception:
                expected = None
            assert text == expected, (name, talk, [*arguments])
            written += text is not None
            rejected += text is None
    assert written > 10 * rejected > 0


def test_a_long_conversation_uses_at_most_three_quarters_of_the_budget() -> None:
    talk = [user("word " * 300), assistant("a <b> c " * 200)] * 100
    for name, template in real_templates().items():
        with bounded(len(talk)):
            try:
                template._run(talk, add_generation_prompt=True)
            except (Rejected, jinja2.TemplateError):
                continue
            assert remaining().left > MAX_UNITS / 4, name
