"""Answers of JSON Schemas here: by a skeleton, and under llguidance's masks."""

from __future__ import annotations

import itertools
import time
from typing import Any

from eliza_ffi.shapes import shape_of

from .answering import AnsweringSetting, Written

__all__ = ["GuidedAnswers", "SkeletonAnswers"]


class SkeletonAnswers:
    """`Model.fill` with a skeleton: its first token is known as soon as the schema is read."""

    def __init__(self, setting: AnsweringSetting) -> None:
        self._model, self._prompt = setting.model, setting.prompt

    def answer(self, schema: Any) -> Written | None:
        begin = time.perf_counter()
        skeleton = shape_of(schema).skeleton
        if skeleton is None:
            raise ValueError("no skeleton says it")
        compiled = time.perf_counter()
        result = self._model.fill(self._prompt, skeleton)
        ms = 1e3 * (time.perf_counter() - compiled)
        first = 0.0 if result.text.startswith("{") else None
        took = (1e3 * (compiled - begin), first, ms)
        return Written(result.text, len(result.tokens), result.forward_passes, *took)

    def close(self) -> None:
        pass


class GuidedAnswers:
    """`Model.generate` under llguidance's masks, which are computed beside the passes."""

    def __init__(self, setting: AnsweringSetting) -> None:
        self._setting = setting
        self._guidance = setting.model.session.guidance()
        self._guidance.json_schema({"const": 0})  # prepares the vocabulary, as the others have
        self._new = itertools.count()

    def answer(self, schema: Any) -> Written | None:
        model, prompt, clock = self._setting.model, self._setting.prompt, time.perf_counter
        anew = {**schema, "$comment": str(next(self._new))}  # none that is kept compiled
        begin = clock()
        masks = self._guidance.json_schema(anew)
        compiled = clock()
        result = model.generate(prompt, self._setting.most, masks=masks)
        end = clock()
        model.generate(prompt, 1, masks=masks)
        first = clock()
        if result.finish_reason != "end" or result.stats is None:
            return None
        took = (1e3 * (compiled - begin), 1e3 * (first - end), 1e3 * (end - compiled))
        return Written(result.text, len(result.tokens), result.stats.passes_after_prompt, *took)

    def close(self) -> None:
        pass
