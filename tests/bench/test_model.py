"""`python -m bench.model`: what its figures are computed from, and the program."""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Sequence
from dataclasses import asdict, fields
from pathlib import Path

import pytest

from bench.model import (
    CHOICES,
    Alternatives,
    Report,
    StreamsReport,
    Workbench,
    gbnf_of,
    measure,
)
from bench.model.__main__ import main
from bench.model.streams import RandomPrompts
from bench.model.together import (
    OurStreams,
    Written,
    choose_beside,
    choose_together,
    write_together,
)
from bench.parts.modes import CHOICE_MODES, STRATEGIES, Method
from eliza_ffi import Gbnf
from eliza_ffi.choices.token_tree import TokenTreeDescriptor, TokenTreeLeaf, TokenTreePayload
from eliza_ffi.cli.demo_prompts import SHOULD_RESPOND_CHOICES, planner_prompt, should_respond_prompt
from eliza_ffi.elizaos.rtkt import encode_descriptor
from eliza_ffi.errors import ElizaError, InvalidArgumentError
from eliza_ffi.library.loading import Library
from eliza_ffi.library.protocol import Tokens
from eliza_ffi.model import Model

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


@pytest.mark.parametrize("mode", CHOICE_MODES)
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


def test_answers_in_any_tokens_have_the_tokens_of_the_grammar(tiny_model: Model) -> None:
    texts = ["SEND_EMAIL", "SEND", "REPLY", "IGNORE", "é日"]
    bench = Workbench(tiny_model, Alternatives.of_texts(tiny_model, texts))
    prompts = [
        tiny_model.tokenize(text, add_special=True) for text in ("Hello", "Say: ", '{"a": "')
    ]
    any_tokens = Method("strict-trie-ffi", tokenization="any")
    report = measure(bench, prompts, any_tokens, repeat=2, warmup=0)
    assert report.token_accuracy == 1.0
    assert report.tokenization == "any"
    for prompt in prompts:
        grammar = bench.answer(prompt, Method("strict-guided"))
        assert bench.answer(prompt, any_tokens).tokens == grammar.tokens


def test_a_payload_in_either_format_gives_the_same_grammar(tiny_model: Model) -> None:
    by_text = Alternatives.of_texts(tiny_model, ACTIONS)
    by_json = Alternatives.of_payload(tiny_model, by_text.json)
    (descriptor,) = by_text.payload.descriptors
    by_tree = Alternatives.of_payload(tiny_model, encode_descriptor(descriptor))
    assert by_json.texts == by_text.texts
    assert sorted(by_tree.texts) == sorted(by_text.texts)


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
    out = tiny_model.generate("x", max_tokens=64, shape=Gbnf(gbnf_of([text])))
    assert out.text == text


# ---- the command -------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "prompt.txt").write_text("Next action: \n", encoding="utf-8")
    (tmp_path / "choices.txt").write_text("\n".join(ACTIONS), encoding="utf-8")
    (tmp_path / "empty.txt").write_text("\n", encoding="utf-8")
    return tmp_path


def program(*arguments: str) -> int:
    """Run the program and return its exit code."""
    try:
        return main(arguments)
    except SystemExit as ended:
        return int(ended.code or 0)


def run(files: Path, *arguments: str) -> int:
    common = ["--prompt-file", str(files / "prompt.txt"), "--threads", "1", "--warmup", "0"]
    return program(*common, *arguments)


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


def test_a_descriptor_that_is_none_is_exit_code_1(
    library: Library, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--mode", "unguided", "--token-tree-descriptor", str(files / "choices.txt")]
    assert run(files, *options) == 1
    assert "the payload is not JSON" in capsys.readouterr().err


# ---- many streams ------------------------------------------------------------------------------


def test_what_streams_write_together_is_what_one_writes_alone(tiny_model: Model) -> None:
    ours = OurStreams(tiny_model, CHOICES)
    prompts = RandomPrompts(tiny_model, seed=3).draw(3, 16)
    together = write_together(ours, prompts, 8)
    assert [len(tokens) for tokens in together.tokens] == [8, 8, 8]
    for prompt, tokens in zip(prompts, together.tokens, strict=True):
        assert write_together(ours, [prompt], 8).tokens == (tokens,)


def test_every_prompt_is_chosen_after_once_by_however_many_threads(tiny_model: Model) -> None:
    ours = OurStreams(tiny_model, CHOICES)
    prompts = RandomPrompts(tiny_model, seed=4).draw(5, 16)
    chosen = choose_together(ours, prompts, 2)
    assert chosen.answers == choose_together(ours, prompts, 1).answers
    assert set(chosen.answers) <= set(CHOICES)
    assert all(0.0 < ms <= chosen.seconds * 1e3 for ms in chosen.choice_ms)


def test_random_prompts_are_repeatable_and_begin_with_what_is_shared(tiny_model: Model) -> None:
    (prefix,) = RandomPrompts(tiny_model, seed=1).draw(1, 20)
    drawn = RandomPrompts(tiny_model, seed=2).draw(2, 10, prefix)
    assert drawn == RandomPrompts(tiny_model, seed=2).draw(2, 10, prefix)
    assert drawn[0] != drawn[1]
    assert all(prompt[:20] == prefix and len(prompt) == 30 for prompt in drawn)


class EndingStreams:
    """Writes at given moments, and fails where there is none left."""

    def __init__(self, *pauses: float) -> None:
        self._pauses = pauses

    def write(self, prompt: Tokens, n_tokens: int) -> Generator[Sequence[int], None, None]:
        for pause in self._pauses[:n_tokens]:
            time.sleep(pause)
            yield [1]
        if len(self._pauses) < n_tokens:
            raise ElizaError("nothing left to write")

    def choose(self, prompt: Tokens) -> str:
        return "A"


def test_a_stream_that_fails_ends_what_is_measured_and_says_why() -> None:
    with pytest.raises(ElizaError, match="nothing left"):
        write_together(EndingStreams(0.0), [[1], [1]], 2)
    with pytest.raises(ElizaError, match="nothing left"):
        choose_beside(EndingStreams(), [[1]], [[1], [1]], 2)


def test_tokens_are_counted_once_the_last_stream_has_begun() -> None:
    written = Written(tokens=((1, 2, 3), (4, 5, 6)), seconds=((1.0, 2.0, 3.0), (2.0, 3.0, 4.0)))
    assert written.tokens_per_second == 3 / 2.0
    assert written.tokens_per_second_with_prompts == 6 / 4.0
    assert written.token_ms == [1000.0, 1000.0, 1000.0]


def test_the_command_measures_streams_as_a_table_or_json(
    library: Library, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--streams", "2", "--tokens", "3", "--repeat", "1", "--threads", "1"]
    assert program(*command) == 0
    assert "2 together" in capsys.readouterr().out
    choices = ["--choices-file", str(files / "choices.txt")]
    assert program(*command, *choices, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report) == {field.name for field in fields(StreamsReport)}
    assert report["choices"] == len(ACTIONS)
