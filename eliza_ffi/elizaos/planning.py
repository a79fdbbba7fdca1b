"""Skeletons for ``{"action":"NAME","parameters":{...}}``, the answer of a planner.

The parameters depend on the chosen action, so these skeletons produce their spans one by one while
the answer is written. For optional parameters the model chooses the next key, or the object's end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..checks import check_kind, check_several, check_text
from ..errors import InvalidArgumentError
from ..model import Model
from ..session.options import AnyPrompt
from ..structured.fill_result import FilledSpan, FillResult
from ..structured.json_text import json_text, read_json
from ..structured.placed_span import PlacedSpan, Script
from ..structured.spans import SkeletonSpan
from .actions import Action, Parameter

OPENING = '{"action":'
_NOTHING = SkeletonSpan("literal", value="")


class _JsonAnswer:
    """Reads the answer of a skeleton that is JSON."""

    def parse(self, text: str) -> Any:
        """Return the value of an answer; raise InvalidArgumentError if it is not JSON."""
        return read_json(text)


class ActionSkeleton(_JsonAnswer):
    """A skeleton for ``{"action":"NAME","parameters":{...}}`` with the actions of a list.

    Parameters
    ----------
    actions
        Actions with distinct names, or mappings that :meth:`Action.from_dict` accepts.

    Raises
    ------
    InvalidArgumentError
        If there are no actions, two actions have the same name, or an action is malformed.

    Notes
    -----
    Span 0 is the name of the action. Span 1 is the first parameter of the chosen action, span 2 the
    second, and so on.
    """

    def __init__(self, actions: Iterable[Action | Mapping[str, Any]]) -> None:
        self.actions = tuple(
            each if isinstance(each, Action) else Action.from_dict(each)
            for each in check_several("actions", actions, "a list of actions")
        )
        if not self.actions:
            raise InvalidArgumentError("there is nothing to choose from: no actions were given")
        self._by_name: dict[str, Action] = {}
        for action in self.actions:
            if action.name in self._by_name:
                raise InvalidArgumentError(
                    f"actions: expected distinct names, got {action.name!r} twice"
                )
            self._by_name[action.name] = action

    @property
    def n_spans(self) -> int:
        return 1 + max(len(action.parameters) for action in self.actions)

    def script(self) -> Script:
        """Yield the spans in order. All spans after the first depend on the chosen action."""
        names = SkeletonSpan("enum", "action", enum_values=tuple(self._by_name))
        placed = PlacedSpan(0, names, before=OPENING, after=',"parameters":{')
        name, _ = yield placed
        action = self._by_name[placed.value(name)]
        yield from _parameter_script(action, first_index=1, opening="", closing="}}")

    def matches(self, text: str) -> bool:
        """Return whether a string is a complete answer of this skeleton."""
        return any(
            _matches_parameters(
                action, f'{OPENING}{json_text(action.name)},"parameters":{{', "}}", text
            )
            for action in self.actions
        )

    def accepts(self, value: Any) -> bool:
        """Return whether a value is an action of the list with valid parameters."""
        return (
            isinstance(value, Mapping)
            and set(value) == {"action", "parameters"}
            and isinstance(value["action"], str)
            and value["action"] in self._by_name
            and self._by_name[value["action"]].accepts(value["parameters"])
        )


class ParametersSkeleton(_JsonAnswer):
    """A skeleton for ``{...}``: the parameters of one action.

    Parameters
    ----------
    action
        An action, or a mapping that :meth:`Action.from_dict` accepts.
    """

    def __init__(self, action: Action | Mapping[str, Any]) -> None:
        self.action = action if isinstance(action, Action) else Action.from_dict(action)

    @property
    def n_spans(self) -> int:
        return len(self.action.parameters)

    def script(self) -> Script:
        """Yield the spans in order."""
        yield from _parameter_script(self.action, first_index=0, opening="{", closing="}")

    def matches(self, text: str) -> bool:
        """Return whether a string is a complete answer of this skeleton."""
        return _matches_parameters(self.action, "{", "}", text)

    def accepts(self, value: Any) -> bool:
        """Return whether a value is an object with valid parameters of the action and no others."""
        return self.action.accepts(value)


def options_after(
    parameters: Sequence[Parameter], begin: int, closing: str
) -> dict[str, int | None]:
    """Return the strings that may come after parameter `begin` - 1, each with the index of the
    parameter that it introduces, or None if it ends the object. Only optional parameters are
    skipped."""
    quote = parameters[begin - 1].closing if begin else ""
    comma = "," if begin else ""
    options: dict[str, int | None] = {}
    for i in range(begin, len(parameters)):
        options[quote + comma + parameters[i].opening] = i
        if parameters[i].required:
            return options
    options[quote + closing] = None
    return options


def _parameter_script(action: Action, first_index: int, opening: str, closing: str) -> Script:
    parameters = action.parameters
    options = options_after(parameters, 0, closing)
    fixed = opening
    if len(options) == 1:
        chosen = next(iter(options))
        fixed += chosen
    else:
        _, chosen = yield PlacedSpan(first_index, _NOTHING, before=fixed, follow=tuple(options))
        fixed = ""
    while (i := options[chosen]) is not None:
        options = options_after(parameters, i + 1, closing)
        _, chosen = yield parameters[i].placed(first_index + i, fixed, *options)
        fixed = ""
    if fixed:
        yield PlacedSpan(first_index, _NOTHING, before=fixed)


def _matches_parameters(action: Action, opening: str, closing: str, text: str) -> bool:
    if not check_text("text", text).startswith(opening):
        return False
    reached = {(0, len(opening))}
    while reached:
        begin, position = reached.pop()
        for option, i in options_after(action.parameters, begin, closing).items():
            if not text.startswith(option, position):
                continue
            start = position + len(option)
            if i is None:
                if start == len(text):
                    return True
                continue
            placed = action.parameters[i].placed(i)
            reached |= {(i + 1, end) for end in placed.ends(text, start)}
    return False


def plan(
    model: Model,
    prompt: AnyPrompt,
    actions: Iterable[Action | Mapping[str, Any]],
    *,
    on_span: Callable[[FilledSpan], Any] | None = None,
    timeout: float | None = None,
    **settings: Any,
) -> FillResult[Any]:
    """Let the model choose an action and write ``{"action":"NAME","parameters":{...}}``.

    `actions` are :class:`Action` objects, or mappings in elizaOS's JSON format; a malformed action
    raises InvalidArgumentError. The other arguments and errors are as in :meth:`Model.fill
    <eliza_ffi.model.Model.fill>`.

    >>> plan(model, "Say hello. ", [{"name": "STOP", "parameters": []}]).text
    '{"action":"STOP","parameters":{}}'
    """
    check_kind("model", model, Model, "a Model")
    return model.fill(prompt, ActionSkeleton(actions), on_span=on_span, timeout=timeout, **settings)
