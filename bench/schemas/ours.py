"""Generate JSON for a schema with eliza-ffi: with `fill`, and with llguidance's masks alone."""

from __future__ import annotations

import itertools
import time
from typing import Any

from eliza_ffi.errors import FillError
from eliza_ffi.structured import shape_of

from .answering import AnsweringSetting, WrittenAnswer


class _OurAnswers:
    """Generates an answer for a schema, and treats every schema as new."""

    def __init__(self, setting: AnsweringSetting) -> None:
        self._setting = setting
        self._guidance = setting.model.session.guidance()
        # Prepares the vocabulary in advance, like the other methods.
        self._guidance.json_schema({"const": 0})
        self._new = itertools.count()

    def answer(self, schema: Any) -> WrittenAnswer | None:
        return self._answer({**schema, "$comment": str(next(self._new))})  # in no cache

    def _answer(self, schema: Any) -> WrittenAnswer | None:
        raise NotImplementedError

    def close(self) -> None:
        pass


class FilledAnswers(_OurAnswers):
    """`Model.fill`, which uses a skeleton for a closed schema, and masks for other schemas."""

    def _answer(self, schema: Any) -> WrittenAnswer | None:
        setting = self._setting
        begin = time.perf_counter()
        shape = shape_of(schema)
        if shape.skeleton is None:
            shape.masks(self._guidance)
        compiled = time.perf_counter()
        try:
            result = setting.model.fill(setting.prompt, schema, max_tokens=setting.most)
        except FillError:
            return None
        ms = 1e3 * (time.perf_counter() - compiled)
        first = 0.0 if result.text.startswith("{") else None
        took = (1e3 * (compiled - begin), first, ms)
        return WrittenAnswer(result.text, len(result.tokens), result.forward_passes, *took)


class GuidedAnswers(_OurAnswers):
    """`Model.generate` with llguidance's masks, which are computed during the passes."""

    def _answer(self, schema: Any) -> WrittenAnswer | None:
        model, prompt, clock = self._setting.model, self._setting.prompt, time.perf_counter
        begin = clock()
        masks = self._guidance.json_schema(schema)
        compiled = clock()
        result = model.generate(prompt, self._setting.most, shape=masks)
        end = clock()
        model.generate(prompt, 1, shape=masks)
        first = clock()
        if result.finish_reason != "end" or result.stats is None:
            return None
        took = (1e3 * (compiled - begin), 1e3 * (first - end), 1e3 * (end - compiled))
        return WrittenAnswer(
            result.text, len(result.tokens), result.stats.passes_after_prompt, *took
        )
