"""How each span's tokens are sampled: elizaOS's ``SpanSamplerPlan``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..checks import (
    check_each,
    check_flag,
    check_kind,
    check_known,
    check_number,
    check_text,
    check_whole,
    wrong,
)
from ..errors import InvalidArgumentError

__all__ = ["SpanOverride", "SpanSamplerPlan", "SpanSampling"]

ARGMAX_KINDS = frozenset(("enum", "number", "integer", "boolean"))
"""What is looked up rather than written: always the most likely, unless overridden."""


@dataclass(frozen=True)
class SpanSampling:
    """How tokens are sampled.

    Attributes
    ----------
    temperature : float
        0 = always the most likely token.
    top_k : int
        0 = off.
    top_p : float
        1 = off.

    Raises
    ------
    InvalidArgumentError
        If one of them is out of range.
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
        """Return the part of a request to the library."""
        return {"temperature": self.temperature, "top_k": self.top_k, "top_p": self.top_p}


@dataclass(frozen=True)
class SpanOverride:
    """How one span is sampled, whatever its kind.

    Attributes
    ----------
    span_index : int
        The span's place in the skeleton as it was given, from 0.
    temperature : float
    top_k : int or None
        None = as the call has it.
    top_p : float or None
        None = as the call has it.
    """

    span_index: int
    temperature: float
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "span_index", check_whole("spanIndex", self.span_index, 0))
        self.over(SpanSampling())  # which checks the rest

    def over(self, call: SpanSampling) -> SpanSampling:
        """Return the sampling that this makes of the call's."""
        check_kind("call", call, SpanSampling, "a SpanSampling")
        return SpanSampling(
            temperature=self.temperature,
            top_k=call.top_k if self.top_k is None else self.top_k,
            top_p=call.top_p if self.top_p is None else self.top_p,
        )


@dataclass(frozen=True)
class SpanSamplerPlan:
    """How the spans of a skeleton are sampled.

    Without an override, spans of kind ``enum``, ``number``, ``integer`` and ``boolean`` take the
    most likely token at each step, and the others follow the call.

    Attributes
    ----------
    overrides : tuple of SpanOverride
        One for a span at most. A literal has nothing to sample: its override changes nothing.
    strict : bool
        Spans of those four kinds take the most likely token whatever an override says.

    Raises
    ------
    InvalidArgumentError
        If two overrides are for one span.
    """

    overrides: tuple[SpanOverride, ...] = ()
    strict: bool = False

    def __post_init__(self) -> None:
        overrides = check_each("overrides", self.overrides, SpanOverride, "a SpanOverride")
        object.__setattr__(self, "overrides", overrides)
        check_flag("strict", self.strict)
        seen: set[int] = set()
        for override in self.overrides:
            if override.span_index in seen:
                raise InvalidArgumentError(f"two overrides are for span {override.span_index}")
            seen.add(override.span_index)

    @classmethod
    def from_dict(cls, data: Any) -> SpanSamplerPlan:
        """Return the plan of elizaOS's JSON form, in either spelling of its field names."""
        fields = _fields(data, "a sampler plan", {"overrides": "overrides", "strict": "strict"})
        overrides = fields.get("overrides", ())
        check_kind("overrides", overrides, (list, tuple), "a list")
        strict = check_flag("strict", fields.get("strict", False))
        return cls(tuple(_override(i, each) for i, each in enumerate(overrides)), strict)

    def to_dict(self) -> dict[str, Any]:
        """Return elizaOS's JSON form."""
        overrides = []
        for each in self.overrides:
            form = {
                "spanIndex": each.span_index,
                "temperature": each.temperature,
                "topK": each.top_k,
                "topP": each.top_p,
            }
            overrides.append({name: value for name, value in form.items() if value is not None})
        return {"overrides": overrides, "strict": self.strict}

    def check(self, n_spans: int) -> None:
        """Check that the overrides are for spans that a skeleton of `n_spans` spans has.

        Raises
        ------
        InvalidArgumentError
            If one is not.
        """
        check_whole("n_spans", n_spans, 0)
        for each in self.overrides:
            if each.span_index >= n_spans:
                raise InvalidArgumentError(
                    f"an override is for span {each.span_index}, but the skeleton has {n_spans} "
                    f"spans: spanIndex must be below that"
                )

    def sampling(self, index: int, kind: str, call: SpanSampling) -> SpanSampling:
        """Return how a span is sampled; `call` is the sampling of the spans that follow it."""
        check_whole("index", index, 0)
        is_argmax = check_text("kind", kind) in ARGMAX_KINDS
        if is_argmax and self.strict:
            return SpanSampling()
        override = next((each for each in self.overrides if each.span_index == index), None)
        if override is not None:
            return override.over(call)
        return SpanSampling() if is_argmax else call


def _override(i: int, data: Any) -> SpanOverride:
    names = {
        "spanIndex": "span_index",
        "span_index": "span_index",
        "temperature": "temperature",
        "topK": "top_k",
        "top_k": "top_k",
        "topP": "top_p",
        "top_p": "top_p",
    }
    try:
        fields = _fields(data, "an override", names)
        for needed in ("span_index", "temperature"):
            if needed not in fields:
                raise InvalidArgumentError(f"an override needs {needed}")
        return SpanOverride(**fields)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"overrides[{i}]: {error}") from None


def _fields(data: Any, what: str, names: Mapping[str, str]) -> dict[str, Any]:
    check_kind(what, data, Mapping, "an object")
    check_known(what, data, names)
    return {names[name]: value for name, value in data.items() if value is not None}
