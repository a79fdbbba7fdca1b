"""`python -m bench.model` and `python -m bench.streams`, which users run with their own models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from demo_prompts import SHOULD_RESPOND_CHOICES, should_respond_prompt

from bench.model import Alternatives, Workbench, gbnf_of
from bench.model.__main__ import main, measure
from bench.parts.modes import Method
from bench.streams import OURS, StreamEffort, markdown, measure_cell
from eliza_ffi import Gbnf
from eliza_ffi._resources import default_model_path
from eliza_ffi.choices.token_tree import TokenTreeDescriptor, TokenTreeLeaf, TokenTreePayload
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

ACTIONS = ("SEND_EMAIL", "SEND_MESSAGE", "SEARCH_WEB", "CREATE_NOTE")
TRIE = Method("strict-trie-ffi")


def test_accuracy_compares_texts_with_the_grammar(tiny_model: Model) -> None:
    """The accuracy is 0 if the trie chooses another label than the grammar.

    In the second trie, the expected label is spelled in single characters. This makes the label so
    improbable that the trie chooses another one.
    """
    prompt = tiny_model.tokenize(
        should_respond_prompt("Eliza, what time is it?", "dm"), add_special=True, parse_special=True
    )
    usual = Workbench(tiny_model, Alternatives.of_texts(tiny_model, SHOULD_RESPOND_CHOICES))
    assert measure(usual, [prompt], TRIE, repeat=1).token_accuracy == 1.0

    expected = usual.answer(prompt, TRIE).text
    in_characters = tuple(token for char in expected for token in tiny_model.tokenize(char))
    assert tiny_model.detokenize(in_characters) == expected
    leaves = tuple(
        TokenTreeLeaf(text, in_characters if text == expected else tuple(tiny_model.tokenize(text)))
        for text in SHOULD_RESPOND_CHOICES
    )
    payload = TokenTreePayload("", (TokenTreeDescriptor("reply", leaves),))
    odd = Workbench(tiny_model, Alternatives(tiny_model, payload))
    assert measure(odd, [prompt], TRIE, repeat=1).token_accuracy == 0.0


def test_any_tokenization_gives_the_tokens_of_the_grammar(tiny_model: Model) -> None:
    texts = ["SEND_EMAIL", "SEND", "REPLY", "IGNORE", "é日"]
    bench = Workbench(tiny_model, Alternatives.of_texts(tiny_model, texts))
    prompts = [
        tiny_model.tokenize(text, add_special=True) for text in ("Hello", "Say: ", '{"a": "')
    ]
    any_tokens = Method("strict-trie-ffi", tokenization="any")
    assert measure(bench, prompts, any_tokens, repeat=1).token_accuracy == 1.0


@pytest.mark.parametrize(
    "text", ['say "hi"', "a\\b", "two\nlines\tand\r", "Grüße 你好 🙂", "a]b|c#d", "bell\x07"]
)
def test_every_text_can_be_written_as_gbnf(tiny_model: Model, text: str) -> None:
    out = tiny_model.generate("x", max_tokens=64, schema=Gbnf(gbnf_of([text])))
    assert out.text == text


@pytest.mark.parametrize("mode", ["strict-trie-ffi", "strict-guided"])
def test_a_trie_skips_vocabulary_and_a_grammar_does_not(
    library: Library, tmp_path: Path, mode: str
) -> None:
    labels, out = tmp_path / "labels.txt", tmp_path / "report.json"
    labels.write_text("\n".join(ACTIONS), encoding="utf-8")
    common = ["--labels-file", str(labels), "--repeat", "1", "--output", str(out)]
    assert main(["--mode", mode, "--prompt", "x", *common]) == 0
    report = json.loads(out.read_text(encoding="utf-8"))
    assert report["choices"] == len(ACTIONS)
    if mode == "strict-guided":
        assert report["skip_ratio_mean"] == 0.0
        assert report["tokens_per_second_vs_grammar"] == 1.0
    else:
        # A node of the trie has at most as many children as there are labels.
        assert 1.0 - len(ACTIONS) / report["n_vocab"] <= report["skip_ratio_mean"] < 1.0


def test_streams_are_measured_without_llama_server(library: Library) -> None:
    effort = StreamEffort(tokens=4, rounds=1, choice_rounds=1, least_choices=2)
    cell = measure_cell("trained 2k", default_model_path(), 16, effort, None)
    for part, rate in (("writing", "tokens_per_second"), ("choosing", "choices_per_second")):
        low, middle, high = cell[part][OURS][rate]
        assert 0.0 < low <= middle <= high
        assert cell[part][OURS]["times_theirs"] == (1.0, 1.0, 1.0)
    facts = json.loads((Path(__file__).parents[2] / "bench/results/streams.json").read_text())
    assert "| trained 2k | 16 |" in markdown({**facts, "cells": [cell]})
