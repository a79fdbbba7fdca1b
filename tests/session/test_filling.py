"""Filling skeletons, with a fake binding. `tests/structured/test_fill.py` uses models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from automata_walks import Dfa, shortest_completion
from recording_binding import ALL, RecordingBinding

from eliza_ffi.errors import (
    ContextFullError,
    FillError,
    InvalidArgumentError,
    NativeFaultError,
)
from eliza_ffi.library.protocol import SpanResult
from eliza_ffi.session.filling import Filling
from eliza_ffi.session.requests import Fillable, Request
from eliza_ffi.session.run import Run
from eliza_ffi.structured import Skeleton, SkeletonSpan, SpanSamplerPlan
from eliza_ffi.structured.fill_result import FilledSpan, FillResult


class FillingBinding(RecordingBinding):
    """Fills spans, and records the requests in `requests`. Every byte is one token.

    `write` takes a request and returns the value.
    """

    def __init__(
        self,
        write: Callable[[Mapping[str, Any]], str] | None = None,
        *,
        has: Iterable[str] = ALL | {"fill"},
        has_byte_counts: bool = True,
        **more: Any,
    ) -> None:
        super().__init__(has=has, **more)
        self.requests: list[dict[str, Any]] = []
        self._written = b""
        self._write = write or shortest_value
        self._has_byte_counts = has_byte_counts

    def fill(self, stream: int, span: Mapping[str, Any]) -> SpanResult:
        self._record("fill", stream, f"fill:{len(self.requests)}")
        self.requests.append(dict(span))
        text = self._write(span)
        self._written += (span.get("before", "") + text + span.get("after", "")).encode()
        choices = span.get("choices", [])
        return SpanResult(
            text,
            -0.5,
            len(text),
            False,
            choices.index(text) if text in choices else -1,
            tuple(self._written),
            (1,) * len(self._written) if self._has_byte_counts else (),
        )


def shortest_value(span: Mapping[str, Any]) -> str:
    if "choices" in span:
        return str(span["choices"][0])
    if "dfa" in span:
        return shortest_completion(Dfa.of(span["dfa"]), 0).decode()
    return {"string": '""', "number": "1"}.get(span.get("json", ""), "")


SKELETON = Skeleton.from_dict(
    {
        "spans": [
            {"kind": "literal", "value": '{"action":"'},
            {"kind": "enum", "key": "action", "enumValues": ["REPLY", "IGNORE"]},
            {"kind": "literal", "value": '","text":'},
            {"kind": "free-string", "key": "text"},
            {"kind": "literal", "value": ',"score":'},
            {"kind": "number", "key": "score"},
            {"kind": "literal", "value": "}"},
        ]
    }
)


def filling(binding: FillingBinding, request: Request) -> Run[FilledSpan | FillResult[Any]]:
    opened: Any = SimpleNamespace(binding=binding, ctx="ctx")
    return Run(opened, lambda run: Filling(run, request).steps())


def run(binding: FillingBinding, request: Request) -> list[FilledSpan | FillResult[Any]]:
    return list(filling(binding, request).steps())


def args_of(skeleton: Fillable, **more: Any) -> Request:
    logprobs = 0 if more.pop("logprobs", False) else None
    settings = {"max_tokens": 1024, "logprobs": logprobs, **more}
    return Request(prompt_tokens=[7, 8], constraint=skeleton, **settings)


def fill(binding: FillingBinding, skeleton: Fillable, **more: Any) -> FillResult[Any]:
    *_, result = run(binding, args_of(skeleton, **more))
    assert isinstance(result, FillResult)
    return result


# ---- Answers --------------------------------------------------------------------------------


def test_each_span_has_its_text_tokens_and_value() -> None:
    values = iter(["REPLY", '"a\\u00e4"', "-1.5"])
    binding = FillingBinding(write=lambda request: next(values))
    result = fill(binding, SKELETON)
    assert result.text == '{"action":"REPLY","text":"a\\u00e4","score":-1.5}'
    assert result.value == {"action": "REPLY", "text": "aä", "score": -1.5}
    action, text, score = result.spans
    assert (action.index, action.kind, action.before) == (1, "enum", '{"action":"')
    assert (text.text, text.value, text.before) == ('"a\\u00e4"', "aä", '","text":')
    assert bytes(text.tokens) == text.text.encode()
    assert (score.value, score.logprob, score.truncated) == (-1.5, -0.5, False)
    assert bytes(result.tokens) == result.text.encode()


def test_sampling_and_limits_are_passed_with_each_span() -> None:
    binding = FillingBinding()
    plan = SpanSamplerPlan.from_dict({"overrides": [{"spanIndex": 5, "temperature": 2}]})
    sampling = {"temperature": 0.5, "top_k": 4, "sampler_plan": plan}
    fill(binding, SKELETON, **sampling, max_tokens=99, logprobs=True, heal_prompt=True)
    asked = [(each["temperature"], each["top_k"]) for each in binding.requests]
    assert asked == [(0.0, 0), (0.5, 4), (2, 4)]
    assert {each["logprobs"] for each in binding.requests} == {True}
    assert [each.get("heal", False) for each in binding.requests] == [True, False, False]
    rooms = [each["max_tokens"] for each in binding.requests]
    assert rooms[0] == 99
    assert rooms == sorted(rooms, reverse=True)
    assert binding.configs[0].temperature == 0.0
    assert binding.configs[0].max_tokens == 0


def test_a_skeleton_that_is_not_json_has_span_values_only() -> None:
    skeleton = Skeleton.from_dict(
        {
            "spans": [
                {"kind": "literal", "value": "Action: "},
                {"kind": "free-string", "key": "action", "rule": "root"},
                {"kind": "literal", "value": "\nSure: "},
                {"kind": "boolean", "key": "sure"},
            ]
        },
        'root ::= "REPLY" | "STOP"',
    )
    values = iter(["REPLY", "true"])
    result = fill(FillingBinding(write=lambda request: next(values)), skeleton)
    assert result.value is None
    assert result.complete
    assert result.fields["action"] == "REPLY"
    assert isinstance(result.fields["sure"], bool)


def test_spans_have_no_tokens_if_their_lengths_are_unknown() -> None:
    result = fill(FillingBinding(has_byte_counts=False), SKELETON)
    assert bytes(result.tokens) == result.text.encode()
    assert [span.tokens for span in result.spans] == [(), (), ()]


@pytest.mark.parametrize(
    ("tokens", "token_bytes", "inside"),
    [
        # The prompt's last token now ends after the opening brace of '{"x":"aä"}'.
        ((10, 11, 12, 13), (4, 1, 3, 2), (11, 12, 13)),
        # The prompt's last token is now shorter, and the answer's first token begins in the prompt.
        ((9, 11, 12, 13), (7, 1, 3, 2), (11, 12, 13)),
        # The prompt's last token now ends inside the value.
        ((12, 13), (3, 2), (12, 13)),
    ],
)
def test_tokens_after_a_healed_prompt_are_counted_from_the_end(
    tokens: tuple[int, ...], token_bytes: tuple[int, ...], inside: tuple[int, ...]
) -> None:
    fixed, more = (SkeletonSpan("literal", value=text) for text in ('{"x":', ","))
    skeleton = Skeleton((fixed, SkeletonSpan("free-string"), more, SkeletonSpan("boolean")))
    written = (('"aä"', tokens, token_bytes), ("true", (*tokens, 14), (*token_bytes, 4)))
    results = [SpanResult(text, answer_tokens=t, answer_bytes=n) for text, t, n in written]
    binding: Any = FillingBinding()
    binding.fill = lambda *_: results.pop(0)
    first, _, result = run(binding, args_of(skeleton, heal_prompt=True))
    assert isinstance(first, FilledSpan) and isinstance(result, FillResult)
    assert first.tokens == inside
    assert result.spans[0].tokens == inside  # later tokens change nothing


# ---- Errors ---------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["fill:0", "fill:2"])
def test_a_failure_closes_the_stream_and_keeps_earlier_spans(call: str) -> None:
    binding = FillingBinding(failures={call: NativeFaultError("no decode")})
    with pytest.raises(FillError, match="no decode") as caught:
        run(binding, args_of(SKELETON))
    assert len(caught.value.partial.spans) == int(call[-1])
    assert binding.calls[-1] == "close"


@pytest.mark.parametrize("call", ["open", "prefill"])
def test_a_failure_before_the_first_span_is_not_wrapped(call: str) -> None:
    binding = FillingBinding(failures={call: ContextFullError("too long")})
    with pytest.raises(ContextFullError, match="too long"):
        run(binding, args_of(SKELETON))
    assert "close" in binding.calls or call == "open"  # no stream stays open


@pytest.mark.parametrize("text", ["REPL", "reply", ""])
def test_an_invalid_value_from_the_library_raises(text: str) -> None:
    with pytest.raises(FillError, match="wrote .* for a span of kind enum") as caught:
        fill(FillingBinding(write=lambda request: text), SKELETON)
    assert isinstance(caught.value.__cause__, NativeFaultError)


def test_numbers_out_of_range_are_rejected() -> None:
    for name, value in (("max_tokens", -1), ("temperature", -1.0), ("top_p", 0.0), ("top_k", -3)):
        with pytest.raises(InvalidArgumentError, match=name):
            args_of(SKELETON, **{name: value})


def test_an_override_of_a_missing_span_is_rejected() -> None:
    plan = SpanSamplerPlan.from_dict({"overrides": [{"spanIndex": 7, "temperature": 1}]})
    with pytest.raises(InvalidArgumentError, match="spanIndex must be below 7, .* got 7"):
        args_of(SKELETON, sampler_plan=plan)


def test_a_rule_that_does_not_end_raises() -> None:
    class Cut(FillingBinding):
        def fill(self, stream: int, span: Any) -> SpanResult:
            return replace(super().fill(stream, span), truncated=True)

    skeleton = Skeleton.from_dict({"spans": [{"kind": "number", "rule": "r"}]}, "r ::= [0-9]+")
    with pytest.raises(FillError, match=r"rule 'r' has not ended within max_tokens=1024"):
        fill(Cut(), skeleton)


def test_a_skeleton_of_literals_needs_one_call() -> None:
    skeleton = Skeleton((SkeletonSpan("literal", value='{"a":1}'),))
    binding = FillingBinding()
    assert fill(binding, skeleton).value == {"a": 1}
    assert binding.requests == [{"before": '{"a":1}'}]
