"""Regular expressions as automata over bytes, matched against the whole text."""

from __future__ import annotations

from ...errors import InvalidArgumentError
from .dfa import Dfa
from .nfa import Nfa
from .regex_cursor import pattern_error, shown
from .regex_syntax import parse
from .regex_tree import (
    MOST_PARTS,
    Alternation,
    Characters,
    Node,
    Repetition,
    check_size,
)
from .tables import MOST_STATES
from .utf8_ranges import ByteRanges

__all__ = ["compile_regex"]


def compile_regex(pattern: str, max_states: int = MOST_STATES) -> Dfa:
    r"""Compile a regular expression in the syntax of :mod:`.regex_syntax`.

    Parameters
    ----------
    pattern
        What the whole text must match.
    max_states
        The most states that may be needed, 1 to 65,535, counted before equivalent ones are merged.

    Returns
    -------
    Dfa
        The smallest one. It reads the UTF-8 of the texts.

    Raises
    ------
    InvalidArgumentError
        If the pattern has an error or a construct that is not supported, has more than 262,144
        characters, or more parts than that with its repetitions written out, nests more than 50
        groups, or repeats something more than 65,535 times: the message names the construct and
        its position, from 0, in characters. If it needs more states than allowed, or more than
        2**23 steps to become deterministic, which take one or two seconds.

    Examples
    --------
    >>> date = compile_regex(r"\d{4}-\d\d-\d\d")
    >>> date.accepts(b"2024-02-29"), date.accepts(b"2024-02-29 ")
    (True, False)
    """
    if not isinstance(pattern, str):
        raise InvalidArgumentError(f"a pattern must be a str, not {type(pattern).__name__}")
    if len(pattern) > MOST_PARTS:
        raise pattern_error(pattern, MOST_PARTS, f"the limit is {MOST_PARTS} characters")
    root = parse(pattern)
    check_size(root, pattern)
    nfa = Nfa()
    _add(nfa, root, Nfa.START, Nfa.END)
    try:
        return Dfa.from_nfa(nfa, max_states)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(
            f"cannot compile the pattern {shown(pattern)}: {error}"
        ) from None


def _add(nfa: Nfa, node: Node, start: int, end: int) -> None:
    """Let every text of the node lead from start to end (Thompson, 1968)."""
    if isinstance(node, Characters):
        _add_characters(nfa, node, start, end)
    elif isinstance(node, Alternation):
        for part in node.parts:
            _add(nfa, part, start, end)
    elif isinstance(node, Repetition):
        _add_repetition(nfa, node, start, end)
    else:
        for part in node.parts:
            following = nfa.new_state()
            _add(nfa, part, start, following)
            start = following
        nfa.add_jump(start, end)


def _add_characters(nfa: Nfa, node: Characters, start: int, end: int) -> None:
    # Characters that end in the same ranges of bytes share the states there: most end in 80 to BF.
    state_before: dict[ByteRanges, int] = {(): end}
    for sequence in node.sequences:
        for at in range(len(sequence) - 1, 0, -1):
            if sequence[at:] not in state_before:
                state = nfa.new_state()
                nfa.add_range(state, *sequence[at], state_before[sequence[at + 1 :]])
                state_before[sequence[at:]] = state
        nfa.add_range(start, *sequence[0], state_before[sequence[1:]])


def _add_repetition(nfa: Nfa, node: Repetition, start: int, end: int) -> None:
    if node.most is None:
        for _ in range(node.least - 1):
            start = _add_behind(nfa, node.part, start)
        begin = nfa.new_state()
        nfa.add_jump(start, begin)
        again = _add_behind(nfa, node.part, begin)
        nfa.add_jump(again, begin)
        nfa.add_jump(again if node.least else begin, end)
        return
    for _ in range(node.least):
        start = _add_behind(nfa, node.part, start)
    for _ in range(node.most - node.least):
        # To the end at once, not to the next that may be left out: sets of states stay small.
        nfa.add_jump(start, end)
        start = _add_behind(nfa, node.part, start)
    nfa.add_jump(start, end)


def _add_behind(nfa: Nfa, node: Node, start: int) -> int:
    end = nfa.new_state()
    _add(nfa, node, start, end)
    return end
