"""Auxiliary training targets: facts that the network should know at some tokens of an example.

A wrong answer alone does not show where the network failed: in the input, an option, or the
comparison of both. For each of these steps there is a token in the prompt at which the network can
do it, so training adds a loss at that token (:mod:`.readers`). The targets are *meanings*, the
values of all aspects. The exported model does not have these targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .aspects import read_aspect
from .corpus import Example
from .inputs import CUSTOMER_ASPECTS, SINGLE_ASPECTS

Span = tuple[int, int]

MEANINGS = tuple(
    f"{name}:{value.key}"
    for name in (*CUSTOMER_ASPECTS, *SINGLE_ASPECTS, "respond")
    for value in read_aspect(name).values
)
_INDEX = {meaning: index for index, meaning in enumerate(MEANINGS)}
_FEWEST_JUDGED = 2


def aspect_of(meaning: str) -> str:
    """Return the name of the aspect that a meaning is a value of."""
    return meaning.partition(":")[0]


@dataclass(frozen=True)
class Hints:
    """Places (token indices) of an example, with the target at each.

    Attributes
    ----------
    judged : list of (place, bool)
        Whether the option that ends at the place is correct, or the statement is true.
    meant : list of (place, meaning)
        The meaning of the input before the place, or of the option that ends there.
    recalled : list of (place, meaning)
        At the end of an option: the value of the option's aspect in the input.
    compared : list of (place, end of the input, bool)
        At the end of an option: whether the input has the same meaning as the option.
    """

    judged: list[tuple[int, bool]]
    meant: list[tuple[int, int]]
    recalled: list[tuple[int, int]]
    compared: list[tuple[int, int, bool]]


def give_hints(
    example: Example, lines: Sequence[Span], statement: Span | None, input_end: int
) -> Hints:
    """Return the hints of an example.

    Parameters
    ----------
    example : Example
    lines : sequence of (int, int)
        The token range of each listed action or option, including its line break.
    statement : (int, int) or None
        The token range of a predicate's statement.
    input_end : int
        The index of the token after the input.
    """
    hints = Hints([], [], [], [])
    for at, line in enumerate(lines):
        # A planner action is judged at every token of its line, an option only at its last tokens.
        first = line[0] if example.kind == "planner" else max(line[0], line[1] - _FEWEST_JUDGED)
        hints.judged.extend((place, at == example.correct_line) for place in range(first, line[1]))
    if statement is not None:
        first = max(statement[0], statement[1] - _FEWEST_JUDGED)
        hints.judged.extend((place, example.holds) for place in range(first, statement[1]))
    told = {aspect_of(meaning): meaning for meaning in example.told}
    hints.meant.extend((input_end, _INDEX[meaning]) for meaning in example.told)
    # A predicate names one value in its statement. Other questions name a value in each option.
    spans = lines if statement is None else [statement]
    for (_, end), named in zip(spans, example.named, strict=bool(example.named)):
        if named is None:
            continue
        place, said = end - 1, told.get(aspect_of(named))
        hints.meant.append((place, _INDEX[named]))
        if said is not None:
            hints.recalled.append((place, _INDEX[said]))
            hints.compared.append((place, input_end, said == named))
    return hints
