"""Write an answer all of whose tokens are restricted: by token masks, or by a choice of labels."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
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
from .requests import Request
from .run import Run

QUICK_MASK = 250e-6
"""Maximum duration, in seconds, of a mask that is computed before the forward pass.

If the mask is known before the pass, the pass computes only the logits that the mask needs. A
mask that takes longer is computed on another thread during the pass."""


_CERTAIN, _SCORED = attrgetter("certain"), attrgetter("scored")
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
    apply to labels, that includes the tokens of choices. With `at_once`, all steps become one,
    unless the request needs to see each of them.
    """

    def __init__(self, run: Run[Any], args: Request, masks: Masks, *, at_once: bool) -> None:
        self._binding = run.binding
        self._masks = masks
        given = args.sampling or args
        self._sampling = {
            "temperature": given.temperature,
            "top_k": given.top_k,
            "top_p": given.top_p,
        }
        self._has_bias = args.sampling is not None and bool(args.sampling.logit_bias)
        self._max_tokens = args.max_tokens
        self._heal_prompt = args.heal_prompt
        is_plain = args.logprobs is None and not args.stop and args.reasoning is None
        self._is_joined = at_once and is_plain
        self._plan: PlanReader | None = None
        self._texts: Sequence[bytes] = ()  # of the tokens, if there is a plan
        if isinstance(masks, GuidanceMasks) and masks.plan is not None:
            self._plan = PlanReader(masks.plan)
            self._texts = masks.vocabulary.texts
        if args.heal_prompt and (self._plan is None or self._plan.choice is None):
            raise InvalidArgumentError(
                "heal_prompt=True needs a schema whose answers begin with a choice, such as an enum"
            )
        if args.heal_prompt and self._has_bias:
            raise InvalidArgumentError("heal_prompt=True cannot be combined with logit_bias")
        self._follows_label = False
        self._held: StreamStep | None = None  # its last token ends inside the next choice
        self._n_tokens = 0
        self._n_forced = 0  # how many forced tokens the stream still has
        # The mask that is computed on another thread, and the duration of the last mask.
        self._thread: ThreadPoolExecutor | None = None
        self._mask_seconds = 0.0
        self.has_ended = False  # whether the text is complete, so that no token may follow
        self.is_cut = False  # whether `max_tokens` ended the text
        self.choices: dict[str, FilledSpan] = {}  # those so far, by their path in the plan

    def steps(self, stream: Any) -> Iterator[StreamStep]:
        """Yield the steps. The last one is `done`, unless the context is full before it."""
        # A mask source; a GuidanceSource if there is a plan.
        self._source: Any = self._masks.start()
        waiting: list[StreamStep] = []
        done = False
        try:
            while not done:
                step = self._next(stream)
                if step is None:
                    continue
                self._n_tokens += len(step.tokens)
                done = step.done
                if self._is_joined:
                    waiting.append(step)
                else:
                    yield step
        except ContextFullError:
            if self._is_joined:
                yield _joined(waiting, False)
            raise
        finally:
            if self._thread is not None:
                self._thread.shutdown()
        if self._is_joined:
            yield _joined(waiting, True)

    def _next(self, stream: Any) -> StreamStep | None:
        """Write a choice, fixed text, or a token that the masks allow; None = hold it back."""
        plan, n_forced, source = self._plan, self._n_forced, self._source
        if not n_forced:
            n_chosen = len(self.choices)
            written: StreamStep | None = None
            if plan is not None and plan.is_at_end:
                written = self._rest(stream, plan)
            elif 0 < self._max_tokens <= self._n_tokens:
                self.is_cut = True
                return StreamStep((), "", True)
            elif plan is not None and not self._has_bias and (plan.is_at_choice or self._held):
                written = self._chosen(stream, plan)
            elif plan is not None and self._follows_label and plan.fixed:
                written = self._after_label(stream, plan)
            if written is None:
                written = self._restrict(stream)
            elif 0 < self._max_tokens < self._n_tokens + len(written.tokens):
                written = self._cut(written)
                if len(self.choices) > n_chosen:
                    self.choices.popitem()
            if written is not None:
                return written
            n_forced = self._n_forced
        step = self._binding.next(stream)
        self._n_forced = 0 if step.done else max(n_forced - len(step.tokens), 0)
        if plan is not None:
            if not n_forced:
                texts = map(self._texts.__getitem__, step.tokens)
                plan.push(*texts, past_choices=self._has_bias)
            is_within = plan.choice is not None and not plan.is_at_choice
            if is_within and not self._n_forced and not step.done and self._crosses(step, plan):
                self._held = step
        tokens = step.tokens if self._held is None else step.tokens[:-1]
        if isinstance(source, GuidanceSource):
            source.accept_all(tokens)
        else:
            for token in tokens:
                source.accept(token)
        if step.done:
            self.has_ended = bool(source.has_ended)
        return step if self._held is None else None

    # ---- choices -----------------------------------------------------------------------------

    def _chosen(self, stream: Any, plan: PlanReader) -> StreamStep | None:
        """Write the best label that the masks allow. If there is none, the masks write the rest."""
        choice, fixed = plan.choice, plan.fixed.decode()
        assert choice is not None
        held, self._held = self._held, None
        earlier: tuple[int, ...] = ()
        text, begun, n_beyond = "", fixed, 0
        if held is not None:
            earlier, last = held.tokens[:-1], self._texts[held.tokens[-1]]
            n_beyond = len(plan.beyond)
            kept = last[:-n_beyond].decode()
            text, begun = held.text.removesuffix(last.decode()) + kept, kept + fixed
        # The plan knows less than the masks. For example, it offers a field whose schema is
        # impossible for a reason that only llguidance finds.
        allowed = self._source.allowed(begun, map(_CERTAIN, choice.labels))
        if not allowed:
            plan.give_up()
            self._source.accept_all(() if held is None else held.tokens[-1:])
            return held
        text += fixed
        is_first = self._heal_prompt and not self._n_tokens
        result = self._binding.fill(
            stream,
            {
                "before": fixed,
                "choices": [*map(_SCORED, map(choice.labels.__getitem__, allowed))],
                "best": True,
                **({"heal": True} if is_first else {"take_back": n_beyond}),
                **self._sampling,
            },
        )
        label = choice.labels[allowed[result.choice]]
        plan.choose(allowed[result.choice])
        tokens = result.answer_tokens[self._n_tokens + len(earlier) :]
        if is_first:  # a healed first token also spells the end of the prompt
            assert isinstance(self._masks, GuidanceMasks)
            self._source.accept_all(self._masks.tokens_of(text + label.scored))
        else:
            self._source.accept_all(tokens)
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

    def _after_label(self, stream: Any, plan: PlanReader) -> ChoiceStep | None:
        """Write the fixed text after a label, because the masks may allow a longer label instead.

        Punctuation at the end is left to the masks: it may share a token with a free value.
        """
        self._follows_label = False
        fixed = plan.fixed.decode()
        if not self._source.allowed(fixed, ("",)):
            plan.give_up()
            return None
        text = _UP_TO_WORD.match(fixed)
        written = text.group() if text is not None else fixed[0]
        step = self._fixed(stream, written)
        plan.push(written.encode())
        self._source.accept_all(step.tokens)
        return step

    def _rest(self, stream: Any, plan: PlanReader) -> StreamStep | None:
        """Write the fixed text at the end of the answer."""
        fixed = plan.fixed.decode()
        if fixed and not self._source.allowed(fixed, ("",)):
            plan.give_up()
            return None
        self.has_ended = True
        return replace(self._fixed(stream, fixed), done=True) if fixed else StreamStep((), "", True)

    def _fixed(self, stream: Any, text: str) -> ChoiceStep:
        """Write fixed text."""
        result = self._binding.fill(stream, {"before": text, "take_back": 0})
        return ChoiceStep(result.answer_tokens[self._n_tokens :], text, False)

    def _cut(self, step: StreamStep) -> StreamStep:
        """Return a step without the tokens after the limit."""
        self.has_ended, self.is_cut = False, True
        tokens = step.tokens[: self._max_tokens - self._n_tokens]
        text = b"".join(self._texts[token] for token in tokens).decode("utf-8", "ignore")
        return replace(step, tokens=tokens, text=text, done=True)

    # ---- masks -------------------------------------------------------------------------------

    def _restrict(self, stream: Any) -> StreamStep | None:
        """Restrict the next tokens to those that the masks allow; return the end of the text."""
        self._follows_label = False
        source = self._source
        self.has_ended = bool(source.has_ended)
        if self.has_ended:
            return StreamStep((), "", True)
        room = self._max_tokens - self._n_tokens if self._max_tokens else None
        forced = source.forced()[:room]
        if forced:
            if self._plan is not None:
                texts = map(self._texts.__getitem__, forced)
                forced = forced[: self._plan.push(*texts, past_choices=self._has_bias)]
            self._binding.set_forced_tokens(stream, forced)
            self._n_forced = len(forced)
            return None
        if self._mask_seconds <= QUICK_MASK:
            begin = perf_counter()
            mask = source.mask()
            self._mask_seconds = perf_counter() - begin
        else:
            mask = self._mask_during_the_pass(stream, source)
        if not mask.any():
            raise InvalidArgumentError("the mask allows no token")
        self._binding.set_token_mask(stream, mask)
        return None

    def _mask_during_the_pass(self, stream: Any, source: MaskSource) -> NDArray[np.uint32]:
        """Compute a mask on a thread while the model computes."""

        def compute() -> NDArray[np.uint32]:
            begin = perf_counter()
            mask = source.mask()
            self._mask_seconds = perf_counter() - begin
            return mask

        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="eliza-ffi-mask")
        computing = self._thread.submit(compute)
        try:
            self._binding.decode(stream)
        finally:
            computing.exception()  # wait: the thread must not use the source any more
        return computing.result()

    def _crosses(self, step: StreamStep, plan: PlanReader) -> bool:
        """Return whether a step's last token ends inside the text of the next choice.

        Such a token is held back: the choice replaces the part of it that belongs to the choice.
        """
        if self._has_bias or not plan.beyond or not step.tokens:
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
