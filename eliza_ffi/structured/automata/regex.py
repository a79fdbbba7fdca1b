"""Compile regular expressions to automata over bytes, which match the whole text."""

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
        The expression that the whole text must match.
    max_states
        The maximum number of states before equivalent states are merged, 1 to 65,535.

    Returns
    -------
    Dfa
        The smallest automaton that accepts the UTF-8 bytes of matching text.

    Raises
    ------
    InvalidArgumentError
        If the pattern is malformed, has an unsupported construct, has more than 262,144 characters
        (or more parts than that once its repetitions are expanded), nests more than 50 groups, or
        repeats something more than 65,535 times. The message names the construct and its position,
        in characters from 0. The error is also raised if the automaton needs more than `max_states`
        states, or more than 2**23 steps (one or two seconds) to become deterministic.

    Examples
    --------
    >>> date = compile_regex(r"\d{4}-\d\d-\d\d")
    >>> date.accepts(b"2024-02-29"), date.accepts(b"2024-02-29 ")
    (True, False)
    """
    if not isinstance(pattern, str):
        raise InvalidArgumentError(f"pattern must be a string, got {type(pattern).__name__}")
    if len(pattern) > MOST_PARTS:
        raise pattern_error(
            pattern, MOST_PARTS, f"expected at most {MOST_PARTS} characters, got {len(pattern)}"
        )
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
    """Add the node as transitions from `start` to `end` (Thompson, 1968)."""
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
    # Characters whose last bytes have the same ranges share the states for these bytes. For
    # most multi-byte characters, the last range is 80 to BF.
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
            start = _appended(nfa, node.part, start)
        begin = nfa.new_state()
        nfa.add_jump(start, begin)
        again = _appended(nfa, node.part, begin)
        nfa.add_jump(again, begin)
        nfa.add_jump(again if node.least else begin, end)
        return
    for _ in range(node.least):
        start = _appended(nfa, node.part, start)
    for _ in range(node.most - node.least):
        # Jump directly to the end, not to the next optional copy: this keeps sets of states small.
        nfa.add_jump(start, end)
        start = _appended(nfa, node.part, start)
    nfa.add_jump(start, end)


def _appended(nfa: Nfa, node: Node, start: int) -> int:
    end = nfa.new_state()
    _add(nfa, node, start, end)
    return end
