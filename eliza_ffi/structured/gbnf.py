"""Write skeletons as grammars in GBNF (llama.cpp's notation), and rename rules in users' grammars.

The grammar of a skeleton accepts exactly the answers that filling the skeleton can give, so that
tests can compare the two. A GBNF grammar reads characters and an automaton reads bytes;
:func:`dfa_rules` combines the bytes of each character.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping

from .automata import DEAD, Dfa
from .placed_span import JSON_DEPTH, MOST_SPACES, PlacedSpan

# The lexical elements of a grammar. Strings, classes and comments come first, because they can
# contain text that looks like the other elements.
_PIECE = re.compile(
    r'(?P<text>"(?:\\.|[^"\\])*")|(?P<class>\[(?:\\.|[^\]\\])*\])|(?P<comment>#[^\n]*)'
    r"|(?P<name>[A-Za-z0-9-]+)(?P<defines>\s*::=)?|(?P<other>.)",
    re.DOTALL,
)

_SHARED = {
    "json-string": r'"\"" json-char* "\""',
    "json-char": r'[^"\\\x00-\x1F] | "\\" (["\\/bfnrt] | "u" json-code)',
    # Escaped surrogates come in pairs.
    "json-code": (
        r"[0-9A-CEFa-cef] json-hex json-hex json-hex | [Dd] [0-7] json-hex json-hex | "
        r'[Dd] [89ABab] json-hex json-hex "\\u" [Dd] [C-Fc-f] json-hex json-hex'
    ),
    "json-hex": "[0-9A-Fa-f]",
    "json-number": 'json-integer ("." [0-9]+)? ([Ee] [-+]? [0-9]+)?',
    "json-integer": '"-"? ("0" | [1-9] [0-9]*)',
    "json-space": f"[ \\t\\n\\r]{{0,{MOST_SPACES}}}",
    "json-word": '"true" | "false" | "null"',
}


class Builder:
    """Builds one grammar, rule by rule."""

    def __init__(self) -> None:
        self._rules: dict[str, str] = {}

    def grammar(self, root: str) -> str:
        """Return the grammar with this expression as its start rule."""
        rules = {"root": root or '""', **self._rules}
        return "".join(f"{name} ::= {body}\n" for name, body in rules.items())

    def add(self, name: str, body: str) -> str:
        """Add a rule and return its name."""
        self._rules[name] = body
        return name

    def span(self, placed: PlacedSpan) -> str:
        """Return an expression for the value of a span, or "" for a literal."""
        if placed.is_literal:
            return ""
        if placed.texts is not None:
            return alternatives(placed.texts)
        span = placed.span
        if span.rule is not None:
            return self._rule(placed)
        if span.kind == "free-json":
            return self._value(JSON_DEPTH)
        if span.kind == "free-string":
            return f"{self._shared('json-char')}*" if placed.in_string else self._string()
        if span.kind == "pattern":
            name = f"pattern-{placed.index}"
            self._rules.update(dfa_rules(placed.dfa(), name))
            return f"{name}-0"
        return self._shared(f"json-{span.kind}")

    def _rule(self, placed: PlacedSpan) -> str:
        grammar = placed.grammar or ""
        prefix = f"rule-{placed.index}-"
        renamed = {name: prefix + name for name in rule_names(grammar)}
        for name, body in _rules_of(_renamed(grammar, renamed)):
            self._rules[name] = body
        return f"{prefix}root"

    def _shared(self, name: str) -> str:
        if name not in self._rules:
            body = self._rules[name] = _SHARED[name]
            for match in _PIECE.finditer(body):
                if match["name"] in _SHARED:
                    self._shared(match["name"])
        return name

    def _string(self) -> str:
        return self._shared("json-string")

    def _value(self, depth: int) -> str:
        name = f"json-value-{depth}"
        if name in self._rules:
            return name
        string = self._string()
        body = f"{string} | {self._shared('json-number')} | {self._shared('json-word')}"
        if depth > 0:
            inner = self._value(depth - 1)
            space = self._shared("json-space")
            pair = f'{string} {space} ":" {space} {inner} {space}'
            body += f' | "{{" {space} ({pair} ("," {space} {pair})*)? "}}"'
            body += f' | "[" {space} ({inner} {space} ("," {space} {inner} {space})*)? "]"'
        return self.add(name, body)


def quoted(text: str) -> str:
    """Return an expression that matches exactly one string, or "" for the empty string."""
    named = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    body = "".join(
        named.get(char) or (f"\\x{ord(char):02X}" if ord(char) < 0x20 else char) for char in text
    )
    return f'"{body}"' if body else ""


def alternatives(texts: Iterable[str]) -> str:
    """Return an expression that matches any of the given strings."""
    return "(" + " | ".join(quoted(text) or '""' for text in texts) + ")"


def rule_names(grammar: str) -> frozenset[str]:
    """Return the names of the rules that a grammar defines."""
    return frozenset(name for name, _ in _rules_of(grammar))


def with_root(grammar: str, rule: str) -> str:
    """Return the grammar with `rule` as its start rule. An existing ``root`` is renamed."""
    names = rule_names(grammar)
    if rule == "root":
        return grammar
    other = "former-root"
    while other in names:
        other += "-x"
    return f"root ::= {rule}\n{_renamed(grammar, {'root': other})}"


def dfa_rules(dfa: Dfa, name: str) -> dict[str, str]:
    """Return rules that accept the same strings as an automaton. The start rule is ``<name>-0``.

    The automaton must not accept incomplete UTF-8 characters.
    """

    @functools.cache
    def following(state: int, n_bytes: int) -> tuple[tuple[int, int, int], ...]:
        """Return code-point ranges for the last `n_bytes` bytes, each with its target state."""
        found: list[tuple[int, int, int]] = []
        for byte in range(0x80, 0xC0):
            target = int(dfa.transitions[state, dfa.classes[byte]])
            if target != DEAD:
                found += _shifted(target, (byte & 0x3F) << (6 * (n_bytes - 1)), n_bytes - 1)
        return _merged(found)

    def _shifted(target: int, code: int, n_bytes: int) -> Iterator[tuple[int, int, int]]:
        if n_bytes == 0:
            yield code, code, target
        else:
            for first, last, end in following(target, n_bytes):
                yield code + first, code + last, end

    rules: dict[str, str] = {}
    found = [0]
    for state in found:  # grows during the loop
        ranges: list[tuple[int, int, int]] = []
        for byte in (*range(0x80), *range(0xC2, 0xF5)):
            target = int(dfa.transitions[state, dfa.classes[byte]])
            if target == DEAD:
                continue
            n_bytes = 0 if byte < 0x80 else 1 if byte < 0xE0 else 2 if byte < 0xF0 else 3
            lead = byte if n_bytes == 0 else byte & (0x3F >> n_bytes)
            ranges += _shifted(target, lead << (6 * n_bytes), n_bytes)
        by_target: dict[int, list[tuple[int, int]]] = {}
        for first, last, target in _merged(ranges):
            by_target.setdefault(target, []).append((first, last))
        found += [target for target in by_target if target not in found]
        options = [
            f"[{''.join(_class_range(*each) for each in listed)}] {name}-{target}"
            for target, listed in by_target.items()
        ]
        if dfa.accepting[state]:
            options.append('""')
        rules[f"{name}-{state}"] = " | ".join(options)
    return rules


def _merged(ranges: Iterable[tuple[int, int, int]]) -> tuple[tuple[int, int, int], ...]:
    """Join adjacent ranges that have the same target."""
    merged: list[tuple[int, int, int]] = []
    for first, last, target in sorted(ranges):
        if merged and merged[-1][1] + 1 == first and merged[-1][2] == target:
            merged[-1] = (merged[-1][0], last, target)
        else:
            merged.append((first, last, target))
    return tuple(merged)


def _class_range(first: int, last: int) -> str:
    return _class_char(first) if first == last else f"{_class_char(first)}-{_class_char(last)}"


def _class_char(code: int) -> str:
    if code < 0x80:
        plain = chr(code).isalnum()
        return chr(code) if plain else f"\\x{code:02X}"
    return f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"


def _renamed(grammar: str, names: Mapping[str, str]) -> str:
    def replace(match: re.Match[str]) -> str:
        name = match["name"]
        return names.get(name, name) + (match["defines"] or "") if name else match[0]

    return _PIECE.sub(replace, grammar)


def _rules_of(grammar: str) -> list[tuple[str, str]]:
    """Return the name and the body of each rule, without comments."""
    rules: list[tuple[str, list[str]]] = []
    for match in _PIECE.finditer(grammar):
        if match["defines"]:
            rules.append((match["name"], []))
        elif rules and not match["comment"]:
            rules[-1][1].append(match[0])
    return [(name, "".join(body).strip()) for name, body in rules]
