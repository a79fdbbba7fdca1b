"""`bench.model`: the figures of choices and of many streams."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.model import CHOICES, Alternatives, Workbench, gbnf_of, measure
from bench.model.__main__ import main
from bench.model.streams import RandomPrompts
from bench.model.together import OurStreams, choose_together, write_together
from bench.parts.modes import STRATEGIES, Method
from eliza_ffi import Gbnf
from eliza_ffi.choices.token_tree import TokenTreeDescriptor, TokenTreeLeaf, TokenTreePayload
from eliza_ffi.cli.demo_prompts import SHOULD_RESPOND_CHOICES, planner_prompt, should_respond_prompt
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

ACTIONS = ("SEND_EMAIL", "SEND_MESSAGE", "SEARCH_WEB", "CREATE_NOTE")
TRIE = Method("strict-trie-ffi")


def prompts(model: Model) -> list[list[int]]:
    actions = [{"name": name} for name in ACTIONS]
    texts = [
        planner_prompt(message, actions)
        for message in ("mail Ana that I am late", "find me a recipe")
    ]
    return [model.tokenize(text, add_special=True, parse_special=True) for text in texts]


@pytest.fixture
def bench(tiny_model: Model) -> Workbench:
    return Workbench(tiny_model, Alternatives.of_texts(tiny_model, ACTIONS))


def test_a_trie_skips_vocabulary_and_a_grammar_does_not(bench: Workbench) -> None:
    trie = measure(bench, prompts(bench.model), TRIE, repeat=1, warmup=0)
    # A node of the trie has at most as many children as there are labels.
    assert 1.0 - len(ACTIONS) / bench.n_vocab <= trie.skip_ratio_mean < 1.0
    grammar = measure(bench, prompts(bench.model), Method("strict-guided"), repeat=1, warmup=0)
    assert grammar.skip_ratio_mean == 0.0
    assert grammar.tokens_per_second_vs_grammar == 1.0
    assert grammar.token_accuracy == 1.0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_strategies_change_passes_but_not_tokens(bench: Workbench, strategy: str) -> None:
    for prompt in prompts(bench.model):
        expected = bench.answer(prompt, Method("strict-trie-ffi", "token-by-token"))
        measured = bench.answer(prompt, Method("strict-trie-ffi", strategy))
        assert measured.tokens == expected.tokens
        assert measured.stats.passes_after_prompt <= expected.stats.passes_after_prompt
        assert expected.stats.passes_after_prompt == len(expected.tokens) - 1


@pytest.mark.parametrize("order", ["first", "last"])
def test_a_grammar_stops_at_the_end_of_the_label(bench: Workbench, order: str) -> None:
    for prompt in prompts(bench.model):
        answer = bench.answer(prompt, Method("strict-guided", grammar_order=order))
        assert answer.text in ACTIONS
        assert answer.stats.passes_after_prompt == len(answer.tokens) - 1


def test_accuracy_compares_texts_with_the_grammar(tiny_model: Model) -> None:
    """The accuracy is 0 if the trie chooses another label than the grammar.

    In the second trie, the expected label is spelled in single characters. This makes the label so
    improbable that the trie chooses another one.
    """
    prompt = tiny_model.tokenize(
        should_respond_prompt("Eliza, what time is it?", "dm"), add_special=True, parse_special=True
    )
    usual = Workbench(tiny_model, Alternatives.of_texts(tiny_model, SHOULD_RESPOND_CHOICES))
    assert measure(usual, [prompt], TRIE, repeat=1, warmup=0).token_accuracy == 1.0

    expected = usual.answer(prompt, TRIE).text
    in_characters = tuple(token for char in expected for token in tiny_model.tokenize(char))
    assert tiny_model.detokenize(in_characters) == expected
    leaves = tuple(
        TokenTreeLeaf(text, in_characters if text == expected else tuple(tiny_model.tokenize(text)))
        for text in SHOULD_RESPOND_CHOICES
    )
    payload = TokenTreePayload("", (TokenTreeDescriptor("reply", leaves),))
    odd = Workbench(tiny_model, Alternatives(tiny_model, payload))
    assert measure(odd, [prompt], TRIE, repeat=1, warmup=0).token_accuracy == 0.0


def test_any_tokenization_gives_the_tokens_of_the_grammar(tiny_model: Model) -> None:
    texts = ["SEND_EMAIL", "SEND", "REPLY", "IGNORE", "é日"]
    bench = Workbench(tiny_model, Alternatives.of_texts(tiny_model, texts))
    prompts = [
        tiny_model.tokenize(text, add_special=True) for text in ("Hello", "Say: ", '{"a": "')
    ]
    any_tokens = Method("strict-trie-ffi", tokenization="any")
    report = measure(bench, prompts, any_tokens, repeat=2, warmup=0)
    assert report.token_accuracy == 1.0
    for prompt in prompts:
        grammar = bench.answer(prompt, Method("strict-guided"))
        assert bench.answer(prompt, any_tokens).tokens == grammar.tokens


@pytest.mark.parametrize(
    "text", ['say "hi"', "a\\b", "two\nlines\tand\r", "Grüße 你好 🙂", "a]b|c#d", "bell\x07"]
)
def test_every_text_can_be_written_as_gbnf(tiny_model: Model, text: str) -> None:
    out = tiny_model.generate("x", max_tokens=64, shape=Gbnf(gbnf_of([text])))
    assert out.text == text


def test_streams_generate_the_same_tokens_together_and_alone(tiny_model: Model) -> None:
    ours = OurStreams(tiny_model, CHOICES)
    prompts = RandomPrompts(tiny_model, seed=3).draw(3, 16)
    together = write_together(ours, prompts, 8)
    assert [len(tokens) for tokens in together.tokens] == [8, 8, 8]
    for prompt, tokens in zip(prompts, together.tokens, strict=True):
        assert write_together(ours, [prompt], 8).tokens == (tokens,)


def test_threads_make_one_choice_for_each_prompt(tiny_model: Model) -> None:
    ours = OurStreams(tiny_model, CHOICES)
    prompts = RandomPrompts(tiny_model, seed=4).draw(5, 16)
    chosen = choose_together(ours, prompts, 2)
    assert chosen.answers == choose_together(ours, prompts, 1).answers
    assert set(chosen.answers) <= set(CHOICES)
    assert all(0.0 < ms <= chosen.seconds * 1e3 for ms in chosen.choice_ms)


def test_the_program_measures_choices_and_streams(library: Library, tmp_path: Path) -> None:
    labels, out = tmp_path / "labels.txt", tmp_path / "report.json"
    labels.write_text("\n".join(ACTIONS), encoding="utf-8")
    common = ["--labels-file", str(labels), "--repeat", "1", "--threads", "1"]
    for measured in (["--mode", "strict-trie-ffi", "--prompt", "x"], ["--streams", "2"]):
        assert main([*measured, *common, "--tokens", "3", "--output", str(out)]) == 0
        assert f'"choices": {len(ACTIONS)}' in out.read_text(encoding="utf-8")
