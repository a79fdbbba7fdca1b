"""Filling skeletons with real models, mostly with random weights."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from automata_walks import Dfa
from demo_prompts import planner_prompt
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from skeleton_strategies import Field, actions, has_shape, shaped_skeletons
from token_bytes import TokenBytes

from bench.eliza_1.grammars import grammar_of
from eliza_ffi import Gbnf
from eliza_ffi.elizaos import ActionSkeleton, generate_args
from eliza_ffi.errors import ContextFullError, FillError
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model
from eliza_ffi.structured import Skeleton, SkeletonSpan
from eliza_ffi.structured.fill_result import FillResult

random_weights = settings(
    max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

BOOLEANS = ("true", "false")


def literal(text: str) -> dict[str, Any]:
    return {"kind": "literal", "value": text}


def an_object(**fields: dict[str, Any]) -> Skeleton:
    """Return the skeleton of an object with these spans as fields."""
    spans, opening = [], "{"
    for name, span in fields.items():
        spans += [literal(f'{opening}"{name}":'), {"key": name, **span}]
        opening = ","
    return Skeleton.from_dict({"spans": [*spans, literal("}")]})


REPLY = an_object(
    action={"kind": "enum", "enumValues": ["REPLY", "IGNORE"]}, text={"kind": "free-string"}
)


@pytest.fixture(scope="session", params=["llama-spm", "llama-bpe", "tiny"])
def vocabulary(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def any_model(
    vocabulary: str, library: Library, random_model_path: Callable[..., Path]
) -> Iterator[Model]:
    """Return a model for each kind of tokenizer."""
    path = None
    if vocabulary != "tiny":
        path = random_model_path(vocabulary, n_embd=64, n_layers=2, seed=1)
    with Model(path, library=library, n_ctx=1024, n_threads=1, seed=5) as model:
        yield model


@functools.cache
def texts_of_tokens(path: str) -> tuple[bytes, ...]:
    """Return the bytes of each token, read from the file because detokenizers may drop spaces."""
    return TokenBytes.from_file(Path(path)).texts


def spelled(model: Model, tokens: Iterable[int]) -> str:
    texts = texts_of_tokens(model.path)
    return b"".join(texts[token] for token in tokens).decode()


def tokens_inside(
    model: Model, result: FillResult[Any], first_at: int = 0
) -> list[tuple[int, ...]]:
    """Return the tokens that begin inside each span (reference implementation)."""
    texts = texts_of_tokens(model.path)
    begins = [first_at]
    for token in result.tokens:
        begins.append(begins[-1] + len(texts[token]))
    assert begins[-1] == len(result.text.encode())
    inside, end = [], 0
    for span in result.spans:
        begin = end + len(span.before.encode())
        end = begin + len(span.text.encode())
        placed = zip(result.tokens, begins, strict=False)
        inside.append(tuple(token for token, at in placed if begin <= at < end))
    return inside


# ---- any skeleton, any model -----------------------------------------------------------------


@pytest.mark.slow
@random_weights
@given(
    shaped=shaped_skeletons(),
    temperature=st.sampled_from([0.0, 1.0, 5.0]),
    max_tokens=st.integers(1, 16),
    logprobs=st.booleans(),
)
def test_every_filled_skeleton_has_its_shape(
    any_model: Model,
    shaped: tuple[tuple[Field, ...], Skeleton],
    temperature: float,
    max_tokens: int,
    logprobs: bool,
) -> None:
    fields, skeleton = shaped
    options: Any = {"temperature": temperature, "max_tokens": max_tokens, "logprobs": logprobs}
    result = any_model.fill("Answer: ", skeleton, on_limit="close", **options)
    assert has_shape(fields, result.value)
    assert skeleton.matches(result.text)
    assert spelled(any_model, result.tokens) == result.text
    assert [span.tokens for span in result.spans] == tokens_inside(any_model, result)
    assert all(not logprobs or span.logprob is not None for span in result.spans)
    assert all(span.logprob is None or span.logprob < 1e-6 for span in result.spans)


@pytest.mark.slow
@random_weights
@given(
    listed=actions(), temperature=st.sampled_from([0.0, 1.0, 5.0]), max_tokens=st.integers(1, 16)
)
def test_every_plan_is_a_valid_action_with_parameters(
    any_model: Model, listed: list[dict[str, Any]], temperature: float, max_tokens: int
) -> None:
    skeleton = ActionSkeleton(listed)
    options: Any = {"temperature": temperature, "max_tokens": max_tokens, "on_limit": "close"}
    result = any_model.fill("Answer: ", skeleton, **options)
    assert skeleton.accepts(result.value)
    assert skeleton.matches(result.text)
    assert spelled(any_model, result.tokens) == result.text


def test_fixed_text_gets_the_tokenizers_tokens(any_model: Model) -> None:
    # After a line break, no token spans the end of the prompt and the beginning of the answer.
    for value in ({"some": [1, "fixed text"], "x": None}, "Grüße, 日本"):
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        result = any_model.fill("Answer:\n", Skeleton((SkeletonSpan("literal", value=text),)))
        assert result.text == text
        prompt = any_model.tokenize("Answer:\n", add_special=True)
        assert [*prompt, *result.tokens] == any_model.tokenize("Answer:\n" + text, add_special=True)
        assert result.forward_passes == 0


def test_tokens_spell_spans_whose_spaces_llama_cpp_would_clean_up(any_model: Model) -> None:
    spaced = ["yes , it 's", "no ! They 're ?"]
    free = {"kind": "free-string", "rule": "root"}
    spans = [free, literal("\n"), free, literal(" , "), {"kind": "boolean"}]
    skeleton = Skeleton.from_dict({"spans": spans}, f'root ::= "{spaced[0]}" | "{spaced[1]}"')
    # After a line break, no token spans the end of the prompt and the beginning of the answer.
    result = any_model.fill("Answer:\n", skeleton)
    assert result.text in [f"{a}\n{b} , {c}" for a in spaced for b in spaced for c in BOOLEANS]
    assert any_model.detokenize(result.tokens) == result.text
    inside = tokens_inside(any_model, result)
    assert [span.tokens for span in result.spans] == inside
    first = result.spans[0]
    # The span's last token may include the line break.
    assert spelled(any_model, first.tokens).removesuffix("\n") == first.text


def test_a_choice_is_tokenized_together_with_the_text_around_it(any_model: Model) -> None:
    skeleton = an_object(action={"kind": "enum", "enumValues": ["REPLY", "SEND_EMAIL"]})
    result = any_model.fill("Answer:\n", skeleton)
    prompt = any_model.tokenize("Answer:\n", add_special=True)
    whole = any_model.tokenize("Answer:\n" + result.text, add_special=True)
    assert [*prompt, *result.tokens] == whole


@pytest.mark.parametrize("kind", ["free-string", "free-json", "number", "integer"])
@pytest.mark.parametrize("prompt", ['[1, 2, {"text": "', "hello world, 1.5 and ", "日本\n"])
def test_a_value_has_the_tokens_of_llama_cpps_grammar_sampler(
    any_model: Model, kind: str, prompt: str
) -> None:
    # No fixed text comes first, because under a grammar the model chooses how to tokenize it.
    skeleton = Skeleton.from_dict({"spans": [{"kind": kind}, literal("]")]})
    most = 12
    guided = any_model.generate(prompt, most, schema=Gbnf(grammar_of(skeleton)))
    filled = any_model.fill(prompt, skeleton, max_tokens=most, on_limit="close")
    assert filled.tokens[:most] == guided.tokens
    assert filled.truncated or filled.tokens == guided.tokens


class MasksOfStrings:
    """Token masks for a list of strings: the slow reference implementation of forced tokens.

    The common prefix of all strings that are still possible is forced, with the tokenizer's tokens.
    Its last token is not forced, because a longer token may begin with it.
    """

    def __init__(self, model: Model, texts: Iterable[str]) -> None:
        self.spelled = texts_of_tokens(model.path)
        self.n_words = (len(self.spelled) + 31) // 32
        self._model = model
        self._left = [text.encode() for text in texts]

    def start(self) -> MasksOfStrings:
        return self

    @property
    def has_ended(self) -> bool:
        return b"" in self._left

    def forced(self) -> list[int]:
        common = os.path.commonprefix(self._left)
        if not (text := common.decode(errors="ignore")):
            return []
        tokens = self._cut(text)
        n = len(tokens) if text.encode() in self._left else len(tokens) - 1
        while 0 < n < len(tokens) and self.spelled[tokens[n]][0] & 0xC0 == 0x80:
            n -= 1
        return tokens[:n]

    def mask(self) -> NDArray[np.uint32]:
        bits = np.zeros(self.n_words * 32, np.uint8)
        for token, text in enumerate(self.spelled):
            bits[token] = text != b"" and any(left.startswith(text) for left in self._left)
        return np.packbits(bits, bitorder="little").view(np.uint32)

    def accept(self, token: int) -> None:
        text = self.spelled[token]
        self._left = [left[len(text) :] for left in self._left if left.startswith(text)]

    def _cut(self, text: str) -> list[int]:
        for anchor in ("", "\n"):  # SentencePiece inserts a space at the beginning
            tokens = self._model.tokenize(anchor + text)
            inside = tokens[len(self._model.tokenize(anchor)) :] if anchor else tokens
            if b"".join(self.spelled[token] for token in inside) == text.encode():
                return list(inside)
        raise AssertionError(f"no tokens spell {text!r}")


SHAPES = [
    f'{{"kind":"{kind}","{size}":{n}}}'
    for kind, size in (("circle", "radius"), ("square", "side length"), ("cube", "side length"))
    for n in (1, 27, 345)
]
CAFES = ["the caf\u00e9 is open", "the caf\u00e8 is closed", "there"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "texts",
    [SHAPES, ["all of this is fixed"], CAFES],
    ids=["objects", "one text", "half a character"],
)
@pytest.mark.parametrize("prompt", ["A shape: ", "hello world, 1.5 and\n"])
def test_text_forced_by_an_automaton_gets_the_tokenizers_tokens(
    any_model: Model, texts: list[str], prompt: str
) -> None:
    binding, args = any_model.binding, generate_args(any_model, prompt)
    automaton = Dfa.of_texts([text.encode() for text in texts]).to_form()
    with closing(binding.open(any_model.session.ctx, args.config())) as stream:
        binding.prefill(stream, args.prompt_tokens)
        result = binding.fill(stream, {"dfa": automaton})
        n_passes = binding.stats(stream).passes_after_prompt
    slow = any_model.generate(prompt, schema=MasksOfStrings(any_model, texts))
    assert result.text == slow.text
    assert result.answer_tokens == tuple(slow.tokens)
    assert n_passes < len(result.answer_tokens)
    if len(texts) == 1:
        assert n_passes == 0


def test_a_healed_prompt_shares_a_token_with_the_answer(tiny_model: Model) -> None:
    prompt = '<|im_start|>assistant\n{"action":"REPLY","parameters":'
    skeleton = an_object(text={"kind": "enum", "enumValues": ["a", "b"]})
    plain = tiny_model.fill(prompt, skeleton)
    healed = tiny_model.fill(prompt, skeleton, heal_prompt=True)
    assert spelled(tiny_model, plain.tokens) == plain.text
    # The prompt's last token, '":', has become '":{"'.
    assert spelled(tiny_model, healed.tokens) == healed.text.removeprefix('{"')
    for result, first_at in ((plain, 0), (healed, len('{"'))):
        assert [span.tokens for span in result.spans] == tokens_inside(tiny_model, result, first_at)
        assert result.spans[0].tokens


@pytest.mark.parametrize("prompt", ['{"a', "Answer: hello wor", "日本\n\n", 'x = "', "[1, 2"])
def test_tokens_after_a_healed_prompt_spell_its_end_and_the_answer(
    any_model: Model, prompt: str
) -> None:
    spans = [{"kind": "free-json"}, literal("]\n"), {"kind": "boolean"}]
    skeleton = Skeleton.from_dict({"spans": spans})
    result = any_model.fill(prompt, skeleton, heal_prompt=True, max_tokens=6, on_limit="close")
    written = spelled(any_model, result.tokens)
    assert (prompt + result.text).endswith(written)
    first_at = len(result.text.encode()) - len(written.encode())
    assert [span.tokens for span in result.spans] == tokens_inside(any_model, result, first_at)


# ---- the embedded model ------------------------------------------------------------------------


def test_the_embedded_model_chooses_the_right_action(tiny_model: Model) -> None:
    listed = [
        {"name": "SEND_EMAIL", "description": "Send an email.", "parameters": [{"name": "to"}]},
        {"name": "SEARCH_WEB", "description": "Search the web.", "parameters": [{"name": "query"}]},
    ]
    prompt = planner_prompt("search the web for qwen", listed).rpartition("{")[0]
    result = tiny_model.fill(prompt, ActionSkeleton(listed), logprobs=True)
    assert result.value["action"] == "SEARCH_WEB"
    assert [span.key for span in result.spans] == ["action", "query"]
    assert result.forward_passes < len(result.tokens)
    assert result.seconds > 0.0


def test_each_filled_span_is_reported(tiny_model: Model) -> None:
    seen: list[Any] = []
    result = tiny_model.fill("hello", REPLY, on_span=seen.append)
    assert [span.key for span in seen] == ["action", "text"]
    assert tuple(seen) == result.spans


def test_a_value_matches_its_grammar_rule(tiny_model: Model) -> None:
    spans = [literal('{"n":'), {"kind": "number", "key": "n", "rule": "digits"}, literal("}")]
    skeleton = Skeleton.from_dict({"spans": spans}, "digits ::= [7-9] [7-9] [7-9]")
    assert 777 <= tiny_model.fill("x", skeleton).value["n"] <= 999


@pytest.mark.parametrize("kind", ["number", "integer", "boolean", "free-string", "free-json"])
def test_a_skeleton_can_be_a_single_value(any_model: Model, kind: str) -> None:
    skeleton = Skeleton.from_dict({"spans": [{"kind": kind}]})
    result = any_model.fill("1, 2, ", skeleton, max_tokens=12, on_limit="close")
    assert skeleton.matches(result.text)
    assert spelled(any_model, result.tokens) == result.text


# ---- bad input -------------------------------------------------------------------------------


def test_a_full_context_is_an_error_with_the_partial_answer(
    library: Library, random_model_path: Callable[..., Path]
) -> None:
    path = random_model_path("llama-spm", n_embd=64, n_layers=2, seed=1)
    with Model(path, library=library, n_ctx=256, n_slots=1, n_threads=1, seed=1) as model:
        with pytest.raises(FillError, match="'text'.*context full") as caught:
            model.fill([1, *[9] * 220], REPLY, max_tokens=0, temperature=5.0)
        partial = caught.value.partial
        assert isinstance(caught.value.__cause__, ContextFullError)
        assert partial.fields["action"] in ("REPLY", "IGNORE")
        assert partial.text.startswith('{"action":"')
        assert len(partial.text) > len('{"action":"REPLY","text":"')
        assert not partial.complete
        with pytest.raises(ContextFullError):
            model.fill([1, *[9] * 300], REPLY)
        # The model still works.
        assert model.fill("x", {"spans": [{"kind": "boolean"}]}).complete


def test_values_with_a_nul_are_escaped(any_model: Model) -> None:
    skeleton = Skeleton((SkeletonSpan("enum", enum_values=("a\0b", "a\0c")),))
    result = any_model.fill("x", skeleton)
    assert result.value in ("a\0b", "a\0c")
    assert "\\u0000" in result.text
