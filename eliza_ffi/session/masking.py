"""Write an answer all of whose tokens are restricted: by token masks, or by a choice of labels."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ContextFullError, InvalidArgumentError
from ..library.protocol import StreamStep
from ..structured.fill_result import FilledSpan
from ..structured.guidance import GuidanceMasks, GuidanceSource
from ..structured.masks import Masks, MaskSource
from ..structured.schema_plan import PlanReader
from .requests import GenerationRequest
from .run import Run

QUICK_MASK = 250e-6
"""Maximum duration, in seconds, of a mask that is computed before the forward pass.

If the mask is known before the pass, the pass computes only the logits that the mask needs. A
mask that takes longer is computed on another thread during the pass."""


_UP_TO_WORD = re.compile(r".*\w", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ChoiceStep(StreamStep):
    """A step with the tokens of a label."""

    n_earlier: int = 0  # the number of tokens before those of the label
    n_replaced: int = 0  # how many tokens the library had generated in their place: 0 or 1


class MaskedSteps:
    """The steps of a request whose tokens are all restricted by `masks`.

    If the masks have a plan, its choices take the most probable label. All other tokens are chosen
    one by one among the tokens that the masks allow. With `logit_bias`, which the library does not
    apply to labels, that includes the tokens of choices.
    """

    def __init__(self, run: Run[Any], args: GenerationRequest, masks: Masks) -> None:
        self._binding = run.binding
        self._check = run.check
        self._masks = masks
        given = args.sampling or args
        self._sampling = {n: getattr(given, n) for n in ("temperature", "top_k", "top_p")}
        self._has_bias = args.sampling is not None and bool(args.sampling.logit_bias)
        self._max_tokens = args.max_tokens
        self._heal_prompt = args.heal_prompt
        self._plan: PlanReader | None = None
        self._texts: Sequence[bytes] = ()  # of the tokens, if there is a plan
        if isinstance(masks, GuidanceMasks) and masks.plan is not None:
            self._plan = masks.plan.start()
            self._texts = masks.vocabulary.texts
        if args.heal_prompt and (self._plan is None or self._plan.choice is None):
            raise InvalidArgumentError(
                "heal_prompt=True needs a schema whose answers begin with a choice, such as an enum"
            )
        if args.heal_prompt and self._has_bias:
            raise InvalidArgumentError("heal_prompt=True cannot be combined with logit_bias")
        self._source: MaskSource | None = None
        self._unread: list[int] = []  # tokens that the mask source has not read
        self._follows_label = False
        self._held: StreamStep | None = None  # its last token ends inside the next choice
        self._n_tokens = 0
        self.has_ended = False  # whether the text is complete, so that no token may follow
        self.is_cut = False  # whether `max_tokens` ended the text
        self.choices: dict[str, FilledSpan] = {}  # those so far, by their path in the plan

    def steps(self, stream: Any) -> Iterator[StreamStep]:
        """Yield the steps. The last one is `done`."""
        with closing(_MaskComputer(lambda: self._binding.decode(stream))) as computer:
            done = False
            while not done:
                self._check()
                for step in self._part(stream, computer):
                    self._n_tokens += len(step.tokens)
                    done = step.done
                    yield step

    def joined(self, stream: Any) -> Iterator[StreamStep]:
        """Yield all steps as one; if the context is full, first those until then."""
        steps: list[StreamStep] = []
        try:
            steps.extend(self.steps(stream))
        except ContextFullError:
            yield _joined(steps, False)
            raise
        yield _joined(steps, True)

    def _part(self, stream: Any, computer: _MaskComputer) -> Iterable[StreamStep]:
        """Return the steps of the next choice, or of the tokens that one mask decides."""
        plan = self._plan
        if plan is not None and plan.is_at_end:
            if not self._allows(plan.fixed.decode()):
                return self._without_plan(plan, stream, computer)
            return (self._cut(self._rest(stream, plan)),)
        if self._max_tokens and self._n_tokens >= self._max_tokens:
            return (self._cut(StreamStep((), "", True)),)
        if plan is not None and self._chooses(plan.is_at_choice or self._held is not None):
            allowed = self._allowed_labels(plan)
            if not allowed:
                return self._without_plan(plan, stream, computer)
            step = self._chosen(stream, plan, allowed)
            cut = self._cut(step)
            if cut is not step:
                self.choices.popitem()
            return (cut,)
        if plan is not None and self._follows_label and plan.fixed:
            if not self._allows(plan.fixed.decode()):
                return self._without_plan(plan, stream, computer)
            return (self._cut(self._after_label(stream, plan)),)
        return self._masked(stream, computer)

    # ---- choices -----------------------------------------------------------------------------

    def _chooses(self, is_at_choice: bool) -> bool:
        """Return whether the plan's choice decides the next tokens."""
        return is_at_choice and not self._has_bias

    def _allowed_labels(self, plan: PlanReader) -> list[int]:
        """Return the indices of the labels that the masks allow.

        The plan knows less than the masks. For example, it offers a field whose schema is
        impossible for a reason that only llguidance finds.
        """
        assert plan.choice is not None
        begun = plan.fixed.decode()
        if self._held is not None:
            last = self._texts[self._held.tokens[-1]]
            begun = last[: -len(plan.beyond)].decode() + begun
        labels = enumerate(plan.choice.labels)
        return [i for i, label in labels if self._allows(begun + label.certain)]

    def _allows(self, text: str) -> bool:
        source = self._current_source()
        assert isinstance(source, GuidanceSource)  # only they have a plan
        return source.allows(text)

    def _without_plan(
        self, plan: PlanReader, stream: Any, computer: _MaskComputer
    ) -> Iterable[StreamStep]:
        """Leave the rest of the answer to the masks."""
        plan.give_up()
        held, self._held = self._held, None
        if held is None:
            return self._masked(stream, computer)
        self._unread.append(held.tokens[-1])
        return (held,)

    def _chosen(self, stream: Any, plan: PlanReader, allowed: Sequence[int]) -> ChoiceStep:
        choice, fixed = plan.choice, plan.fixed.decode()
        assert choice is not None
        held, self._held = self._held, None
        earlier: tuple[int, ...] = ()
        text = ""
        beyond = plan.beyond
        if held is not None:
            earlier, last = held.tokens[:-1], self._texts[held.tokens[-1]]
            text = held.text.removesuffix(last.decode()) + last[: -len(beyond)].decode()
        text += fixed
        is_first = self._heal_prompt and not self._n_tokens
        result = self._binding.fill(
            stream,
            {
                "before": fixed,
                "choices": [choice.labels[i].scored for i in allowed],
                "best": True,
                **({"heal": True} if is_first else {"take_back": len(beyond)}),
                **self._sampling,
            },
        )
        label = choice.labels[allowed[result.choice]]
        plan.choose(allowed[result.choice])
        tokens = result.answer_tokens[self._n_tokens + len(earlier) :]
        if is_first:  # a healed first token also spells the end of the prompt
            assert isinstance(self._masks, GuidanceMasks)
            self._unread += self._masks.tokens_of(text + label.scored)
        else:
            self._unread += tokens
        self._follows_label = True
        self.choices[choice.path] = FilledSpan(
            index=len(self.choices),
            key=choice.path or None,
            kind="enum" if choice.is_value else "literal",
            before="",
            text=label.text,
            value=label.value,
            logprob=result.logprob,
            tokens=tokens,
            truncated=False,
        )
        return ChoiceStep(
            tokens=(*earlier, *tokens),
            text=text + label.scored,
            done=False,
            n_earlier=len(earlier),
            n_replaced=int(held is not None),
        )

    def _after_label(self, stream: Any, plan: PlanReader) -> ChoiceStep:
        """Write the fixed text after a label, because the masks may allow a longer label instead.

        Punctuation at the end is left to the masks: it may share a token with a free value.
        """
        self._follows_label = False
        fixed = plan.fixed.decode()
        text = _UP_TO_WORD.match(fixed)
        written = text.group() if text is not None else fixed[0]
        step = self._fixed(stream, written)
        plan.push(written.encode())
        self._unread += step.tokens
        return step

    def _rest(self, stream: Any, plan: PlanReader) -> StreamStep:
        """Write the fixed text at the end of the answer."""
        self.has_ended = True
        fixed = plan.fixed.decode()
        return replace(self._fixed(stream, fixed), done=True) if fixed else StreamStep((), "", True)

    def _fixed(self, stream: Any, text: str) -> ChoiceStep:
        """Write fixed text."""
        result = self._binding.fill(stream, {"before": text, "take_back": 0})
        return ChoiceStep(result.answer_tokens[self._n_tokens :], text, False)

    def _cut(self, step: StreamStep) -> StreamStep:
        """Return a step without the tokens after the limit."""
        n_left = self._max_tokens - self._n_tokens
        is_long = len(step.tokens) > n_left or (step.done and not self.has_ended)
        if not self._max_tokens or not is_long:
            return step
        self.has_ended, self.is_cut = False, True
        tokens = step.tokens[:n_left]
        text = b"".join(self._texts[token] for token in tokens).decode("utf-8", "ignore")
        return replace(step, tokens=tokens, text=text, done=True)

    # ---- masks -------------------------------------------------------------------------------

    def _masked(self, stream: Any, computer: _MaskComputer) -> Iterator[StreamStep]:
        self._follows_label = False
        source, plan = self._source, self._plan
        if source is None or self._unread:
            source = self._current_source()
        self.has_ended = bool(source.has_ended)
        if self.has_ended:
            yield StreamStep((), "", True)
            return
        room = self._max_tokens - self._n_tokens if self._max_tokens else None
        forced = source.forced()[:room]
        if forced:
            forced = self._before_choice(forced)
            self._binding.set_forced_tokens(stream, forced)
        else:
            self._binding.set_token_mask(stream, computer.mask(source))
        n_left = len(forced) or 1
        while True:
            step = self._binding.next(stream)
            n_left -= len(step.tokens)
            if plan is not None and not forced:
                for token in step.tokens:
                    plan.push(self._texts[token])
                    if self._chooses(plan.choice is not None) or plan.is_over:
                        break
            is_at_choice = plan is not None and self._chooses(plan.choice is not None)
            if is_at_choice and n_left <= 0 and not step.done and self._crosses(step):
                self._held = step
            for token in step.tokens if self._held is None else step.tokens[:-1]:
                source.accept(token)
            if step.done:
                self.has_ended = bool(source.has_ended)
            if self._held is None:
                yield step
            if step.done or n_left <= 0:
                return
            self._check()

    def _current_source(self) -> MaskSource:
        """Return the mask source after it has read all tokens."""
        if self._source is None:
            self._source = self._masks.start()
        if self._unread and isinstance(self._source, GuidanceSource):
            self._source.accept_all(self._unread)
        else:
            for token in self._unread:
                self._source.accept(token)
        self._unread.clear()
        return self._source

    def _before_choice(self, tokens: Sequence[int]) -> Sequence[int]:
        """Let the plan read these tokens; return those up to the next choice."""
        plan = self._plan
        if plan is None:
            return tokens
        for n, token in enumerate(tokens, 1):
            plan.push(self._texts[token])
            if self._chooses(plan.choice is not None) or plan.is_over:
                return tokens[:n]
        return tokens

    def _crosses(self, step: StreamStep) -> bool:
        """Return whether a step's last token ends inside the text of the next choice.

        Such a token is held back: the choice replaces the part of it that belongs to the choice.
        """
        plan = self._plan
        if plan is None or plan.choice is None or not plan.beyond or not step.tokens:
            return False
        last = self._texts[step.tokens[-1]]
        try:
            last.decode()  # a part of it is tokenized again, which needs whole characters
        except UnicodeDecodeError:
            return False
        return len(plan.beyond) <= len(last)


def _joined(steps: Sequence[StreamStep], done: bool) -> StreamStep:
    return StreamStep(
        tokens=tuple(chain.from_iterable(map(attrgetter("tokens"), steps))),
        text="".join(map(attrgetter("text"), steps)),
        done=done,
        drafted=sum(map(attrgetter("drafted"), steps)),
        accepted=sum(map(attrgetter("accepted"), steps)),
    )


class _MaskComputer:
    """Computes quick masks before the forward pass, and slow masks on a thread during the pass.

    Each mask is expected to take as long as the previous mask.
    """

    def __init__(self, decode: Callable[[], None]) -> None:
        self._decode = decode
        self._seconds = 0.0  # duration of the last mask's computation
        self._thread: ThreadPoolExecutor | None = None

    def mask(self, source: MaskSource) -> NDArray[np.uint32]:
        if self._seconds > QUICK_MASK:
            mask = self._compute_during_the_pass(source)
        else:
            start = perf_counter()
            mask = source.mask()
            self._seconds = perf_counter() - start
        if not mask.any():
            raise InvalidArgumentError("the mask allows no token")
        return mask

    def _compute_during_the_pass(self, source: MaskSource) -> NDArray[np.uint32]:
        def compute() -> NDArray[np.uint32]:
            start = perf_counter()
            mask = source.mask()
            self._seconds = perf_counter() - start
            return mask

        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="eliza-ffi-mask")
        computing = self._thread.submit(compute)
        try:
            self._decode()
        finally:
            computing.exception()  # wait: the thread must not use the source any more
        return computing.result()

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown()
