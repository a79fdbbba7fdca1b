"""Token masks computed by llguidance for a model's vocabulary."""

from __future__ import annotations

import json
import random
import threading
import time
from typing import Any
from unittest.mock import Mock

import llguidance
import numpy as np
import pytest
from compiled import schema_masks
from token_bytes import TokenBytes

from eliza_ffi._resources import default_model_path
from eliza_ffi.errors import NativeFaultError
from eliza_ffi.model import Model
from eliza_ffi.structured import guidance as guidance_module
from eliza_ffi.structured.guidance import Guidance

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "maxItems": 3},
        "size": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["name", "tags", "size"],
    "additionalProperties": False,
}


def allowed(mask: np.ndarray[Any, Any]) -> list[int]:
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()


def reference_matcher(model: Model, grammar: str) -> Any:
    """Return a matcher created directly with llguidance, for the vocabulary in the file."""
    vocabulary = TokenBytes.from_file(default_model_path())

    class Tokenizer:
        def __init__(self) -> None:
            self.tokens = list(vocabulary.names)
            self.special_token_ids = list(vocabulary.control)
            self.eos_token_id = vocabulary.eos
            self.bos_token_id = None

        def __call__(self, text: str) -> list[int]:
            return model.tokenize(text if isinstance(text, str) else text.decode())

    end_of_turn = vocabulary.names.index(b"<|im_end|>")
    tokenizer = llguidance.LLTokenizer(
        llguidance.TokenizerWrapper(Tokenizer()), eos_token=[vocabulary.eos, end_of_turn]
    )
    return llguidance.LLMatcher(tokenizer, grammar)


@pytest.mark.slow
@pytest.mark.parametrize("language", ["schema", "regex", "lark"])
def test_masks_and_forced_tokens_equal_llguidances_at_every_step(
    tiny_model: Model, language: str
) -> None:
    guidance, make = tiny_model.session.guidance(), llguidance.LLMatcher
    if language == "schema":
        masks = schema_masks(guidance, SCHEMA)
        grammar = make.grammar_from_json_schema(json.dumps(SCHEMA), {"whitespace_flexible": False})
    elif language == "regex":
        pattern = "(ab|a?b+c){1,9}"
        masks, grammar = guidance.regex(pattern), make.grammar_from_regex(pattern)
    else:
        text = 'start: "answer: " (/[a-z]{1,9}/ | list)\nlist: "[" /[0-9]/ ("," /[0-9]/)* "]"'
        masks, grammar = guidance.lark(text), make.grammar_from_lark(text)
    dice, n_steps, n_forced = random.Random(5), 0, 0
    for _ in range(30):
        source, other = masks.start(), reference_matcher(tiny_model, grammar)
        while not source.has_ended and n_steps < 5000:
            assert source.forced() == other.compute_ff_tokens()
            n_forced += len(source.forced())
            mask = source.mask()
            assert mask.tobytes() == other.compute_bitmask()[: mask.nbytes]
            assert source.may_end == other.is_accepting()
            token = dice.choice(allowed(mask))
            source.accept(token)
            assert other.consume_token(token)
            n_steps += 1
        assert other.is_stopped()
    assert n_steps > 100
    assert n_forced > 0 or language == "regex"


def test_mask_sources_of_the_same_masks_are_independent(tiny_model: Model) -> None:
    masks = tiny_model.session.guidance().regex("ab|cd")
    first, second = masks.start(), masks.start()
    (a,) = tiny_model.tokenize("a")
    (c,) = tiny_model.tokenize("c")
    first.accept(a)
    assert c in allowed(second.mask())
    assert c not in allowed(first.mask())


def test_regex_classes_contain_only_ascii_characters(tiny_model: Model) -> None:
    texts = tiny_model.vocabulary().texts
    source = tiny_model.session.guidance().regex(r"\d/\w").start()
    assert {texts[token] for token in allowed(source.mask())} <= {b"%d" % i for i in range(10)}
    for char in "4/x":
        (token,) = tiny_model.tokenize(char)
        source.accept(token)
    assert source.may_end


def test_a_token_that_is_not_allowed_is_an_error(tiny_model: Model) -> None:
    source = tiny_model.session.guidance().regex("a").start()
    (b,) = tiny_model.tokenize("b")
    with pytest.raises(NativeFaultError, match="llguidance"):
        source.accept(b)


def test_compiled_constraints_are_cached(tiny_model: Model) -> None:
    guidance = tiny_model.session.guidance()
    assert schema_masks(guidance, SCHEMA) is schema_masks(guidance, dict(SCHEMA))
    assert guidance.regex("x+") is not guidance.lark('start: "x"')


def test_the_memory_of_cached_constraints_is_bounded(
    tiny_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache drops constraints that took long to compile, because they take much memory."""
    guidance = tiny_model.session.guidance()
    first = guidance.regex("a{50}{1000}")
    assert guidance.regex("a{50}{1000}") is first
    monkeypatch.setattr(guidance_module, "MAX_CACHED_SECONDS", 1e-6)
    newest = guidance.regex("a{51}{1000}")
    assert guidance.regex("a{51}{1000}") is newest
    assert guidance.regex("a{50}{1000}") is not first


def test_all_constraints_share_one_tokenizer(
    tiny_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapper = Mock(wraps=llguidance.TokenizerWrapper)
    monkeypatch.setattr(llguidance, "TokenizerWrapper", wrapper)
    guidance = Guidance(tiny_model.vocabulary)
    schema_masks(guidance, SCHEMA)
    guidance.regex("a+")
    guidance.lark('start: "a"')
    wrapper.assert_called_once()


def test_other_threads_run_while_a_mask_is_computed(tiny_model: Model) -> None:
    """Each mask inside a JSON string takes long, because it examines the whole vocabulary."""
    source = schema_masks(tiny_model.session.guidance(), {"type": "string"}).start()
    source.accept(tiny_model.tokenize('"')[0])
    stop, counted = threading.Event(), [0]

    def count() -> None:
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        for _ in range(200):
            source.mask()
    finally:
        stop.set()
        thread.join()
    assert counted[0] > 0
