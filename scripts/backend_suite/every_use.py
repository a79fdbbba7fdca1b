"""Use one model in every way: all strategies, restored prompts, shared passes, shared prompts."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from forked import say_stage

from eliza_ffi.errors import ElizaError
from eliza_ffi.library.protocol import StreamConfig

from .cases import ANSWERS, PROMPTS
from .choosing import REFERENCE, WAYS, Outcome, Way, choose, choose_by_masks
from .comparing import WITHOUT_FLASH, Comparison, Question, Subject, ask_all, measure_noise

FASTEST = Way("auto", "auto")

# Recurrent models share only passes with one token per stream. The reference has most of these.
SHARING = (FASTEST, REFERENCE)
TOGETHER = "together"

ROUNDINGS = {"without flash attention": WITHOUT_FLASH, "prompts in pieces": ("n_batch", "7")}
"""Options that change the order of summation: another kernel for attention, and prompts decoded in
batches of seven tokens."""

MIN_NOISE = 1e-3
"""In nats: the rounding error of a logit if the output head and the cache are in half precision."""

# Every question is asked in several streams, so that equal streams meet and some start late.
N_ROUNDS = 4


@dataclass(frozen=True)
class Findings:
    refusal: str = ""  # the library's error if it rejects the model, else empty
    # The difference that rounding causes in a leaf's log-probability on this model, in nats.
    noise: float = 0.0
    compared: tuple[Comparison, ...] = ()
    n_shared: int = 0  # number of streams that shared a forward pass


Made = Iterator[tuple[Question, Outcome, Way, str]]
"""Questions, their outcomes, the ways to decode them, and the ways to ask them."""


def use_in_every_way(name: str, path: Path, subject: Subject) -> Findings:
    """Compare all uses of a model with its own token-by-token choices.

    A RuntimeError is raised if the noise exceeds `LARGEST_NOISE`, the scores do not depend on the
    prompts, or a prompt is not restored.
    """
    try:
        questions = _questions(name, path, subject)
    except ElizaError as error:
        return Findings(refusal=str(error))
    _check_prompts_matter(questions)
    noise = MIN_NOISE
    for stage, rounding in ROUNDINGS.items():
        say_stage(stage)
        noise = max(noise, measure_noise(path, subject, questions, rounding))
    compared, n_shared = [], 0
    for stage, use in USES.items():
        say_stage(stage)
        for question, outcome, way, how in use(path, subject, questions):
            compared.append(question.compared(outcome, way, noise, how))
            n_shared += how == TOGETHER and outcome.stats.passes_shared > 0
    return Findings("", noise, tuple(compared), n_shared)


def _questions(name: str, path: Path, subject: Subject) -> list[Question]:
    """Use each prompt and each answer set, but not every combination."""
    prompts, answers = dict(PROMPTS), dict(ANSWERS)
    last = {"sentence": prompts.pop("sentence")}, {"90 alike": answers.pop("90 alike")}
    first = ask_all(name, path, subject, prompts, answers)
    return first + ask_all(name, path, subject, *last)


def _check_prompts_matter(questions: Sequence[Question]) -> None:
    """Raise RuntimeError if two prompts give the same scores: wrong code could then pass."""
    for one, other in itertools.combinations(questions, 2):
        if one.answers_name == other.answers_name and np.array_equal(
            one.expected.logprobs, other.expected.logprobs
        ):
            names = f"{one.prompt_name!r} and {other.prompt_name!r}"
            raise RuntimeError(f"the scores are the same after the prompts {names}")


def _all_strategies(path: Path, subject: Subject, questions: Sequence[Question]) -> Made:
    with subject.open(path) as model:
        for way, question in itertools.product(WAYS, questions):
            yield question, choose(model, question.prompt, question.payload, way), way, ""


def _restored(path: Path, subject: Subject, questions: Sequence[Question]) -> Made:
    """Save every prompt in one context, restore it in another, and choose there.

    The last token of a prompt is not saved, because a file does not contain the logits after it.
    Both contexts have one slot: a recurrent state can be restored only into the slot it came from,
    and DeepSeek 4's files need a context with the same number of slots.
    """
    of_prompts = {each.prompt_name: each for each in questions}.values()
    in_one_slot = replace(subject, options=(*subject.options, ("n_slots", "1")))
    with tempfile.TemporaryDirectory() as folder:
        with in_one_slot.open(path) as model:
            for question in of_prompts:
                model.save_prompt_cache(Path(folder) / question.prompt_name, question.prompt[:-1])
        for question in of_prompts:
            with in_one_slot.open(path) as model:
                model.load_prompt_cache(Path(folder) / question.prompt_name)
                outcome = choose(model, question.prompt, question.payload, FASTEST)
            expected, got = len(question.prompt) - 1, outcome.stats.prompt_tokens_reused
            if got != expected:
                raise RuntimeError(f"expected {expected} restored tokens, got {got}")
            yield question, outcome, FASTEST, "restored"


def _together(path: Path, subject: Subject, questions: Sequence[Question]) -> Made:
    asked = [*questions] * N_ROUNDS
    for way in SHARING:
        with subject.open(path) as model, ThreadPoolExecutor(len(asked)) as threads:
            running = [
                threads.submit(choose, model, each.prompt, each.payload, way) for each in asked
            ]
            for question, outcome in zip(asked, running, strict=True):
                yield question, outcome.result(), way, TOGETHER


def _as_endings(path: Path, subject: Subject, questions: Sequence[Question]) -> Made:
    """Score all answer sets of a prompt as endings of its first half.

    Each ending begins with the prompt's second half. A further ending, the second half reversed,
    keeps the endings from having the same beginning.
    """
    of_prompts: dict[str, list[Question]] = {}
    for question in questions:
        of_prompts.setdefault(question.prompt_name, []).append(question)
    with subject.open(path) as model:
        binding, ctx = model.binding, model.session.ctx
        binding.set_option(ctx, "strategy", FASTEST.strategy)
        for asked in of_prompts.values():
            prompt = list(asked[0].prompt)
            half = len(prompt) // 2
            payloads = [question.payload for question in asked]
            tries = [
                binding.prepare_token_trie(ctx, each.to_json(), len(list(each.leaves())))
                for each in payloads
            ]
            endings = [(prompt[half:], trie) for trie in tries]
            endings.insert(0, (prompt[half:][::-1], tries[0]))
            with closing(binding.open(ctx, StreamConfig())) as stream:
                binding.prefill(stream, prompt[:half])
                scores = binding.score_endings(
                    stream, endings, full=False, allowed_probability=False
                )
            for question, found in zip(asked, scores[1:], strict=True):
                outcome = replace(question.expected, logprobs=found.constrained)
                yield question, outcome, FASTEST, "as an ending"


def _by_masks(path: Path, subject: Subject, questions: Sequence[Question]) -> Made:
    """Choose with token masks, from only the allowed logits and from whole logit rows."""
    with subject.open(path) as model:
        for way, question in itertools.product(SHARING, questions):
            outcome = choose_by_masks(model, question.prompt, question.payload, way)
            yield question, outcome, way, "by masks"


USES: dict[str, Callable[[Path, Subject, Sequence[Question]], Made]] = {
    "strategies": _all_strategies,
    "restored prompts": _restored,
    "streams together": _together,
    "endings of one prompt": _as_endings,
    "masks": _by_masks,
}
