"""What is true at places of an example, told to the network in training only.

An answer alone says little about what was misread on the way to it: the input, an option, or how
they compare. Each of these steps has a place in a prompt where it can be taken, so training looks
there, too (:mod:`.readers`). What is recognised are *meanings*, the values of all aspects.
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
    """Places (token indices) of an example, and what is true there.

    Attributes
    ----------
    judged : list of (place, bool)
        Whether the option that ends there is the right one, or the statement true.
    meant : list of (place, meaning)
        What the input before, or the option that ends there, means.
    recalled : list of (place, meaning)
        Where an option ends: what the input says of its aspect.
    compared : list of (place, end of the input, bool)
        Where an option ends: whether the input says the same.
    """

    judged: list[tuple[int, bool]]
    meant: list[tuple[int, int]]
    recalled: list[tuple[int, int]]
    compared: list[tuple[int, int, bool]]


def give_hints(
    example: Example, lines: Sequence[Span], statement: Span | None, input_end: int
) -> Hints:
    """Find the hints of an example.

    Parameters
    ----------
    example : Example
    lines : sequence of (int, int)
        The tokens of each listed action or option, with its line break.
    statement : (int, int) or None
        Those of a predicate's statement.
    input_end : int
        The token after the input.
    """
    hints = Hints([], [], [], [])
    for at, line in enumerate(lines):
        # An action's line can be judged on the way, an option's few words at their end.
        first = line[0] if example.kind == "planner" else max(line[0], line[1] - _FEWEST_JUDGED)
        hints.judged.extend((place, at == example.correct_line) for place in range(first, line[1]))
    if statement is not None:
        first = max(statement[0], statement[1] - _FEWEST_JUDGED)
        hints.judged.extend((place, example.holds) for place in range(first, statement[1]))
    told = {aspect_of(meaning): meaning for meaning in example.told}
    hints.meant.extend((input_end, _INDEX[meaning]) for meaning in example.told)
    # A predicate names one value, in its statement; other questions one in each option.
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
