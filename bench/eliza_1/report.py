"""Judge answers, and compute rates, times and the table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from page_tables import markdown_table

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.structured.json_text import read_json

from ..parts.figures import mean, median, percentile
from .answers import TimedAnswer
from .cases import Case


@dataclass(frozen=True)
class JudgedAnswer:
    """An answer, and whether it is correct.

    Attributes
    ----------
    parsed : bool
        Whether the whole text is JSON, except for white space around it.
    of_schema : bool
        Whether the value has the keys and types that the task requires, in any order.
    right_name : bool
        Whether the action, or the decision whether to respond, is the expected one.
    right : bool
        Whether the parameters are the expected ones as well.
    """

    task: str
    id: str
    mode: str
    text: str
    parsed: bool
    of_schema: bool
    right_name: bool
    right: bool
    tokens: int
    forward_passes: int
    milliseconds: float


@dataclass(frozen=True)
class AnswerRates:
    """The rates of all answers to a task in a mode. Rates are shares of all answers, 0 to 1.

    Attributes
    ----------
    parse_rate, schema_rate, name_rate, label_rate : float
        The shares of answers with `parsed`, `of_schema`, `right_name` and `right` of
        `JudgedAnswer`.
    tokens_per_second : float
        The tokens of all answers, divided by their time.
    tokens : float
        The mean tokens of an answer.
    forward_passes : float
        The mean passes of an answer, after the prompt.
    """

    task: str
    mode: str
    cases: int
    parse_rate: float
    schema_rate: float
    name_rate: float
    label_rate: float
    ms_p50: float
    ms_p95: float
    tokens_per_second: float
    tokens: float
    forward_passes: float


def judge(case: Case, mode: str, answer: TimedAnswer) -> JudgedAnswer:
    """Judge an answer to a case."""
    value: Any = None
    parsed = True
    try:
        value = read_json(answer.text.strip())
    except InvalidArgumentError:
        parsed = False
    of_schema = parsed and case.skeleton.accepts(value)
    return JudgedAnswer(
        task=case.task,
        id=case.id,
        mode=mode,
        text=answer.text,
        parsed=parsed,
        of_schema=of_schema,
        right_name=of_schema and case.has_right_name(value),
        right=of_schema and case.is_right(value),
        tokens=answer.tokens,
        forward_passes=answer.forward_passes,
        milliseconds=answer.seconds * 1e3,
    )


def summarize(rows: Iterable[JudgedAnswer]) -> AnswerRates:
    """Return the rates of one or more answers to the same task in the same mode."""
    listed = list(rows)
    times = [row.milliseconds for row in listed]
    return AnswerRates(
        task=listed[0].task,
        mode=listed[0].mode,
        cases=len(listed),
        parse_rate=mean([row.parsed for row in listed]),
        schema_rate=mean([row.of_schema for row in listed]),
        name_rate=mean([row.right_name for row in listed]),
        label_rate=mean([row.right for row in listed]),
        ms_p50=median(times),
        ms_p95=percentile(times, 95),
        tokens_per_second=sum(row.tokens for row in listed) / (sum(times) / 1e3),
        tokens=mean([row.tokens for row in listed]),
        forward_passes=mean([row.forward_passes for row in listed]),
    )


HEADS = (
    *("task", "mode", "cases", "parse", "schema", "name", "label"),
    *("p50 ms", "p95 ms", "tok/s", "tokens", "passes"),
)


def table(summaries: Sequence[AnswerRates]) -> str:
    """Return the summaries as a Markdown table."""
    rows = []
    for each in summaries:
        rates = (each.parse_rate, each.schema_rate, each.name_rate, each.label_rate)
        numbers = (each.ms_p50, each.ms_p95)
        rows.append(
            [
                each.task,
                each.mode,
                str(each.cases),
                *(f"{rate:.0%}" for rate in rates),
                *(f"{number:.1f}" for number in numbers),
                f"{each.tokens_per_second:.0f}",
                f"{each.tokens:.1f}",
                f"{each.forward_passes:.1f}",
            ]
        )
    return markdown_table(HEADS, rows, left=2)
