"""Generate text: open a stream, prefill, set the trie, pull tokens, clear the trie, close.

The last two steps always happen: at the end, after an error, after a cancel, and if the caller
stops reading early.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..chat.thinking import n_held
from ..choices.token_tree import TokenTreePayload
from ..errors import ContextFullError, TokenTrieError
from ..library.protocol import (
    STOP_AT_LEAF,
    TEXT_HEAL_PROMPT,
    PreparedChoices,
    StreamStats,
    StreamStep,
    TrieLeaf,
)
from ..structured.fill_result import FilledSpan
from .masking import ChoiceStep, MaskedSteps
from .requests import Request, TextChoices
from .run import Run

logger = logging.getLogger("eliza_ffi")


class Generation:
    """The generation of text for the request `args`; `run` is the run that it is a part of.

    `warn` is called at most once, with a reason, if the library has no tries to constrain the
    labels. `at_once` says whether to write the whole text in few calls of the library, without
    steps. The token `last` ends the text, even if the model would continue; it needs `at_once` to
    be False. Successive steps may be pulled from different threads.

    Attributes
    ----------
    text, tokens, finish_reason, prompt_tokens, stats, reasoning
        As in :class:`~eliza_ffi.GenerationResult`, at the end.
    drafted, accepted : int
        The number of drafted tokens, and how many of them were accepted.
    leaf : TrieLeaf or None
        The chosen label, if there was one and the library reports it.
    leaf_logprobs : array of float64, shape [labels], or None
        With the request's `score_choices`, the natural logarithm of each label's probability.
    logprobs : array of (token, logprob), shape [tokens, 1 + n], or None
        With the request's `logprobs`, the generated token in each row, then the n most probable
        tokens at its position. Unknown entries are -1 and nan.
    choices : mapping of str to FilledSpan
        The choices of the masks' plan, by path.
    """

    def __init__(
        self,
        run: Run[Any],
        args: Request,
        warn: Callable[[str], None] = logger.warning,
        *,
        at_once: bool = False,
        last: int | None = None,
    ) -> None:
        self._run, self._binding = run, run.binding
        masks = args.masks
        self._masked = None if masks is None else MaskedSteps(run, args, masks, at_once=at_once)
        self.args = args
        self._warn = warn
        self._at_once = at_once
        self._last = last
        self.text = ""
        self.tokens: tuple[int, ...] = ()
        self.finish_reason = "none"
        self.prompt_tokens = len(args.prompt_tokens)
        self.reasoning: str | None = None
        self.logprobs: NDArray[np.void] | None = None
        self.choices: Mapping[str, FilledSpan] = {}
        self._text: list[str] = []
        self._tokens: list[int] = []
        self.drafted = 0
        self.accepted = 0
        self._stop = StopTexts(args.stop) if args.stop else None
        self._reader = None if args.reasoning is None else args.reasoning.reader()
        self._logprobs: list[NDArray[np.void]] = []
        self._n_logprobs = 0
        self._done = False
        self._context_full = False
        self.stats: StreamStats | None = None
        self.leaf: TrieLeaf | None = None
        self.leaf_logprobs: NDArray[np.float64] | None = None

    def steps(self, stream: Any = None) -> Generator[StreamStep | Generation, None, None]:
        """Generate, and yield the steps, of which the last has `done` set; then itself. With
        `at_once`, there are no steps.

        An open `stream` has read the prompt, and stays open.
        """
        args, run = self.args, self._run
        sampling = None if args.sampling is None else args.sampling.to_json()
        opened = run.opened(args, args.prompt_tokens, sampling)
        with opened if stream is None else nullcontext(stream) as stream:
            if args.logprobs is not None:
                self._binding.set_logprobs(stream, args.logprobs)
            # The library does not know where the reasoning ends, in which a stop has no effect.
            if args.stop and not args.reasoning and self._binding.supports("set_stops"):
                self._binding.set_stops(stream, args.stop)
            has_trie = self._masked is None and self._set_trie(stream)
            try:
                if has_trie and args.score_choices:
                    self.leaf_logprobs = self._binding.token_trie_scores(stream)
                masked = self._masked
                steps = self._pull(stream) if masked is None else masked.steps(stream)
                while not self._done:
                    try:
                        pulled = next(steps)
                    except ContextFullError:
                        if not self._tokens:
                            raise
                        self._context_full = True
                        pulled = StreamStep((), "", True)  # keep the text so far
                    step = self._count(pulled)
                    if args.logprobs is not None:
                        found = self._take_logprobs(stream, pulled, args.logprobs)
                        step = replace(step, logprobs=found)
                    if step.done:
                        self._read_outcome(stream, has_trie)
                    if not self._at_once:
                        yield step
            finally:
                if has_trie:
                    run.end()
                    self._binding.clear_token_trie(stream)
        self.text, self.tokens = "".join(self._text), tuple(self._tokens)
        self.finish_reason = self._finish_reason()
        if self._logprobs:
            self.logprobs = np.concatenate(self._logprobs)
        if self._reader is not None:
            self.reasoning = self._reader.reasoning
        if self._masked is not None:
            self.choices = self._masked.choices
        yield self

    def _set_trie(self, stream: Any) -> bool:
        """Start the span of labels, and return whether it has begun."""
        span = self._span()
        if span is None:
            return False
        setter, labels, mode = span
        if not (self._binding.supports(setter) and self._binding.supports("clear_token_trie")):
            self._warn(
                "this library has no token-trie sampler: labels are constrained only by the "
                "grammar, or not at all if the request has no grammar"
            )
            return False
        try:
            getattr(self._binding, setter)(stream, labels, mode)
        except (ContextFullError, TokenTrieError) as error:
            self._run.name_label(error, (0, labels))
            if isinstance(error, ContextFullError) or self.args.on_refused_choices == "raise":
                raise
            logger.warning("%s; continuing with the grammar alone", error)
            return False
        return True

    def _span(self) -> tuple[str, Any, int] | None:
        """Return the setter of the span, the labels and the mode; None if there are no labels."""
        given, mode = self.args.constraint, self.args.choice_mode
        if isinstance(given, TokenTreePayload):
            return "set_token_trie", given.to_json(), mode
        if isinstance(given, PreparedChoices):
            return "set_choices", given, mode
        if isinstance(given, TextChoices):
            heal = TEXT_HEAL_PROMPT if self.args.heal_prompt else 0
            return "set_text_choices", given.texts, mode | heal
        return None

    def _pull(self, stream: Any) -> Iterator[StreamStep]:
        supports = self._binding.supports
        at_once = self._at_once and supports("next_many") and supports("set_stops")
        while True:
            self._run.check()
            yield self._binding.next(stream, at_once=at_once)

    def _count(self, step: StreamStep) -> StreamStep:
        """Add a step to the result, and return the step without reasoning and stop strings."""
        if self._last in step.tokens:
            step = replace(step, done=True)
        if self._reader is not None:
            step = self._divided(step)
        if self._stop is not None:
            text = self._stop.push(step.text, step.done)
            step = replace(step, text=text, done=step.done or self._stop.has_come)
        self._text.append(step.text)
        self._tokens.extend(step.tokens)
        self.drafted += step.drafted
        self.accepted += step.accepted
        self._done = step.done
        return step

    def _divided(self, step: StreamStep) -> StreamStep:
        """Return a step whose reasoning is separated from its text."""
        assert self.args.reasoning is not None and self._reader is not None
        control = self.args.reasoning.control
        marks = "".join(control[token] for token in step.tokens if token in control)
        reasoning, answer = self._reader.push(step.text + marks, step.done)
        return replace(step, text=answer, reasoning=reasoning)

    def _take_logprobs(self, stream: Any, step: StreamStep, n_top: int) -> NDArray[np.void]:
        """Return the log-probabilities of the tokens since the last call."""
        n_new = len(self._tokens) - self._n_logprobs
        if isinstance(step, ChoiceStep):
            found = self._logprobs_of_choice(stream, step, n_top)
        else:
            found = self._binding.take_logprobs(stream, n_new, n_top)
        self._logprobs.append(found)
        self._n_logprobs += len(found)
        return found

    def _logprobs_of_choice(self, stream: Any, step: ChoiceStep, n_top: int) -> NDArray[np.void]:
        """Return the rows of a step whose last tokens are a label's, which have no value."""
        read = self._binding.take_logprobs(stream, step.n_earlier + step.n_replaced, n_top)
        found = np.zeros((len(step.tokens), n_top + 1), read.dtype)
        found["token"], found["logprob"] = -1, np.nan
        found["token"][:, 0] = step.tokens
        found[: step.n_earlier] = read[: step.n_earlier]
        return found

    def _read_outcome(self, stream: Any, has_trie: bool) -> None:
        """Read the facts that are available only while the stream is open."""
        if self._binding.supports("stats"):
            self.stats = self._binding.stats(stream)
        if has_trie and self._binding.supports("token_trie_leaf"):
            self.leaf = self._binding.token_trie_leaf(stream)

    def _finish_reason(self) -> str:
        if self._context_full:
            return "context_full"
        if self._stop is not None and self._stop.has_come:
            return "stop"
        if self._masked is not None and self._masked.has_ended:
            return "end"
        if self._masked is not None and self._masked.is_cut:
            return "length"
        if self.stats is not None:
            return self.stats.finish_reason
        if not self._done:
            return "none"
        if self.leaf is not None and self.args.choice_mode & STOP_AT_LEAF:
            return "leaf"
        limit = self.args.max_tokens
        return "length" if 0 < limit <= len(self._tokens) else "end"


class StopTexts:
    """Passes text on up to the first stop string.

    The end of the text is held back while it may be the beginning of a stop string.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.has_come = False

    def push(self, text: str, is_last: bool) -> str:
        """Add text, and return the text that can be passed on now; hold back none of the last."""
        text = self._held + text
        # Take the stop string that ends first, independent of how the text was split. If several
        # end at the same place, take the longest.
        found = [(place + len(s), place) for s in self._stops if (place := text.find(s)) >= 0]
        if found:
            self.has_come = True
            return text[: min(found)[1]]
        n = 0 if is_last else n_held(text, *self._stops)
        self._held = text[len(text) - n :]
        return text[: len(text) - n]
