"""The tables of a deterministic automaton, as the native library takes them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import InvalidArgumentError

__all__ = ["DEAD", "MOST_CLASSES", "MOST_STATES", "Tables", "checked_tables"]

DEAD = -1
"""The next state where there is none."""

MOST_STATES = 65_535
"""The most states an automaton may have: the native library numbers them in 16 bits."""

MOST_CLASSES = 256
"""No two bytes need share a class; more classes than bytes would have no bytes."""


class Tables(NamedTuple):
    """What :class:`~eliza_ffi.structured.automata.dfa.Dfa` consists of.

    Attributes
    ----------
    classes : uint8[256]
        The class of each byte.
    transitions : int32[n_states, n_classes]
        The next state, or `DEAD`.
    accepting : bool[n_states]
        Whether the text may end here.
    """

    classes: npt.NDArray[np.uint8]
    transitions: npt.NDArray[np.int32]
    accepting: npt.NDArray[np.bool_]


def checked_tables(classes: Any, transitions: Any, accepting: Any) -> Tables:
    """Return copies that cannot be written to.

    Raises
    ------
    InvalidArgumentError
        If an array has another shape or kind, a class or state is out of range, no state is
        accepting, or there are more than `MOST_STATES` or `MOST_CLASSES`.
    """
    checked = (
        _checked_array("classes", classes, "iu", "256 whole numbers", 1),
        _checked_array("transitions", transitions, "iu", "whole numbers[n_states, n_classes]", 2),
        _checked_array("accepting", accepting, "b", "bool[n_states]", 1),
    )
    _check_ranges(*checked)
    tables = Tables(
        *(
            np.array(values, dtype=dtype, order="C")
            for values, dtype in zip(checked, (np.uint8, np.int32, np.bool_), strict=True)
        )
    )
    for values in tables:
        values.flags.writeable = False
    return tables


def _checked_array(
    name: str, values: Any, kinds: str, described: str, n_dims: int
) -> npt.NDArray[Any]:
    try:
        checked = np.asarray(values)
    except (ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"{name} must be {described}: {error}") from None
    if checked.ndim != n_dims or checked.dtype.kind not in kinds:
        raise InvalidArgumentError(
            f"{name} must be {described}, not {checked.dtype}{list(checked.shape)}"
        )
    return checked


def _check_ranges(
    classes: npt.NDArray[Any], transitions: npt.NDArray[Any], accepting: npt.NDArray[Any]
) -> None:
    n_states, n_classes = transitions.shape
    if not 1 <= n_states <= MOST_STATES:
        raise InvalidArgumentError(f"there are {n_states} states, outside 1 to {MOST_STATES}")
    if not 1 <= n_classes <= MOST_CLASSES:
        raise InvalidArgumentError(f"there are {n_classes} classes, outside 1 to {MOST_CLASSES}")
    if len(classes) != 256:
        raise InvalidArgumentError(f"classes has {len(classes)} numbers, not one for each byte")
    if len(accepting) != n_states:
        raise InvalidArgumentError(
            f"accepting is for {len(accepting)} states, but transitions for {n_states}"
        )
    wrong = np.flatnonzero((classes < 0) | (classes >= n_classes))
    if wrong.size:
        raise InvalidArgumentError(
            f"byte 0x{wrong[0]:02X} has class {classes[wrong[0]]}, outside 0 to {n_classes - 1}"
        )
    wrong_moves = np.argwhere((transitions < DEAD) | (transitions >= n_states))
    if wrong_moves.size:
        state, of_class = wrong_moves[0]
        raise InvalidArgumentError(
            f"state {state} leads to state {transitions[state, of_class]} on class {of_class}, "
            f"outside -1 to {n_states - 1}"
        )
    if not accepting.any():
        raise InvalidArgumentError(f"none of the {n_states} states is accepting")
