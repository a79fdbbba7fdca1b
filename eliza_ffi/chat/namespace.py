"""The objects that ``namespace()`` creates in a chat template."""

from __future__ import annotations

from typing import Any

from jinja2.utils import Namespace

__all__ = ["OpenNamespace", "values_of"]


class OpenNamespace(Namespace):
    """A namespace whose values the sandbox can read, to measure them.

    Jinja2's own class stores its values in a private attribute. This class stores them in its own
    dictionary. It relies only on two facts: a compiled template can assign to any instance of
    ``Namespace``, and it does so with ``namespace[name] = value``.
    """

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            return object.__getattribute__(self, name)
        try:
            return values_of(self)[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setitem__(self, name: str, value: Any) -> None:
        values_of(self)[name] = value

    def __repr__(self) -> str:
        return f"<Namespace {values_of(self)!r}>"


def values_of(namespace: OpenNamespace) -> dict[str, Any]:
    """Return the values of a namespace by name."""
    values: dict[str, Any] = object.__getattribute__(namespace, "_values")
    return values
