"""The benchmark: its fields, what they are computed from, and the command."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from peer_bench.peers import Peer, VocabularyBytes, measure_peer
from peer_bench.report import markdown, put_between_markers
from peer_bench.workload import action_names
from peer_bench.workload import prompts as planner_prompts

from eliza_ffi import cli
from eliza_ffi.bench import (
    MODES,
    STRATEGIES,
    Alternatives,
    Method,
    Report,
    Workbench,
    gbnf_of,
    measure,
)
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.library import Library
from eliza_ffi.model import Model
from eliza_ffi.prompts import SHOULD_RESPOND_CHOICES, planner_prompt, should_respond_prompt
from eliza_ffi.rtkt import encode_descriptor
from eliza_ffi.token_tree import TokenTreeDescriptor, TokenTreeLeaf, TokenTreePayload

ACTIONS = ("SEND_EMAIL", "SEND_MESSAGE", "SEARCH_WEB", "CREATE_NOTE")
TRIE = Method("strict-trie-ffi")

SEED_FIELDS = {
    "mode",
    "model",
    "skip_ratio_mean",
    "skip_ratio_std",
    "tokens_per_second",
    "tokens_per_second_vs_grammar",
    "token_accuracy",
    "forward_passes_saved",
    "forward_passes_total",
}
OUR_FIELDS = {
    "decision_us_p50",
    "decision_us_p99",
    "choice_ms_p50",
    "choice_ms_p99",
    "passes_per_choice",
    "prompt_tokens_reused",
    "set_token_trie_us_cold",
    "set_token_trie_us_cached",
    "strategy",
}


def prompts(model: Model) -> list[list[int]]:
    texts = [
        planner_prompt("mail Ana that I am late", [{"name": name} for name in ACTIONS]),
        planner_prompt("find me a recipe", [{"name": name} for name in ACTIONS]),
    ]
    return [model.tokenize(text, add_special=True, parse_special=True) for text in texts]


@pytest.fixture
def bench(tiny_model: Model) -> Workbench:
    return Workbench(tiny_model, Alternatives.of_texts(tiny_model, ACTIONS))


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_reports_every_field_within_its_range(bench: Workbench, mode: str) -> None:
    report = measure(bench, prompts(bench.model), Method(mode), repeat=2, warmup=1)
    assert set(asdict(report)) >= SEED_FIELDS | OUR_FIELDS
    assert report.mode == mode
    assert report.strategy == ("auto" if mode == "strict-trie-ffi" else "none")
    assert 0.0 <= report.skip_ratio_mean <= 1.0
    assert 0.0 <= report.skip_ratio_std <= 0.5
    assert 0.0 <= report.token_accuracy <= 1.0
    assert report.tokens_per_second > 0.0
    assert report.tokens_per_second_vs_grammar > 0.0
    assert 0.0 <= report.decision_us_p50 <= report.decision_us_p99
    assert 0.0 < report.choice_ms_p50 <= report.choice_ms_p99
    assert report.passes_per_choice == report.forward_passes_total / (2 * 2)
    assert report.set_token_trie_us_cached > 0
    assert report.set_token_trie_us_cold > 0
    # All but the last token of a prompt, whose logits are asked for.
    assert report.prompt_tokens_reused == report.prompt_tokens - 1


def test_a_trie_looks_at_its_own_tokens_alone_and_a_grammar_at_all(bench: Workbench) -> None:
    trie = measure(bench, prompts(bench.model), TRIE, repeat=1, warmup=0)
    # No node of the trie has more children than there are choices.
    assert 1.0 - len(ACTIONS) / bench.n_vocab <= trie.skip_ratio_mean < 1.0
    grammar = measure(bench, prompts(bench.model), Method("strict-guided"), repeat=1, warmup=0)
    assert grammar.skip_ratio_mean == 0.0
    assert grammar.tokens_per_second_vs_grammar == 1.0
    assert grammar.token_accuracy == 1.0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_strategies_differ_in_passes_and_never_in_tokens(bench: Workbench, strategy: str) -> None:
    for prompt in prompts(bench.model):
        expected = bench.answer(prompt, Method("strict-trie-ffi", "token-by-token"))
        measured = bench.answer(prompt, Method("strict-trie-ffi", strategy))
        assert measured.tokens == expected.tokens
        assert measured.stats.passes_after_prompt <= expected.stats.passes_after_prompt
        assert expected.stats.passes_after_prompt == len(expected.tokens) - 1


@pytest.mark.parametrize("order", ["first", "last"])
def test_a_grammar_stops_at_the_answer_in_either_order(bench: Workbench, order: str) -> None:
    answers = [
        bench.answer(prompt, Method("strict-guided", grammar_order=order))
        for prompt in prompts(bench.model)
    ]
    for answer in answers:
        assert answer.text in ACTIONS
        assert answer.stats.passes_after_prompt == len(answer.tokens) - 1


def test_a_grammar_decides_between_an_answer_and_a_longer_one(tiny_model: Model) -> None:
    bench = Workbench(tiny_model, Alternatives.of_texts(tiny_model, ["A", "AB", "ABC"]))
    assert not bench.alternatives.ends_at("AB")
    assert bench.alternatives.ends_at("ABC")
    prompt = tiny_model.tokenize("x", add_special=True)
    answer = bench.answer(prompt, Method("strict-guided"), 0)
    assert answer.text in ("A", "AB", "ABC")


def test_an_unguided_run_generates_as_many_tokens_as_the_grammar(bench: Workbench) -> None:
    prompt = prompts(bench.model)[0]
    grammar = bench.answer(prompt, Method("strict-guided"))
    free = bench.answer(prompt, Method("unguided"), len(grammar.tokens))
    assert len(free.tokens) <= len(grammar.tokens)


def test_accuracy_is_the_agreement_with_the_grammar_whatever_the_tokens(
    tiny_model: Model,
) -> None:
    """A trie held to single bytes sees other logits; here it decides otherwise than the grammar."""
    prompt = tiny_model.tokenize(
        should_respond_prompt("Eliza, what time is it?", "dm"), add_special=True, parse_special=True
    )
    usual = Workbench(tiny_model, Alternatives.of_texts(tiny_model, SHOULD_RESPOND_CHOICES))
    assert measure(usual, [prompt], TRIE, repeat=1, warmup=0).token_accuracy == 1.0

    expected = usual.answer(prompt, TRIE).text
    others = [text for text in SHOULD_RESPOND_CHOICES if text != expected]
    spelled = [
        *(TokenTreeLeaf(text, tuple(tiny_model.tokenize(text))) for text in others),
        TokenTreeLeaf(expected, _in_characters(tiny_model, expected)),
    ]
    alternatives = Alternatives(
        tiny_model, TokenTreePayload("", (TokenTreeDescriptor("reply", tuple(spelled)),))
    )
    assert sorted(alternatives.texts) == sorted(SHOULD_RESPOND_CHOICES)
    odd = measure(Workbench(tiny_model, alternatives), [prompt], TRIE, repeat=1, warmup=0)
    assert odd.token_accuracy == 0.0


def _in_characters(model: Model, text: str) -> tuple[int, ...]:
    tokens = tuple(token for char in text for token in model.tokenize(char))
    assert model.detokenize(tokens) == text
    return tokens


def test_a_payload_in_either_format_gives_the_same_grammar(tiny_model: Model) -> None:
    by_text = Alternatives.of_texts(tiny_model, ACTIONS)
    by_json = Alternatives.of_payload(tiny_model, by_text.json)
    (descriptor,) = by_text.payload.descriptors
    by_tree = Alternatives.of_payload(tiny_model, encode_descriptor(descriptor))
    assert by_json.texts == by_text.texts
    assert sorted(by_tree.texts) == sorted(by_text.texts)


def test_a_payload_never_seen_before_differs_each_time(tiny_model: Model) -> None:
    alternatives = Alternatives.of_texts(tiny_model, ACTIONS)
    assert len({alternatives.unseen_json() for _ in range(3)} | {alternatives.json}) == 4


def test_a_leaf_that_spells_nothing_is_refused(tiny_model: Model) -> None:
    (end,) = tiny_model.tokenize("<|im_end|>", parse_special=True)
    leaf = TokenTreeLeaf("END", (end,))
    payload = TokenTreePayload("", (TokenTreeDescriptor("x", (leaf,)),))
    with pytest.raises(InvalidArgumentError, match="leaf 'END' spells nothing"):
        Alternatives(tiny_model, payload)


@pytest.mark.parametrize(
    "text", ['say "hi"', "a\\b", "two\nlines\tand\r", "Grüße 你好 🙂", "a]b|c#d", "bell\x07"]
)
def test_any_text_can_be_told_to_the_grammar(tiny_model: Model, text: str) -> None:
    out = tiny_model.generate("x", max_tokens=64, grammar=gbnf_of([text]))
    assert out.text == text


# ---- the command -------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "prompt.txt").write_text("Next action: \n", encoding="utf-8")
    (tmp_path / "choices.txt").write_text("\n".join(ACTIONS), encoding="utf-8")
    (tmp_path / "empty.txt").write_text("\n", encoding="utf-8")
    return tmp_path


def run(files: Path, *arguments: str) -> int:
    common = ["--prompt", str(files / "prompt.txt"), "--threads", "1", "--warmup", "0"]
    return cli.main(["bench", *common, *arguments])


def test_the_command_writes_flat_json(library: Library, files: Path) -> None:
    out = files / "report.json"
    choices = ["--choices-file", str(files / "choices.txt")]
    trie = ["--mode", "strict-trie-ffi", "--strategy", "skip-ahead"]
    assert run(files, *trie, *choices, "--repeat", "1", "--output", str(out)) == 0
    report = json.loads(out.read_text(encoding="utf-8"))
    assert set(report) == {field.name for field in fields(Report)}
    assert all(isinstance(value, str | int | float) for value in report.values())
    assert report["strategy"] == "skip-ahead"
    assert report["choices"] == len(ACTIONS)


def test_the_command_takes_a_descriptor_and_prints_without_an_output_file(
    tiny_model: Model, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    descriptor = files / "trie.json"
    descriptor.write_bytes(Alternatives.of_texts(tiny_model, ACTIONS).json)
    options = ["--mode", "strict-trie-ffi", "--token-tree-descriptor", str(descriptor)]
    assert run(files, *options, "--repeat", "1", "--grammar-order", "first") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["choices"] == len(ACTIONS)
    assert report["grammar_order"] == "first"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--mode", "unguided"], "one of the arguments --choices-file --token-tree-descriptor"),
        (["--mode", "fast", "--choices-file", "x"], "invalid choice: 'fast'"),
        (["--mode", "unguided", "--choices-file", "x", "--repeat", "0"], "--repeat must be 1"),
        (["--mode", "unguided", "--choices-file", "x", "--prompt", "empty.txt"], "is empty"),
    ],
)
def test_a_wrong_command_line_is_exit_code_2(
    files: Path,
    arguments: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(files)
    assert run(files, *arguments) == 2
    assert said in capsys.readouterr().err


def test_a_descriptor_that_is_none_is_exit_code_1(
    library: Library, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--mode", "unguided", "--token-tree-descriptor", str(files / "choices.txt")]
    assert run(files, *options) == 1
    assert "the payload is not JSON" in capsys.readouterr().err


# ---- the comparison with other libraries -------------------------------------------------------


def test_action_names_are_distinct_and_longer_lists_hold_the_shorter_ones() -> None:
    names = action_names(3000)
    assert len(set(names)) == 3000
    assert action_names(30) == names[:30]
    assert names[0] in planner_prompts(names, 1)[0]
    assert names[30] not in planner_prompts(names, 1)[0]
    with pytest.raises(ValueError, match="there are only"):
        action_names(10_000)


@pytest.mark.parametrize("vocab", [None, "llama-spm"])
def test_the_bytes_of_tokens_spell_what_the_model_spells(
    library: Library, tiny_model: Model, random_model_path: Any, vocab: str | None
) -> None:
    path = None if vocab is None else random_model_path(vocab, n_embd=64, n_layers=2, seed=1)
    with Model(path, library=library, n_threads=1) as model:
        vocabulary = VocabularyBytes(model)
        text = "SEND_EMAIL to Grüße 你好 🙂\n\tdone"
        spelled = b"".join(vocabulary.tokens[token] for token in vocabulary.tokenize(text))
        assert spelled.decode() == text


class OneTokenEngine:
    """Allows one token and records what it was asked."""

    compile_seconds = 0.5

    def __init__(self) -> None:
        self.accepted: list[int] = []

    def start(self) -> None:
        self.accepted.clear()

    def fill(self) -> None:
        pass

    def pick(self, logits: NDArray[np.float32]) -> int:
        logits[:] = -np.inf
        return 7

    def accept(self, token: int) -> None:
        self.accepted.append(token)


def test_a_peer_is_driven_along_our_answer_and_never_harms_the_logits() -> None:
    engine = OneTokenEngine()
    rows = [np.zeros(8, dtype=np.float32) for _ in range(2)]
    cost = measure_peer(engine, [((7, 3), rows)], repeat=2)
    assert engine.accepted == [7, 3]
    assert not np.any(rows)
    assert cost.same_decisions == 0.5
    assert cost.steps == 2.0
    assert cost.compile_ms == 500.0
    assert 0.0 <= cost.mask_us <= cost.step_us


def test_a_peer_that_is_not_there_says_why() -> None:
    peer = Peer.find("no-such-library", "no_such_library")
    assert peer.version is None
    assert peer.problem is not None
    assert "no_such_library" in peer.problem


def results(**methods: dict[str, Any]) -> dict[str, Any]:
    figures = {
        "choice_ms": 1.0,
        "ms_per_token": 0.5,
        "tokens": 2.0,
        "passes": 1.0,
        "select_us": 3.0,
        "setup_ms": 0.1,
        "agreement": 1.0,
    }
    strategies = ["auto", "tree", "skip-ahead", "token-by-token"]
    listed = {f"eliza-ffi {name}": figures for name in strategies}
    grammar = {f"llama.cpp grammar {order}": figures for order in ("last", "first")}
    cell = {
        "model": "m",
        "n_vocab": 32000,
        "choices": 30,
        "pass_ms": 2.0,
        "set_token_trie_us_cold": 50.0,
        "set_token_trie_us_cached": 1.0,
        "methods": {**listed, **grammar, **methods},
        "problems": {"xgrammar": "ValueError: no"},
    }
    cell["methods"]["llama.cpp grammar last"] = {**figures, "ms_per_token": 20.0}
    machine = dict.fromkeys(
        ["cpu", "cores", "threads", "system", "python", "numpy", "eliza_ffi", "llama_cpp", "date"],
        "?",
    )
    peers = [
        {"name": "xgrammar", "version": "1.0", "problem": None},
        {"name": "llguidance", "version": None, "problem": "ModuleNotFoundError: none"},
    ]
    return {"machine": machine, "peers": peers, "seconds": 1.0, "cells": [cell]}


def test_the_tables_begin_with_ratios_and_name_what_is_missing_or_failed() -> None:
    table = markdown(results())
    assert "| m | 32,000 | 30 | 40.0 | 1.00 | - | - | - |" in table
    assert "llguidance not installed" in table
    assert "- llguidance: ModuleNotFoundError: none" in table
    assert "- m, 30 choices, xgrammar: ValueError: no" in table


def test_tables_go_between_the_markers_however_often(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- bench:begin -->\nold\n<!-- bench:end -->\nz\n", encoding="utf-8")
    put_between_markers(page, "new")
    put_between_markers(page, "newer")
    text = page.read_text(encoding="utf-8")
    assert text.startswith("a\n<!-- bench:begin -->\n\nnewer\n")
    assert text.endswith("<!-- bench:end -->\nz\n")
    assert "old" not in text
    page.write_text("no markers", encoding="utf-8")
    with pytest.raises(ValueError, match="bench:begin"):
        put_between_markers(page, "new")


def test_the_page_in_the_repository_has_the_markers() -> None:
    page = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
    text = page.read_text(encoding="utf-8")
    assert 0 <= text.find("<!-- bench:begin -->") < text.find("<!-- bench:end -->")
