"""Sampling settings for the spans of a skeleton: elizaOS's ``SpanSamplerPlan``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..checks import (
    check_each,
    check_flag,
    check_kind,
    check_number,
    check_text,
    check_whole,
    within,
    wrong,
)
from ..errors import InvalidArgumentError
from .spans import from_json_form, to_json_form

ARGMAX_KINDS = frozenset(("enum", "number", "integer", "boolean"))
"""The kinds of span that take the most probable token at each step unless overridden."""


@dataclass(frozen=True)
class SpanSampling:
    """Sampling settings for the tokens of a span.

    Attributes
    ----------
    temperature : float
        0 = always the most probable token.
    top_k : int
        0 = off.
    top_p : float
        1 = off.

    Raises
    ------
    InvalidArgumentError
        If a setting is out of range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        checked = {
            "temperature": check_number("temperature", self.temperature, 0),
            "top_k": check_whole("top_k", self.top_k, 0),
            "top_p": check_number("top_p", self.top_p, 0, 1),
        }
        if self.top_p == 0:
            raise wrong("top_p", "above 0 and at most 1", self.top_p)
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def request(self) -> dict[str, float | int]:
        """Return the settings as part of a request to the library."""
        return {"temperature": self.temperature, "top_k": self.top_k, "top_p": self.top_p}


@dataclass(frozen=True)
class SpanOverride:
    """Sampling settings for one span of any kind.

    Attributes
    ----------
    span_index : int
        The index of the span in the skeleton as given by the caller, from 0.
    temperature : float
    top_k : int or None
        None = the call's setting.
    top_p : float or None
        None = the call's setting.
    """

    span_index: int
    temperature: float
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "span_index", check_whole("spanIndex", self.span_index, 0))
        self.over(SpanSampling())  # checks the other fields

    def over(self, call: SpanSampling) -> SpanSampling:
        """Return the call's settings with this override applied."""
        check_kind("call", call, SpanSampling, "a SpanSampling")
        return SpanSampling(
            temperature=self.temperature,
            top_k=call.top_k if self.top_k is None else self.top_k,
            top_p=call.top_p if self.top_p is None else self.top_p,
        )


@dataclass(frozen=True)
class SpanSamplerPlan:
    """Sampling settings for the spans of a skeleton.

    Without an override, spans of kind ``enum``, ``number``, ``integer`` and ``boolean`` take the
    most probable token at each step. The other spans use the settings of the call.

    Attributes
    ----------
    overrides : tuple of SpanOverride
        At most one for each span. An override for a literal has no effect.
    strict : bool
        Whether spans of these four kinds ignore their overrides.

    Raises
    ------
    InvalidArgumentError
        If two overrides are for the same span.
    """

    overrides: tuple[SpanOverride, ...] = ()
    strict: bool = False

    def __post_init__(self) -> None:
        overrides = check_each("overrides", self.overrides, SpanOverride, "a SpanOverride")
        object.__setattr__(self, "overrides", overrides)
        object.__setattr__(self, "strict", check_flag("strict", self.strict))
        seen: set[int] = set()
        for override in self.overrides:
            if override.span_index in seen:
                raise InvalidArgumentError(f"two overrides are for span {override.span_index}")
            seen.add(override.span_index)

    @classmethod
    def from_dict(cls, data: Any) -> SpanSamplerPlan:
        """Create a plan from elizaOS's JSON form. Field names may be camelCase or snake_case."""
        values = from_json_form("a sampler plan", data, cls)
        overrides = values.get("overrides", ())
        check_kind("overrides", overrides, (list, tuple), "a list")
        strict = check_flag("strict", values.get("strict", False))
        read = []
        for i, each in enumerate(overrides):
            with within(f"overrides[{i}]"):
                given = from_json_form("an override", each, SpanOverride)
                for needed in ("span_index", "temperature"):
                    if needed not in given:
                        raise InvalidArgumentError(f"an override needs {needed}")
                read.append(SpanOverride(**given))
        return cls(tuple(read), strict)

    def to_dict(self) -> dict[str, Any]:
        """Return elizaOS's JSON form."""
        return {"overrides": list(map(to_json_form, self.overrides)), "strict": self.strict}

    def check(self, n_spans: int) -> None:
        """Check that all overrides are for spans of a skeleton with `n_spans` spans.

        Raises
        ------
        InvalidArgumentError
            If an override's index is `n_spans` or more.
        """
        n_spans = check_whole("n_spans", n_spans, 0)
        for each in self.overrides:
            if each.span_index >= n_spans:
                raise InvalidArgumentError(
                    f"spanIndex must be below {n_spans}, the number of spans in the skeleton, "
                    f"got {each.span_index}"
                )

    def sampling(self, index: int, kind: str, call: SpanSampling) -> SpanSampling:
        """Return the settings for a span; `call` has the settings of the call."""
        index = check_whole("index", index, 0)
        is_argmax = check_text("kind", kind) in ARGMAX_KINDS
        if is_argmax and self.strict:
            return SpanSampling()
        override = next((each for each in self.overrides if each.span_index == index), None)
        if override is not None:
            return override.over(call)
        return SpanSampling() if is_argmax else call
