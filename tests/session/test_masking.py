"""Generating under token masks: the tokens, the forward passes and the finish reasons."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from eliza_ffi import CacheOptions
from eliza_ffi.elizaos import FfiStreamingGenerateArgs
from eliza_ffi.errors import (
    GenerationCancelledError,
    InvalidArgumentError,
    NativeFaultError,
)
from eliza_ffi.model import Model
from eliza_ffi.session.generation import Generation
from eliza_ffi.session.requests import Request
from eliza_ffi.session.run import Run

N_VOCAB = 2048
SLOT = CacheOptions(slot=0)


@dataclass
class Script:
    """Masks from a list of token sets, one per step; a set of one token is forced."""

    legal: Sequence[Sequence[int]]
    forces: bool = True
    threads: set[int] = field(default_factory=set)
    accepted: list[int] = field(default_factory=list)
    on_mask: Any = None

    n_words = N_VOCAB // 32

    def start(self) -> Script:
        self.accepted = []
        return self

    @property
    def has_ended(self) -> bool:
        return len(self.accepted) == len(self.legal)

    def forced(self) -> list[int]:
        run: list[int] = []
        for tokens in self.legal[len(self.accepted) :]:
            if len(tokens) > 1 or not self.forces:
                break
            run += tokens
        return run

    def mask(self) -> NDArray[np.uint32]:
        self.threads.add(threading.get_ident())
        if self.on_mask is not None:
            self.on_mask()
        mask = np.zeros(self.n_words, np.uint32)
        for token in self.legal[len(self.accepted)]:
            mask[token // 32] |= np.uint32(1 << token % 32)
        return mask

    def accept(self, token: int) -> None:
        self.accepted.append(token)


def test_masks_limit_the_tokens_and_forced_tokens_need_no_pass(tiny_model: Model) -> None:
    forced = [[token] for token in tiny_model.tokenize("yes and no and maybe")]
    masks = Script([[100, 101], *forced, [100, 101]])
    result = tiny_model.generate("Hello", schema=masks, max_tokens=0)
    assert list(result.tokens) == masks.accepted
    assert result.text.find("yes and no and maybe") > 0
    assert result.finish_reason == "end"
    assert result.stats is not None
    assert result.stats.tokens_forced == len(forced)
    assert result.stats.decisions == 2
    # The prompt's pass decides the first token. One more pass decodes it and the forced tokens.
    assert result.stats.passes_after_prompt == 1


def test_reporting_forced_tokens_does_not_change_the_result(tiny_model: Model) -> None:
    legal = [[5, 6, 7], [40], [41], [5, 6], [42], [60, 61, 62]]
    forcing = tiny_model.generate("Hello", schema=Script(legal), temperature=0.0)
    masked = tiny_model.generate("Hello", schema=Script(legal, forces=False), temperature=0.0)
    assert forcing.tokens == masked.tokens


def test_greedy_takes_the_most_probable_allowed_token(tiny_model: Model) -> None:
    plain = tiny_model.generate("Hello", 1, logprobs=1000)
    assert plain.logprobs is not None
    ranked = [each.token for each in plain.logprobs[0].top]
    for allowed in (ranked[3:9], ranked[500:510], ranked[:1] + ranked[-5:]):
        result = tiny_model.generate("Hello", schema=Script([sorted(allowed)]))
        assert result.tokens == (allowed[0],)


def test_slow_masks_are_computed_on_another_thread_during_the_pass(tiny_model: Model) -> None:
    masks = Script([[5, 6]] * 4, on_mask=lambda: time.sleep(0.002))
    tiny_model.generate("Hello", schema=masks)
    # The first mask is computed on this thread, because its duration is not known yet.
    assert len(masks.threads) == 2
    assert threading.get_ident() in masks.threads
    assert not [each for each in threading.enumerate() if "eliza-ffi-mask" in each.name]


def test_max_tokens_and_stop_strings_end_masked_text(tiny_model: Model) -> None:
    letters = [tiny_model.tokenize(letter)[0] for letter in "abcd"]
    cut = tiny_model.generate("Hello", 2, schema=Script([[letter] for letter in letters]))
    assert (cut.text, cut.finish_reason) == ("ab", "length")
    whole = tiny_model.generate("Hello", 4, schema=Script([[letter] for letter in letters]))
    assert (whole.text, whole.finish_reason) == ("abcd", "end")
    stopped = tiny_model.generate(
        "Hello", schema=Script([[letter] for letter in letters]), stop="c"
    )
    assert (stopped.text, stopped.finish_reason) == ("ab", "stop")
    pieces = list(tiny_model.stream("Hello", schema=Script([[letter] for letter in letters])))
    assert "".join(pieces) == "abcd"


def test_an_error_in_a_mask_is_raised_and_frees_the_slot(tiny_model: Model) -> None:
    def fail() -> None:
        raise NativeFaultError("no mask today")

    with pytest.raises(NativeFaultError, match="no mask today"):
        tiny_model.generate("Hello", schema=Script([[5, 6]], on_mask=fail), cache=SLOT)
    with pytest.raises(InvalidArgumentError, match="allows no token"):
        tiny_model.generate("Hello", schema=Script([[]]), cache=SLOT)
    assert tiny_model.generate("Hello", schema=Script([[5, 6]]), cache=SLOT).tokens


def test_a_cancel_during_a_mask_ends_the_generation(tiny_model: Model) -> None:
    session = tiny_model.session
    run: Run[Any]

    def cancel() -> None:
        run.cancel()

    args = FfiStreamingGenerateArgs(prompt_tokens=[5], masks=Script([[5, 6]] * 9, on_mask=cancel))
    run = Run(session, lambda run: Generation(run, args.to_request()).steps())
    with pytest.raises(GenerationCancelledError):
        list(run.steps())


def test_masks_and_a_grammar_are_rejected_together() -> None:
    masks = Script([[5, 6]])
    with pytest.raises(InvalidArgumentError, match="pass either token masks or a grammar"):
        Request(constraint=masks, gbnf_grammar='root ::= "a"')
