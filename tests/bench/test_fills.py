"""`bench.fills`: the process that answers."""

from __future__ import annotations

import pytest

from bench.fills.processes import Version, worker
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
