"""The tables of a deterministic automaton, in the native library's format, and their checks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import InvalidArgumentError

__all__ = ["DEAD", "MOST_CLASSES", "MOST_STATES", "Tables", "checked_tables"]

DEAD = -1
"""The entry of the transition table for "no next state"."""

MOST_STATES = 65_535
"""The maximum number of states. The native library stores state numbers in 16 bits."""

MOST_CLASSES = 256
"""The maximum number of classes: one for each byte value."""


class Tables(NamedTuple):
    """The tables of a :class:`~eliza_ffi.structured.automata.dfa.Dfa`.

    Attributes
    ----------
    classes : uint8[256]
        The class of each byte.
    transitions : int32[n_states, n_classes]
        The next state, or `DEAD`.
    accepting : bool[n_states]
        Whether a string may end in this state.
    """

    classes: npt.NDArray[np.uint8]
    transitions: npt.NDArray[np.int32]
    accepting: npt.NDArray[np.bool_]


def checked_tables(classes: Any, transitions: Any, accepting: Any) -> Tables:
    """Check the tables, and return read-only copies.

    Raises
    ------
    InvalidArgumentError
        If an array has the wrong shape or type, a class or state is out of range, no state is
        accepting, or there are more than `MOST_STATES` states or `MOST_CLASSES` classes.
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
            f"{name} must be {described}, got {checked.dtype}{list(checked.shape)}"
        )
    return checked


def _check_ranges(
    classes: npt.NDArray[Any], transitions: npt.NDArray[Any], accepting: npt.NDArray[Any]
) -> None:
    n_states, n_classes = transitions.shape
    if not 1 <= n_states <= MOST_STATES:
        raise InvalidArgumentError(
            f"transitions: expected 1 to {MOST_STATES} states, got {n_states}"
        )
    if not 1 <= n_classes <= MOST_CLASSES:
        raise InvalidArgumentError(
            f"transitions: expected 1 to {MOST_CLASSES} classes, got {n_classes}"
        )
    if len(classes) != 256:
        raise InvalidArgumentError(
            f"classes: expected 256 numbers, one for each byte, got {len(classes)}"
        )
    if len(accepting) != n_states:
        raise InvalidArgumentError(
            f"accepting: expected an entry for each of the {n_states} states, got {len(accepting)}"
        )
    wrong = np.flatnonzero((classes < 0) | (classes >= n_classes))
    if wrong.size:
        raise InvalidArgumentError(
            f"classes: expected classes from 0 to {n_classes - 1}, got {classes[wrong[0]]} for "
            f"byte 0x{wrong[0]:02X}"
        )
    wrong_moves = np.argwhere((transitions < DEAD) | (transitions >= n_states))
    if wrong_moves.size:
        state, of_class = wrong_moves[0]
        raise InvalidArgumentError(
            f"transitions: expected states from -1 to {n_states - 1}, got "
            f"{transitions[state, of_class]} for state {state} and class {of_class}"
        )
    if not accepting.any():
        raise InvalidArgumentError(
            f"accepting: expected at least one accepting state, got none of {n_states}"
        )
