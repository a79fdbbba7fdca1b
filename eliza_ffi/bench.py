"""``eliza-ffi bench``: what a choice costs, measured beside llama.cpp's grammar in one process.

Modes: ``unguided`` generates freely, ``strict-guided`` under a grammar of the choices, and
``strict-trie-ffi`` under the token trie. Every round runs the measured mode and the grammar one
after the other, so that a machine that slows down slows both, and medians are compared.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from .choices import ANCHOR, string_choices
from .console import UsageError, open_model, read_choices
from .errors import InvalidArgumentError
from .model import Model
from .protocol import STOP_AT_LEAF, TRIE_ARGMAX, StreamConfig, StreamStats, Tokens
from .rtkt import decode_rtkt
from .token_tree import TokenTreeDescriptor, TokenTreeLeaf, TokenTreePayload

__all__ = [
    "MODES",
    "STRATEGIES",
    "Alternatives",
    "Answer",
    "Method",
    "Report",
    "Workbench",
    "measure",
    "run_bench",
]

MODES = ("unguided", "strict-guided", "strict-trie-ffi")
STRATEGIES = ("auto", "tree", "skip-ahead", "token-by-token")
GRAMMAR_ORDERS = ("last", "first")

TRIES_SET = 32
"""How often a payload is set to measure what that takes."""

_nonces = itertools.count()


@dataclass(frozen=True)
class Method:
    """How a choice is made.

    Attributes
    ----------
    mode : str
        One of `MODES`.
    strategy : str
        How the trie's tokens are decoded; one of `STRATEGIES`.
    grammar_order : str
        ``"first"``: the grammar masks the whole vocabulary before every token is sampled.
        ``"last"``: a token is sampled and checked, and the vocabulary masked only if it was
        illegal.
    """

    mode: str
    strategy: str = "auto"
    grammar_order: str = "last"


class Alternatives:
    """The answers of a benchmark, as the trie and as the grammar have them.

    Parameters
    ----------
    model
        Whose tokens the payload's are.
    payload
        The token sequences.

    Attributes
    ----------
    texts : tuple of str
        What the leaves spell, without duplicates.
    grammar : str
        The same strings in GBNF.

    Raises
    ------
    InvalidArgumentError
        If a leaf spells nothing, so that no grammar can have it.
    """

    def __init__(self, model: Model, payload: TokenTreePayload) -> None:
        self.payload = payload
        self.json = payload.to_json().encode("utf-8", "surrogatepass")
        anchor = model.tokenize(ANCHOR)
        spelled: dict[str, None] = {}
        for leaf in payload.leaves():
            # Behind an anchor, because the first space of a text may be dropped.
            text = model.detokenize([*anchor, *leaf.tokens]).removeprefix(ANCHOR)
            if not text:
                raise InvalidArgumentError(f"leaf {leaf.name!r} spells nothing")
            spelled[text] = None
        self.texts = tuple(spelled)
        self.grammar = gbnf_of(self.texts)
        ordered = sorted(self.texts)
        has_longer = (b.startswith(a) for a, b in itertools.pairwise([*ordered, ""]))
        self._final = {text for text, longer in zip(ordered, has_longer, strict=True) if not longer}

    @classmethod
    def of_texts(cls, model: Model, texts: Sequence[str]) -> Alternatives:
        """Return the alternatives of strings, tokenized by the model."""
        return cls(model, string_choices(texts).payload(model.tokenize, model.detokenize))

    @classmethod
    def of_payload(cls, model: Model, data: bytes) -> Alternatives:
        """Return those of a payload's bytes, JSON or ``RTKT``.

        Raises
        ------
        TokenTrieError
            If it is neither.
        """
        if not data.startswith(b"RTKT"):
            return cls(model, TokenTreePayload.from_json(data))
        tree = decode_rtkt(data)
        leaves = tuple(TokenTreeLeaf(str(i), tokens) for i, tokens in enumerate(tree.leaves))
        return cls(model, TokenTreePayload("", (TokenTreeDescriptor(tree.path, leaves),)))

    def ends_at(self, text: str) -> bool:
        """Return whether a text is an answer that no other answer goes on from."""
        return text in self._final

    def unseen_json(self) -> bytes:
        """Return the payload in bytes that no cache can know."""
        first, *rest = self.payload.descriptors
        renamed = replace(first, path=f"{first.path}#{next(_nonces)}")
        payload = TokenTreePayload(self.payload.model_id, (renamed, *rest))
        return payload.to_json().encode("utf-8", "surrogatepass")


def gbnf_of(texts: Sequence[str]) -> str:
    """Return a GBNF grammar whose strings are exactly `texts`."""
    return "root ::= " + " | ".join(f'"{_escaped(text)}"' for text in texts)


def _escaped(text: str) -> str:
    named = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return "".join(
        named.get(char) or (f"\\x{ord(char):02x}" if ord(char) < 0x20 else char) for char in text
    )


@dataclass(frozen=True)
class Answer:
    """One generation.

    Attributes
    ----------
    text : str
    tokens : tuple of int
    seconds : float
        From after the prefill to the last token; setting the trie is part of it, closing is not.
    prompt_seconds : float
        Opening the stream, which parses the grammar, and the prefill.
    stats : StreamStats
    """

    text: str
    tokens: tuple[int, ...]
    seconds: float
    prompt_seconds: float
    stats: StreamStats


@dataclass(frozen=True)
class Decision:
    """A choice of one token: how many were possible, and the microseconds choosing took."""

    candidates: float
    microseconds: float


class Workbench:
    """Runs choices of some alternatives by any method.

    Parameters
    ----------
    model
    alternatives
    """

    def __init__(self, model: Model, alternatives: Alternatives) -> None:
        self.model = model
        self.alternatives = alternatives
        self.n_vocab = int(model.describe()["model"]["n_vocab"])
        self._ctx = model.runner.ctx

    def answer(self, prompt: Tokens, method: Method, max_tokens: int = 0) -> Answer:
        """Make one choice, timed. `max_tokens` ends an unguided one."""
        begin = time.perf_counter()
        with self._prefilled(prompt, method, max_tokens) as stream:
            prefilled = time.perf_counter()
            steps = list(self._steps(stream, method))
            end = time.perf_counter()
            return Answer(
                text="".join(text for _, text in steps),
                tokens=tuple(itertools.chain.from_iterable(tokens for tokens, _ in steps)),
                seconds=end - prefilled,
                prompt_seconds=prefilled - begin,
                stats=self.model.binding.stats(stream),
            )

    def decisions(self, prompt: Tokens, method: Method, max_tokens: int = 0) -> list[Decision]:
        """Make one choice and return its decisions; forced tokens are none.

        Outside spans all of the vocabulary is looked at: a grammar masks it, or sampling reads it.
        """
        made: list[Decision] = []
        binding = self.model.binding
        with self._prefilled(prompt, method, max_tokens) as stream:
            before = binding.stats(stream)
            for _ in self._steps(stream, method):
                now = binding.stats(stream)
                in_span = now.decisions - before.decisions
                sampled = now.tokens_sampled - before.tokens_sampled
                count = in_span + sampled
                if count:
                    seen = now.candidates_seen - before.candidates_seen + sampled * self.n_vocab
                    spent = now.select_ns - before.select_ns
                    made += [Decision(seen / count, spent / count / 1e3)] * count
                before = now
        return made

    def set_trie_microseconds(self, prompt: Tokens, *, cached: bool) -> float:
        """Return the median time of setting the trie, its payload known already or never seen."""
        payloads = [
            self.alternatives.json if cached else self.alternatives.unseen_json()
            for _ in range(TRIES_SET)
        ]
        binding = self.model.binding
        with self._prefilled(prompt, Method("strict-trie-ffi"), 0) as stream:
            if cached:
                binding.set_token_trie(stream, payloads[0], TRIE_ARGMAX)
            times = []
            for payload in payloads:
                begin = time.perf_counter()
                binding.set_token_trie(stream, payload, TRIE_ARGMAX)
                times.append(time.perf_counter() - begin)
        return float(np.median(times)) * 1e6

    @contextmanager
    def _prefilled(self, prompt: Tokens, method: Method, max_tokens: int) -> Iterator[Any]:
        binding = self.model.binding
        binding.set_option(self._ctx, "strategy", method.strategy)
        binding.set_option(self._ctx, "grammar_order", method.grammar_order)
        grammar = self.alternatives.grammar if method.mode == "strict-guided" else None
        stream = binding.open(self._ctx, StreamConfig(max_tokens=max_tokens, gbnf_grammar=grammar))
        try:
            binding.prefill(stream, prompt)
            yield stream
        finally:
            binding.close(stream)

    def _steps(self, stream: Any, method: Method) -> Iterator[tuple[tuple[int, ...], str]]:
        binding = self.model.binding
        if method.mode == "strict-trie-ffi":
            binding.set_token_trie(stream, self.alternatives.json, TRIE_ARGMAX | STOP_AT_LEAF)
        text, done = "", False
        while not done:
            step = binding.next(stream)
            text += step.text
            # Where the grammar allows only the end, asking for it would be a pass for nothing.
            done = step.done or (method.mode == "strict-guided" and self.alternatives.ends_at(text))
            yield step.tokens, step.text


@dataclass(frozen=True)
class Report:
    """What a benchmark came to.

    Attributes
    ----------
    mode, model, strategy : str
        `strategy` is ``"none"`` where there is no trie.
    grammar_order : str
        Of the grammar that is measured or compared with.
    skip_ratio_mean, skip_ratio_std : float
        Over all decisions, the share of the vocabulary that was not looked at:
        ``(vocabulary - candidates) / vocabulary``. Forced tokens are no decisions. Modes without a
        trie look at all of it: 0.
    tokens_per_second : float
        Median over the timed choices of their tokens divided by their seconds. A choice's time
        begins when the prompt has been decoded and ends with its last token.
    tokens_per_second_vs_grammar : float
        Divided by the same of the grammar, run in the same rounds.
    token_accuracy : float
        Leaf agreement: the share of the prompts on which the text is the one that the grammar leads
        to, both greedily. The grammar may spell a string with any tokens, the trie with those of
        its leaf, so less than 1 is possible, and is no error of either.
    forward_passes_saved, forward_passes_total : int
        Over all timed choices: tokens that ran no forward pass of their own, and the passes run,
        without those of the prompts.
    decision_us_mean, decision_us_p50, decision_us_p99 : float
        Microseconds selecting a token at a decision.
    choice_ms_p50, choice_ms_p99 : float
        Milliseconds of a choice, as for `tokens_per_second`: the prompt is in the slot already.
    prompt_ms_p50 : float
        Milliseconds before that: opening a stream, which parses the grammar if there is one, and
        prefilling a prompt that the slot holds.
    passes_per_choice, tokens_per_choice : float
        Means over the timed choices.
    prompt_tokens, prompt_tokens_reused : float
        Means over the timed choices: tokens given to prefill, and those of them found in a slot.
    set_token_trie_us_cold, set_token_trie_us_cached : float
        Median microseconds of setting a payload never seen before, and one seen before.
    tree_passes : int
        Passes of the timed choices that decoded several decisions at once.
    cores : int
        Physical cores this process may use.
    """

    mode: str
    model: str
    strategy: str
    grammar_order: str
    skip_ratio_mean: float
    skip_ratio_std: float
    tokens_per_second: float
    tokens_per_second_vs_grammar: float
    token_accuracy: float
    forward_passes_saved: int
    forward_passes_total: int
    decision_us_mean: float
    decision_us_p50: float
    decision_us_p99: float
    choice_ms_p50: float
    choice_ms_p99: float
    prompt_ms_p50: float
    passes_per_choice: float
    tokens_per_choice: float
    prompt_tokens: float
    prompt_tokens_reused: float
    set_token_trie_us_cold: float
    set_token_trie_us_cached: float
    tree_passes: int
    n_vocab: int
    choices: int
    prompts: int
    repeat: int
    warmup: int
    cores: int
    library_version: str
    llama_cpp_commit: str


def measure(
    bench: Workbench,
    prompts: Sequence[Tokens],
    method: Method,
    *,
    repeat: int = 20,
    warmup: int = 2,
) -> Report:
    """Measure a method beside the grammar of its `grammar_order`.

    Parameters
    ----------
    bench
    prompts
        Each as tokens, shape ``[n]``.
    method
    repeat
        Timed choices for each prompt, at least 1.
    warmup
        Choices for each prompt before those; they bring the prompt into a slot.
    """
    grammar = Method("strict-guided", grammar_order=method.grammar_order)
    answers: list[Answer] = []
    baseline: list[Answer] = []
    decisions: list[Decision] = []
    agreed: list[bool] = []
    for prompt in prompts:
        expected = bench.answer(prompt, grammar)
        # As many tokens as the grammar took, so that free generation has the same to do.
        limit = len(expected.tokens) if method.mode == "unguided" else 0
        for turn in range(warmup + repeat):
            measured = bench.answer(prompt, method, limit)
            # The grammar is not run twice to be compared with itself.
            other = measured if method == grammar else bench.answer(prompt, grammar)
            if turn >= warmup:
                answers.append(measured)
                baseline.append(other)
        agreed.append(answers[-1].text == expected.text)
        for _ in range(repeat):
            decisions += bench.decisions(prompt, method, limit)

    skipped = [(bench.n_vocab - made.candidates) / bench.n_vocab for made in decisions] or [0.0]
    select_us = [made.microseconds for made in decisions] or [0.0]
    choice_ms = [answer.seconds * 1e3 for answer in answers]
    stats = [answer.stats for answer in answers]
    rate = _median_rate(answers)
    facts = bench.model.describe()
    return Report(
        mode=method.mode,
        model=bench.model.path,
        strategy=method.strategy if method.mode == "strict-trie-ffi" else "none",
        grammar_order=method.grammar_order,
        skip_ratio_mean=float(np.mean(skipped)),
        skip_ratio_std=float(np.std(skipped)),
        tokens_per_second=rate,
        tokens_per_second_vs_grammar=rate / _median_rate(baseline),
        token_accuracy=float(np.mean(agreed)),
        forward_passes_saved=sum(each.forward_passes_saved for each in stats),
        forward_passes_total=sum(each.passes_after_prompt for each in stats),
        decision_us_mean=float(np.mean(select_us)),
        decision_us_p50=float(np.percentile(select_us, 50)),
        decision_us_p99=float(np.percentile(select_us, 99)),
        choice_ms_p50=float(np.percentile(choice_ms, 50)),
        choice_ms_p99=float(np.percentile(choice_ms, 99)),
        prompt_ms_p50=float(np.median([answer.prompt_seconds * 1e3 for answer in answers])),
        passes_per_choice=float(np.mean([each.passes_after_prompt for each in stats])),
        tokens_per_choice=float(np.mean([len(answer.tokens) for answer in answers])),
        prompt_tokens=float(np.mean([each.prompt_tokens for each in stats])),
        prompt_tokens_reused=float(np.mean([each.prompt_tokens_reused for each in stats])),
        set_token_trie_us_cold=bench.set_trie_microseconds(prompts[0], cached=False),
        set_token_trie_us_cached=bench.set_trie_microseconds(prompts[0], cached=True),
        tree_passes=sum(each.tree_passes for each in stats),
        n_vocab=bench.n_vocab,
        choices=len(bench.alternatives.texts),
        prompts=len(prompts),
        repeat=repeat,
        warmup=warmup,
        cores=int(facts["threads"]),
        library_version=str(facts["library_version"]),
        llama_cpp_commit=str(facts["llama_cpp"]["commit"]),
    )


def _median_rate(answers: Sequence[Answer]) -> float:
    return float(np.median([len(answer.tokens) / answer.seconds for answer in answers]))


def add_bench_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command, but for the model's."""
    parser.add_argument("--mode", choices=MODES, required=True)
    parser.add_argument(
        "--prompt", metavar="FILE", nargs="+", required=True, help="files with a prompt each"
    )
    answers = parser.add_mutually_exclusive_group(required=True)
    answers.add_argument("--choices-file", metavar="FILE", help="answers, one per line")
    answers.add_argument(
        "--token-tree-descriptor", metavar="FILE", help="answers as a payload, JSON or RTKT"
    )
    parser.add_argument(
        "--grammar-order",
        choices=GRAMMAR_ORDERS,
        default="last",
        help="mask before sampling, or only where an illegal token was sampled (last)",
    )
    parser.add_argument("--strategy", choices=STRATEGIES, default="auto", help="of the trie (auto)")
    parser.add_argument(
        "--repeat", type=int, default=20, metavar="N", help="timed choices per prompt (20)"
    )
    parser.add_argument(
        "--warmup", type=int, default=2, metavar="N", help="untimed ones before them (2)"
    )
    parser.add_argument("--output", metavar="FILE", help="write the JSON here (standard output)")


def run_bench(arguments: argparse.Namespace) -> int:
    """Measure what the arguments ask for and write the report."""
    if arguments.repeat < 1 or arguments.warmup < 0:
        raise UsageError("--repeat must be 1 or more and --warmup 0 or more")
    texts = [Path(file).read_text(encoding="utf-8").removesuffix("\n") for file in arguments.prompt]
    for file, text in zip(arguments.prompt, texts, strict=True):
        if not text:
            raise UsageError(f"the prompt in {file} is empty")
    descriptor = arguments.token_tree_descriptor
    data = Path(descriptor).read_bytes() if descriptor is not None else None
    choices = read_choices(arguments) if data is None else []
    with open_model(arguments) as model:
        prompts = [model.tokenize(text, add_special=True, parse_special=True) for text in texts]
        alternatives = (
            Alternatives.of_texts(model, choices)
            if data is None
            else Alternatives.of_payload(model, data)
        )
        report = measure(
            Workbench(model, alternatives),
            prompts,
            Method(arguments.mode, arguments.strategy, arguments.grammar_order),
            repeat=arguments.repeat,
            warmup=arguments.warmup,
        )
    out = json.dumps(asdict(report), ensure_ascii=False, indent=2) + "\n"
    if arguments.output is None:
        sys.stdout.write(out)
    else:
        Path(arguments.output).write_text(out, encoding="utf-8")
    return 0
