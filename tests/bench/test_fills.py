"""`bench.fills`: rounds of structured answers with workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from bench.fills import __main__ as fills
from bench.fills.processes import Answered, Version, worker
from bench.fills.samples import SAMPLES
from bench.parts.workload import MODELS
from eliza_ffi.library.loading import Library

pytestmark = pytest.mark.slow


def test_a_worker_answers_several_schemas_at_once(library: Library) -> None:
    schemas = [SAMPLES["route"], SAMPLES["verdict"]]
    with worker(Version(library=library.path), MODELS[0].path(), 1024, 2) as one:
        for way in ("fill", "masks"):
            answered = one.fill(way, ["a", "b"], schemas)
            assert answered.seconds > 0 and answered.tokens > 20 and answered.passes
        with pytest.raises(RuntimeError, match="InvalidArgumentError"):
            one.fill("fill", ["a"], [{"type": "strin"}])
        assert one.fill("fill", ["a"], schemas[:1]).tokens > 0  # it continues after an error


def test_a_failed_method_is_left_out_of_all_rounds() -> None:
    def answering(seconds: float) -> fills.Way:
        return lambda prompts, schemas: Answered(seconds * len(prompts), 3, 2)

    def failing(prompts: Sequence[str], schemas: Sequence[Any]) -> Answered:
        raise RuntimeError("not today")

    ways = {"one": answering(1.0), "other": failing}
    found, problems = fills.rounds_of(ways, [{}, {}, {}], n_rounds=2, at_once=2)
    assert problems == {"other": "not today"}
    assert found == {"one": [Answered(3.0, 6, 4)] * 2}  # three schemas in two batches
