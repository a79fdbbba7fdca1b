"""Format decisions and rankings for a terminal, with bars for the probabilities."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from ..decisions.answers import (
    Answer,
    Decision,
    MultiLabelAnswer,
    PredicateAnswer,
    ScoreAnswer,
    given_answer,
    pairs_of,
)
from ..decisions.questions import Question, text_of
from ..terminal import bar, counted, headline, printable, text_table, wrap

MAX_OPTIONS_SHOWN = 12
"""Maximum number of options that have a line of their own. The last line sums up all others."""

MAX_BAR_LENGTH = 40

INDENT = "  "


def decision_text(
    questions: Sequence[Question], decision: Decision, width: int, *, has_prior: bool = False
) -> str:
    """Format a decision as text, at most `width` columns wide. `has_prior` says that the
    probabilities are divided by a prior."""
    parts = []
    if decision.reasoning is not None:
        parts.append(wrap(f"reasoning: {printable(' '.join(decision.reasoning.split()))}", width))
    for question, answer in zip(questions, decision.answers, strict=True):
        title = printable(question.instructions if answer.name is None else answer.name)
        text = " ".join(_answer_text(answer).split())
        parts.append(f"{headline(title, text, width)}\n{_bars(answer, width)}")
    usage = decision.usage
    kind = "calibrated" if decision.calibrated else "uncalibrated"
    prior = " divided by a prior" if has_prior else ""
    passes = (
        f"{counted(usage.forward_passes, 'pass', 'passes')}, " if usage.forward_passes >= 0 else ""
    )
    figures = (
        f"{kind} probabilities{prior}; {counted(usage.input_tokens, 'token')}, "
        f"{usage.cached_tokens:,} of them cached, {passes}{usage.seconds * 1e3:.1f} ms"
    )
    return "\n\n".join([*parts, wrap(figures, width)])


def _answer_text(answer: Answer) -> str:
    if isinstance(answer, MultiLabelAnswer):
        if answer.value is None:
            return "abstained"
        return ", ".join(printable(text_of(value)) for value in answer.value) or "none"
    if answer.abstained:
        return "abstained"
    if isinstance(answer, PredicateAnswer):
        text = "yes" if answer.is_true else "no"
    elif isinstance(answer, ScoreAnswer):
        text = f"{answer.score:.2f} of 0 to {len(answer.levels) - 1}, {printable(answer.label)}"
    else:
        text = printable(text_of(answer.choice))
    # A predicate's `probability` is for true; the headline shows the given answer's probability.
    text += f" (probability {dict(pairs_of(answer))[given_answer(answer)]:.0%}"
    if answer.expected_cost is not None:
        text += f", expected cost {answer.expected_cost:.3g}"
    if answer.allowed_probability is not None:
        text += f", allowed probability {answer.allowed_probability:.0%}"
    if answer.certified is not None:
        text += f", {'certified' if answer.certified else 'not certified'}"
    if answer.prediction_set is not None and len(answer.prediction_set) != 1:
        several = ", ".join(printable(text_of(value)) for value in answer.prediction_set)
        text += f"; may be {several or 'none of the options'}"
    if answer.unfamiliar:
        text += "; the input is not like the examples of the calibration"
    return text + ")"


def _bars(answer: Answer, width: int) -> str:
    """Return a line for each option: levels in their order, others sorted by probability."""
    shown = [(text_of(value), probability) for value, probability in pairs_of(answer)]
    if isinstance(answer, PredicateAnswer):
        shown = list(zip(("yes", "no"), answer.distribution, strict=True))
    elif not isinstance(answer, ScoreAnswer):
        shown.sort(key=lambda option: option[1], reverse=True)
    more = shown[MAX_OPTIONS_SHOWN:] if len(shown) > MAX_OPTIONS_SHOWN + 1 else []
    shown = shown[: len(shown) - len(more)]
    lines = bar_lines(shown, width)
    if more:
        rest = sum(probability for _, probability in more)
        lines += f"\n{INDENT}and {len(more)} more, together {rest:.1%}"
    return lines


def bar_lines(shown: Sequence[tuple[str, float]], width: int) -> str:
    """Return an indented line for each label and its probability, at most `width` columns wide."""
    length = min(width // 2, MAX_BAR_LENGTH)
    rows = [[label, f"{p:6.1%}  {bar(p, length)}"] for label, p in shown]
    table = text_table(rows, left=2, width=width - len(INDENT), names=1)
    return textwrap.indent(table, INDENT)
