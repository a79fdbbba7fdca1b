"""Chat templates that try to run for ever, to exhaust the memory, or to escape the sandbox."""

from __future__ import annotations

from functools import partial

from stage import Stage

from eliza_ffi.chat.template import ChatTemplate

from .case import Case

MESSAGES = [{"role": "user", "content": "hello <b>there</b>"}]

TEMPLATES = {
    "indent by a long text": "{{ ('a\\n' * 9000) | indent('x' * 900000) }}",
    "indent of many lines": "{{ ('a\\r' * 1000000) | indent(1000) }}",
    "wide years": "{{ strftime_now('%999Y' * 200000) }}",
    "lists of characters": "{% set a = [] %}"
    + "".join(f"{{% set a{i} = ('中' * 9000000) | list %}}" for i in range(10)),
    "wide fields": "{{ ('{0:😀>999}' * 150000).format('') }}",
    "percent fields": "{{ '%9999999d' % 1 }}{{ ('%999d' * 100000) % ((1,) * 100000) }}",
    "unclosed tags": "{{ ('<' * 400000) | striptags }}",
    "unclosed comments": "{{ ('<!--' * 200000) | striptags }}",
    "a number of 9 million digits": "{{ ('9' * 9000000) | int(0, 16) }}",
    "a number of many digits": "{{ ('9' * 4000) | int ** 9999 }}",
    "powers of powers": "{{ 9 ** 9 ** 9 ** 9 }}",
    "a shifted number": "{{ (2 ** 9999) * (2 ** 9999) * (2 ** 9999) }}",
    "select of a long range": "{{ range(99999) | select('divisibleby', 7) | list | length }}"
    "{% for i in range(9999) %}{{ range(99999) | select | list | length }}{% endfor %}",
    "repeated sort": "{% for i in range(9999) %}{{ range(99999) | sort | first }}{% endfor %}",
    "repeated groupby": "{% for i in range(9999) %}"
    "{{ range(9999) | groupby('real') | length }}{% endfor %}",
    "sum of lists": "{{ ([[1] * 9999] * 9999) | sum(start=[]) | length }}",
    "loops in loops": "{% for a in range(99999) %}{% for b in range(99999) %}"
    "{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}",
    "doubling": "{% set ns = namespace(a='x') %}{% for i in range(99) %}"
    "{% set ns.a = ns.a ~ ns.a %}{% endfor %}{{ ns.a | length }}",
    "doubling of lists": "{% set ns = namespace(a=[1]) %}{% for i in range(99) %}"
    "{% set ns.a = ns.a + ns.a %}{% endfor %}{{ ns.a | length }}",
    "shared values as JSON": "{% set ns = namespace(a=[1]) %}{% for i in range(60) %}"
    "{% set ns.a = [ns.a, ns.a] %}{% endfor %}{{ ns.a | tojson | length }}",
    "shared values compared": "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}"
    "{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
    "replace of nothing": "{{ ('a' * 9000000).replace('', 'bbbbbbbbbb' * 1000) | length }}",
    "repeated lists": "{{ ([[]] * 999999999) | length }}",
    "repeated text": "{{ 'a' * 99999999999 }}",
    "centred": "{{ 'a' | center(9999999999) }}",
    "wrapped": "{{ ('a ' * 900000) | wordwrap(1) | length }}",
    "many URLs": "{{ ('http://a.b ' * 90000) | urlize(rel='x' * 9999) | length }}",
    "a macro that calls itself": "{% macro m(n) %}{{ m(n) }}{{ m(n) }}{% endmacro %}{{ m(1) }}",
    "a recursive loop": "{% for a in [[1]] * 99 recursive %}{{ loop(a * 99) }}{% endfor %}",
    "deep expressions": "{{ " + "(" * 20_000 + "1" + ")" * 20_000 + " }}",
    "deep lists": "{{ " + "[" * 5_000 + "]" * 5_000 + " }}",
    "long sums": "{{ " + "1+" * 200_000 + "1 }}",
    "negations": "{{ " + "not " * 200_000 + "1 }}",
    "filters on filters": "{{ 'a'" + "|upper" * 100_000 + " }}",
    "blocks in blocks": "{% if 1 %}" * 2_000 + "{% endif %}" * 2_000,
    "a constant that grows": "{{ 'a' * 1000 * 1000 * 1000 * 1000 }}",
    "many conditions": "{{ 1 if 0 else " * 5_000 + "1" + " }}" * 5_000,
    "lipsum": "{{ lipsum(99999999) }}",
    "a cycler of many items": "{{ cycler(*range(99999999)).next() }}",
    "unpacked arguments": "{{ dict(**{'a': 1}).fromkeys(range(99999999)) }}",
    "joined": "{{ range(99999) | map('string') | join('x' * 99999) | length }}",
    "batches": "{{ range(99999) | batch(1, 'x' * 99999) | list | length }}",
    "slices": "{{ range(9) | slice(99999999) | list | length }}",
    "Python internals": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "Python internals through a filter": "{{ '' | attr('__class__') }}",
    "Python internals through format": "{{ '{0.__class__.__init__.__globals__}'.format(range) }}",
}


def _render(source: str, _: Stage) -> str:
    return ChatTemplate(source).render(MESSAGES)[:40]


CASES = tuple(
    Case(f"template: {name}", partial(_render, source), prepare=lambda _: None)
    for name, source in TEMPLATES.items()
)
