"""Compare the choices of a library with the reference's, and show the comparisons."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from page_tables import markdown_table

from eliza_ffi.choices.token_tree import TokenTreePayload
from eliza_ffi.model import Model

from .choosing import REFERENCE, Outcome, Way, choose, payload_of
from .judging import Verdict, judge, noise_between

WITHOUT_FLASH = ("flash_attn", "off")
"""An option that changes rounding: the weights of attention are rounded to half precision."""


@dataclass(frozen=True)
class Subject:
    """A library to check, and the devices for its models."""

    library: Path  # the library's file
    n_gpu_layers: int  # number of layers on the device; -1 = all
    # Further options of the library, such as ``device`` or ``rpc``.
    options: tuple[tuple[str, str], ...] = ()

    @contextmanager
    def open(self, path: Path) -> Iterator[Model]:
        """Open a model in a new context.

        A RuntimeError is raised if layers should be on a device but all are on the CPU, which would
        then be compared with itself.
        """
        with Model(
            path,
            library=self.library,
            n_gpu_layers=self.n_gpu_layers,
            options=dict(self.options),
        ) as model:
            # More streams than slots are opened, without the model's queue.
            model.binding.set_option(model.session.ctx, "slot_wait_ms", "30000")
            placement = model.describe()["model"].get("placement", [])
            if self.n_gpu_layers != 0 and all(place["device"] == "CPU" for place in placement):
                raise RuntimeError(
                    f"{self.library}: expected layers on a device, but all are on the CPU"
                )
            yield model


@dataclass(frozen=True)
class Comparison:
    """One choice, compared with the reference."""

    model: str
    strategy: str
    where: str  # the prompt, the answers and the way
    verdict: Verdict
    noise: float  # the model's; see `measure_noise`


@dataclass(frozen=True)
class Question:
    """A question to a model, with the reference's answer."""

    model: str
    prompt_name: str
    answers_name: str
    prompt: list[int]
    payload: TokenTreePayload
    expected: Outcome

    def compared(self, outcome: Outcome, way: Way, noise: float, how: str = "") -> Comparison:
        """Compare an outcome with the reference's; `how` describes how the question was asked."""
        verdict = judge(self.payload, self.expected, outcome, way, noise)
        where = f"prompt {self.prompt_name!r}, answers {self.answers_name!r}, {way}, {how}"
        return Comparison(self.model, way.strategy, where.rstrip(", "), verdict, noise)


def ask_all(
    name: str,
    path: Path,
    reference: Subject,
    prompts: Mapping[str, str],  # texts by name
    answers: Mapping[str, list[str]],
) -> list[Question]:
    """Let the reference answer every question about a model, which has a name in the tables."""
    asked = []
    with reference.open(path) as model:
        for (prompt, text), (answer, texts) in product(prompts.items(), answers.items()):
            tokens = [int(token) for token in model.tokenize(text, add_special=True)]
            payload = payload_of(model, texts)
            expected = choose(model, tokens, payload, REFERENCE)
            asked.append(Question(name, prompt, answer, tokens, payload, expected))
    return asked


def measure_noise(
    path: Path, reference: Subject, questions: Sequence[Question], rounding: tuple[str, str]
) -> float:
    """Return the largest change of the reference's scores under an option that changes rounding."""
    rounded = replace(reference, options=(*reference.options, rounding))
    with rounded.open(path) as model:
        return noise_between(
            [each.expected.logprobs for each in questions],
            [choose(model, each.prompt, each.payload, REFERENCE).logprobs for each in questions],
        )


MIN_NOISE = 1e-9  # the embedded model on one thread may have none
KINDS = ("same", "near-tie", "other leaf", "too far", "wrong")


def table(compared: Sequence[Comparison]) -> str:
    """Return a Markdown table of the verdicts, with a row for each model and strategy.

    The last columns are the largest difference between a leaf's log-probability and the
    reference's, in nats and in units of the model's noise.
    """
    rows: dict[tuple[str, str], list[Comparison]] = defaultdict(list)
    for each in compared:
        rows[each.model, each.strategy].append(each)
    head = ["model", "strategy", "choices", "same", "near-ties", "other leaf", "too far", "wrong"]
    head += ["difference", "of the noise"]
    cells = [[*key, *_counts(group)] for key, group in rows.items()]
    return markdown_table(head, [*cells, ["all", "all", *_counts(compared)]], left=2)


def _counts(group: Sequence[Comparison]) -> list[str]:
    count = Counter(each.verdict.kind for each in group)
    difference = max((each.verdict.difference for each in group), default=0.0)
    shares = (each.verdict.difference / max(each.noise, MIN_NOISE) for each in group)
    counts = (str(count[kind]) for kind in KINDS)
    return [str(len(group)), *counts, f"{difference:.1e}", f"{max(shares, default=0.0):.2f}"]


def details(compared: Iterable[Comparison]) -> list[str]:
    """Return a line for each comparison whose verdict is not ``"same"``."""
    lines = []
    for each in compared:
        kind, difference, margin = each.verdict.kind, each.verdict.difference, each.verdict.margin
        if kind != "same":
            figures = f"margin {margin:.4f} nats, difference {difference:.4f}"
            what = "; ".join(each.verdict.problems) or f"{figures}, noise {each.noise:.4f}"
            lines.append(f"{kind}: {each.model}, {each.where}: {what}")
    return lines
