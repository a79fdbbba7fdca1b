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

from .cases import REFERENCE, ModelCase, Way
from .choosing import Outcome, choose, payload_of
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
    prompt: str
    answers: str
    way: Way
    verdict: Verdict
    # The difference that rounding causes in a leaf's log-probability on this model, in nats.
    noise: float


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
        """Compare an outcome with the reference's; `how` is added to the prompt's name."""
        verdict = judge(self.payload, self.expected, outcome, way, noise)
        prompt = f"{self.prompt_name}, {how}" if how else self.prompt_name
        return Comparison(self.model, prompt, self.answers_name, way, verdict, noise)


def ask_all(
    case: ModelCase,
    reference: Subject,
    prompts: Mapping[str, str],  # texts by name
    answers: Mapping[str, list[str]],
) -> list[Question]:
    asked = []
    with reference.open(case.path) as model:
        for (name, text), (answers_name, texts) in product(prompts.items(), answers.items()):
            tokens = [int(token) for token in model.tokenize(text, add_special=True)]
            payload = payload_of(model, texts)
            expected = choose(model, tokens, payload, REFERENCE)
            asked.append(Question(case.name, name, answers_name, tokens, payload, expected))
    return asked


def measure_noise(
    case: ModelCase, reference: Subject, questions: Sequence[Question], rounding: tuple[str, str]
) -> float:
    """Return the largest change of the reference's scores under an option that changes rounding."""
    rounded = replace(reference, options=(*reference.options, rounding))
    with rounded.open(case.path) as model:
        return max(
            noise_between(
                question.expected.logprobs,
                choose(model, question.prompt, question.payload, REFERENCE).logprobs,
            )
            for question in questions
        )


KINDS = ("same", "near-tie", "other leaf", "too far", "wrong")


def table(compared: Sequence[Comparison]) -> str:
    """Return a Markdown table of the verdicts, with a row for each model and strategy.

    The last columns are the largest difference between a leaf's log-probability and the
    reference's, in nats and in units of the model's noise.
    """
    rows: dict[tuple[str, str], list[Comparison]] = defaultdict(list)
    for each in compared:
        rows[each.model, each.way.strategy].append(each)
    head = ["model", "strategy", "choices", "same", "near-ties", "other leaf", "too far", "wrong"]
    head += ["difference", "of the noise"]
    cells = [[*key, *_counts(group)] for key, group in rows.items()]
    return markdown_table(head, [*cells, ["all", "all", *_counts(compared)]], left=2)


def details(compared: Iterable[Comparison]) -> list[str]:
    """Return a line for each comparison whose verdict is not ``"same"``."""
    lines = []
    for each in compared:
        verdict = each.verdict
        if verdict.kind == "same":
            continue
        where = f"{each.model}, prompt {each.prompt!r}, answers {each.answers!r}, {each.way}"
        what = "; ".join(verdict.problems) or (
            f"margin {verdict.margin:.4f} nats, difference {verdict.difference:.4f},"
            f" noise {each.noise:.4f}"
        )
        lines.append(f"{verdict.kind}: {where}: {what}")
    return lines


def _counts(group: Sequence[Comparison]) -> list[str]:
    count = Counter(each.verdict.kind for each in group)
    difference = max((each.verdict.difference for each in group), default=0.0)
    in_noises = max((_in_noises(each) for each in group), default=0.0)
    cells = [len(group), *(count[kind] for kind in KINDS), f"{difference:.1e}", f"{in_noises:.2f}"]
    return [*map(str, cells)]


def _in_noises(each: Comparison) -> float:
    if each.verdict.difference == 0:
        return 0.0
    return each.verdict.difference / each.noise if each.noise > 0 else float("inf")
