"""What a model's streams come to together, beside one alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from page_tables import markdown_table, number

from eliza_ffi.library.protocol import StreamStats
from eliza_ffi.model import Model

from ..parts.figures import median, median_ratio, percentile
from .together import Chosen, OurStreams, Written, choose_together, write_together

__all__ = [
    "CHOICES",
    "CHOICE_PROMPT_TOKENS",
    "PROMPT_TOKENS",
    "RandomPrompts",
    "StreamsReport",
    "measure_streams",
    "sharing",
]

CHOICES = ("SEND_EMAIL", "SEND_MESSAGE", "SEARCH_WEB", "CREATE_NOTE", "IGNORE")
"""The answers, if no others are asked for. Some part at their first token, some later."""

PROMPT_TOKENS = 32
"""Length of the prompts that streams go on from."""

CHOICE_PROMPT_TOKENS = 64
"""Length of the prompts that are chosen after."""

WARM_UP_TOKENS = 4


@dataclass(frozen=True)
class StreamsReport:
    """What streams came to together; medians over the rounds.

    Attributes
    ----------
    streams, tokens, choices, repeat : int
        Streams at once, tokens that each writes, answers to choose among, rounds.
    tokens_per_second_alone, tokens_per_second : float
        Of one stream, and of all together; from when the last has its first token.
    tokens_gain : float
        The second divided by the first, within a round.
    token_ms_alone_p50, token_ms_p50, token_ms_p99 : float
        From one token of a stream to its next: alone, and together.
    choices_per_second_one_by_one, choices_per_second : float
        By one thread, and by as many as there are streams; prompts that nothing holds, included.
    choices_gain : float
    choice_ms_alone_p50, choice_ms_p50, choice_ms_p99 : float
    restarts : int
        Texts that the model ended early and that were begun anew.
    shared_passes : float or None
        Of the forward passes of the streams together, the share that served several of them; None
        where the library does not count.
    sequences_per_pass, wait_us_per_pass : float or None
        Sequences that a pass decoded, and microseconds a stream waited for it.
    """

    model: str
    streams: int
    tokens: int
    choices: int
    repeat: int
    tokens_per_second_alone: float
    tokens_per_second: float
    tokens_gain: float
    token_ms_alone_p50: float
    token_ms_p50: float
    token_ms_p99: float
    choices_per_second_one_by_one: float
    choices_per_second: float
    choices_gain: float
    choice_ms_alone_p50: float
    choice_ms_p50: float
    choice_ms_p99: float
    restarts: int
    shared_passes: float | None
    sequences_per_pass: float | None
    wait_us_per_pass: float | None
    cores: int
    library_version: str
    llama_cpp_commit: str

    def text(self) -> str:
        """Return a short table of Markdown."""
        head = ("", "tokens/s", "ms a token", "p99", "choices/s", "ms a choice", "p99")
        rows = [
            (
                "one alone",
                number(self.tokens_per_second_alone),
                number(self.token_ms_alone_p50),
                "",
                number(self.choices_per_second_one_by_one),
                number(self.choice_ms_alone_p50),
                "",
            ),
            (
                f"{self.streams} together",
                *(map(number, (self.tokens_per_second, self.token_ms_p50, self.token_ms_p99))),
                *(map(number, (self.choices_per_second, self.choice_ms_p50, self.choice_ms_p99))),
            ),
            ("gain", f"{self.tokens_gain:.2f}x", "", "", f"{self.choices_gain:.2f}x", "", ""),
        ]
        lines = [markdown_table(head, rows)]
        if self.shared_passes is not None:
            lines.append(
                f"passes shared: {self.shared_passes:.0%}, of {self.sequences_per_pass:.1f} "
                f"sequences each, waited for {self.wait_us_per_pass:.0f} us"
            )
        if self.restarts:
            lines.append(f"the model ended {self.restarts} texts early; they were begun anew")
        return "\n\n".join(lines)


class RandomPrompts:
    """Prompts that no cache can know: random tokens of a model's vocabulary, none of them control.

    Parameters
    ----------
    model
    seed
        Same seed, same prompts.
    """

    def __init__(self, model: Model, seed: int) -> None:
        self._model = model
        self._random = random.Random(seed)
        self._n_vocab = int(model.describe()["model"]["n_vocab"])
        self._begin = model.tokenize("", add_special=True)

    def draw(self, count: int, length: int, prefix: Sequence[int] = ()) -> list[list[int]]:
        """Return so many prompts of `length` tokens, behind a prefix if there is one."""
        return [self._drawn(length, prefix or self._begin, bool(prefix)) for _ in range(count)]

    def _drawn(self, length: int, before: Sequence[int], is_more: bool) -> list[int]:
        prompt = [*before]
        target = length + (len(before) if is_more else 0)
        while len(prompt) < target:
            token = self._random.randrange(self._n_vocab)
            if self._model.detokenize([token]):
                prompt.append(token)
        return prompt


def measure_streams(
    model: Model,
    streams: int,
    *,
    tokens: int = 48,
    choices: Sequence[str] = CHOICES,
    repeat: int = 3,
) -> StreamsReport:
    """Write and choose with one stream and with several at once, in turns.

    Parameters
    ----------
    model
        With a slot for every stream.
    streams
    tokens
        That each stream writes in a round, at least 2.
    choices
        The answers; a round chooses twice for each stream.
    repeat
        Rounds.
    """
    alone, together = OurStreams(model, choices), OurStreams(model, choices)
    prompts = RandomPrompts(model, seed=1)

    def written(contender: OurStreams, n_streams: int, n_tokens: int) -> Written:
        return write_together(contender, prompts.draw(n_streams, PROMPT_TOKENS), n_tokens)

    def chosen(contender: OurStreams, n_threads: int) -> Chosen:
        return choose_together(
            contender, prompts.draw(2 * streams, CHOICE_PROMPT_TOKENS), n_threads
        )

    warm_up = OurStreams(model, choices)
    written(warm_up, streams, WARM_UP_TOKENS)
    chosen(warm_up, streams)
    rounds = [
        (
            written(alone, 1, tokens),
            written(together, streams, tokens),
            chosen(alone, 1),
            chosen(together, streams),
        )
        for _ in range(repeat)
    ]
    alone_wrote, wrote, alone_chose, chose = zip(*rounds, strict=True)
    tokens_alone, tokens_all = (
        [one.tokens_per_second for one in way] for way in (alone_wrote, wrote)
    )
    choices_alone, choices_all = (
        [one.choices_per_second for one in way] for way in (alone_chose, chose)
    )
    token_ms_alone, token_ms = (
        [ms for one in way for ms in one.token_ms] for way in (alone_wrote, wrote)
    )
    choice_ms_alone, choice_ms = (
        [ms for one in way for ms in one.choice_ms] for way in (alone_chose, chose)
    )
    facts, shared = model.describe(), sharing(together.stats)
    return StreamsReport(
        model=model.path,
        streams=streams,
        tokens=tokens,
        choices=len(choices),
        repeat=repeat,
        tokens_per_second_alone=median(tokens_alone),
        tokens_per_second=median(tokens_all),
        tokens_gain=median_ratio(tokens_all, tokens_alone),
        token_ms_alone_p50=median(token_ms_alone),
        token_ms_p50=median(token_ms),
        token_ms_p99=percentile(token_ms, 99),
        choices_per_second_one_by_one=median(choices_alone),
        choices_per_second=median(choices_all),
        choices_gain=median_ratio(choices_all, choices_alone),
        choice_ms_alone_p50=median(choice_ms_alone),
        choice_ms_p50=median(choice_ms),
        choice_ms_p99=percentile(choice_ms, 99),
        restarts=alone.restarts + together.restarts,
        shared_passes=shared.get("passes_shared"),
        sequences_per_pass=shared.get("sequences"),
        wait_us_per_pass=shared.get("wait_us"),
        cores=int(facts["threads"]),
        library_version=str(facts["library_version"]),
        llama_cpp_commit=str(facts["llama_cpp"]["commit"]),
    )


def sharing(stats: Sequence[StreamStats]) -> dict[str, float]:
    """Return how passes were shared: means over forward passes, by the names of the counts.

    Empty where the library does not count it: its stats lack them, or they stay 0.
    """
    passes = sum(one.forward_passes for one in stats)
    found = {
        name: sum(getattr(one, name, 0) for one in stats) / passes if passes else 0.0
        for name in ("passes_shared", "sequences", "wait_us")
    }
    return found if found["sequences"] > 0.0 else {}
