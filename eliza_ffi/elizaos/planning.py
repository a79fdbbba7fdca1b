"""A planner's answer: an action of a list, and the parameters that this action takes.

``{"action":"NAME","parameters":{...}}``, where the parameters depend on the action, which a row of
spans cannot say. So these skeletons know their spans only as the answer is written.

Parameters are written in the action's order. Required ones always are; whether an optional one is,
the model decides, by the key it goes on with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..checks import check_several, check_text
from ..errors import InvalidArgumentError
from ..structured import gbnf
from ..structured.json_text import json_text, read_json
from ..structured.placed_span import PlacedSpan, Script
from ..structured.spans import SkeletonSpan
from .actions import Action, Parameter

__all__ = ["ActionSkeleton", "ParametersSkeleton"]

OPENING = '{"action":'
_NOTHING = SkeletonSpan("literal", value="")


class _WrittenAsJson:
    """What the two kinds of answers have in common."""

    def parse(self, text: str) -> Any:
        """Return the value of an answer; raises InvalidArgumentError if it is not JSON."""
        return read_json(text)


class ActionSkeleton(_WrittenAsJson):
    """The answers ``{"action":"NAME","parameters":{...}}`` for a list of actions.

    Parameters
    ----------
    actions
        Actions with distinct names, or mappings as :meth:`Action.from_dict` takes them.

    Raises
    ------
    InvalidArgumentError
        If there are none, two have one name, or one is malformed.

    Notes
    -----
    Of the spans, number 0 is the action and number i + 1 is the i-th parameter of the one chosen.
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
                raise InvalidArgumentError(f"two actions are named {action.name!r}")
            self._by_name[action.name] = action

    @property
    def n_spans(self) -> int:
        return 1 + max(len(action.parameters) for action in self.actions)

    def script(self) -> Script:
        """Return the spans one after the other; those after the first depend on the action."""
        names = SkeletonSpan("enum", "action", enum_values=tuple(self._by_name))
        placed = PlacedSpan(0, names, before=OPENING, after=',"parameters":{')
        filled = yield placed
        action = self._by_name[placed.value(filled.text)]
        yield from _parameter_script(action, first_index=1, opening="", closing="}}")

    def matches(self, text: str) -> bool:
        """Return whether this could be an answer."""
        return any(
            _matches_parameters(
                action, f'{OPENING}{json_text(action.name)},"parameters":{{', "}}", text
            )
            for action in self.actions
        )

    def accepts(self, value: Any) -> bool:
        """Return whether a value is an action of the list with parameters that it takes."""
        return (
            isinstance(value, Mapping)
            and set(value) == {"action", "parameters"}
            and isinstance(value["action"], str)
            and value["action"] in self._by_name
            and self._by_name[value["action"]].accepts(value["parameters"])
        )

    def to_gbnf(self) -> str:
        """Return a grammar of exactly these answers."""
        builder = gbnf.Builder()
        options = []
        for i, action in enumerate(self.actions):
            name = gbnf.quoted(f'{json_text(action.name)},"parameters":{{')
            options.append(f"{name} {_parameter_rules(builder, action, f'action-{i}', '}}')}")
        return builder.grammar(f"{gbnf.quoted(OPENING)} ({' | '.join(options)})")


class ParametersSkeleton(_WrittenAsJson):
    """The answers ``{...}``: the parameters of one action.

    Parameters
    ----------
    action
        The action, or a mapping as :meth:`Action.from_dict` takes it.
    """

    def __init__(self, action: Action | Mapping[str, Any]) -> None:
        self.action = action if isinstance(action, Action) else Action.from_dict(action)

    @property
    def n_spans(self) -> int:
        return len(self.action.parameters)

    def script(self) -> Script:
        """Return the spans one after the other."""
        yield from _parameter_script(self.action, first_index=0, opening="{", closing="}")

    def matches(self, text: str) -> bool:
        """Return whether this could be an answer."""
        return _matches_parameters(self.action, "{", "}", text)

    def accepts(self, value: Any) -> bool:
        """Return whether a value is an object of the action's parameters and no others."""
        return self.action.accepts(value)

    def to_gbnf(self) -> str:
        """Return a grammar of exactly these answers."""
        builder = gbnf.Builder()
        return builder.grammar(f'"{{" {_parameter_rules(builder, self.action, "action", "}")}')


def _options(parameters: Sequence[Parameter], begin: int, closing: str) -> dict[str, int | None]:
    """Return the texts that may come next, from parameter `begin` on, and the parameter of each.

    Optional parameters may be passed over, up to the next required one or the end.
    """
    # Parameter begin - 1 has been written, if any has.
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
    options = _options(parameters, 0, closing)
    known = opening
    if len(options) == 1:
        taken = next(iter(options))
        known += taken
    else:
        filled = yield PlacedSpan(first_index, _NOTHING, before=known, follow=tuple(options))
        taken, known = filled.follow, ""
    while (i := options[taken]) is not None:
        options = _options(parameters, i + 1, closing)
        filled = yield parameters[i].placed(first_index + i, known, *options)
        taken, known = filled.follow, ""
    if known:
        yield PlacedSpan(first_index, _NOTHING, before=known)


def _matches_parameters(action: Action, opening: str, closing: str, text: str) -> bool:
    data = check_text("text", text).encode("utf-8", "surrogatepass")
    if not data.startswith(opening.encode()):
        return False
    reached = {(0, len(opening.encode()))}
    while reached:
        begin, position = reached.pop()
        for option, i in _options(action.parameters, begin, closing).items():
            if not data.startswith(option.encode(), position):
                continue
            start = position + len(option.encode())
            if i is None:
                if start == len(data):
                    return True
                continue
            placed = action.parameters[i].placed(i)
            reached |= {(i + 1, end) for end in placed.ends(data, start)}
    return False


def _parameter_rules(builder: gbnf.Builder, action: Action, name: str, closing: str) -> str:
    """Add the rules of what may follow each parameter; return the name of the first."""
    for begin in range(len(action.parameters), -1, -1):
        options = []
        for option, i in _options(action.parameters, begin, closing).items():
            expression = gbnf.quoted(option)
            if i is not None:
                value = builder.span(action.parameters[i].placed(i))
                expression += f" {value} {name}-{i + 1}"
            options.append(expression)
        builder.add(f"{name}-{begin}", " | ".join(options))
    return f"{name}-0"
