"""Options of requests: wrong values are rejected by name, and right values reach the library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eliza_ffi import CacheOptions, Model, Regex, Speculation
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.library import StreamConfig


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        (CacheOptions, {"slot": -2}, "slot must be a whole number of -1 or more, got -2"),
        (Speculation, {"max_tokens": 0}, "max_tokens must be a whole number from 1 to 256, got 0"),
        (Speculation, {"max_tokens": 2, "min_tokens": 3}, "must be .* from 1 to 2, got 3"),
    ],
)
def test_wrong_options_are_rejected_by_name(
    kind: type, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        kind(**settings)


def test_every_field_reaches_the_library(
    tiny_model: Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    opened: list[StreamConfig] = []
    binding = tiny_model.binding
    open_stream, decision = binding.open, binding.decision

    def recording(ctx: Any, config: StreamConfig) -> Any:
        opened.append(config)
        return open_stream(ctx, config)

    def recording_decision(config: StreamConfig, *arguments: Any, **more: Any) -> Any:
        opened.append(config)
        return decision(config, *arguments, **more)

    monkeypatch.setattr(binding, "open", recording)
    monkeypatch.setattr(binding, "decision", recording_decision)
    cache = CacheOptions(slot=3, key="room", type_k="q8_0", type_v="f16")
    file = tmp_path / "prompt.slot"
    tiny_model.generate("x", 1, cache=cache)
    list(tiny_model.stream("x", 1, cache=cache))
    tiny_model.choose("x", ["a", "b"], cache=cache)
    tiny_model.fill("x", {"spans": [{"kind": "boolean", "key": "urgent"}]}, cache=cache)
    tiny_model.fill("x", Regex("[a-c]"), cache=cache)
    tiny_model.decide("x", {"a": {"type": "predicate", "instructions": "Is it?"}}, cache=cache)
    tiny_model.save_prompt_cache(file, "x", cache=cache)
    tiny_model.load_prompt_cache(file, cache=cache)
    assert len(opened) == 8
    for config in opened:
        found = config.slot_id, config.prompt_cache_key, config.cache_type_k, config.cache_type_v
        assert found == (3, "room", "q8_0", "f16")
    tiny_model.generate("x", 1, speculation=Speculation(5, 2))
    assert (opened[-1].draft_max, opened[-1].draft_min) == (5, 2)
    tiny_model.generate("x", 1)
    assert (opened[-1].draft_max, opened[-1].slot_id) == (0, -1)
