"""`python -m bench.eliza_1`: tasks, what an answer is worth, and the program."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.eliza_1.__main__ import main
from bench.eliza_1.answers import TimedAnswer, answer, prompt_of
from bench.eliza_1.plot import draw
from bench.eliza_1.report import AnswerRates, judge, summarize, table
from bench.parts.modes import MODES
from eliza_ffi.cli.demo_cases import TASKS, cases_of, same_parameters
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model


def said(text: str) -> TimedAnswer:
    return TimedAnswer(text, 4, 2, 0.5)


# ---- the tasks -------------------------------------------------------------------------------


def test_an_answer_may_have_another_order_and_white_space_but_not_other_types() -> None:
    case = next(
        case for case in cases_of("planner") if case.id == "delete-file-with-confirmation-flag"
    )
    right = '\n{"parameters": {"confirm": true, "path": "FOO.tmp "}, "action": "DELETE_FILE"}'
    row = judge(case, "unguided", said(right))
    assert (row.parsed, row.of_schema, row.right_name, row.right) == (True, True, True, True)
    for text, expected in {
        '{"action":"DELETE_FILE","parameters":{"path":"foo.tmp"}}': (True, True, True, False),
        '{"action":"REPLY","parameters":{"text":"x"}}': (True, True, False, False),
        '{"action":"DELETE_FILE","parameters":{"path":3}}': (True, False, False, False),
        '{"action":"DELETE_FILE"': (False, False, False, False),
        "": (False, False, False, False),
    }.items():
        row = judge(case, "unguided", said(text))
        assert (row.parsed, row.of_schema, row.right_name, row.right) == expected


def test_whether_to_respond_is_judged() -> None:
    case = next(
        case for case in cases_of("should_respond") if case.expected["shouldRespond"] == "STOP"
    )
    assert judge(case, "m", said('{"shouldRespond":"STOP"}')).right
    assert not judge(case, "m", said('{"shouldRespond":"IGNORE"}')).right
    assert not judge(case, "m", said('{"shouldRespond":"MAYBE"}')).of_schema
    assert not judge(case, "m", said('"STOP"')).of_schema


def test_expected_parameters_must_be_given_and_more_may_be() -> None:
    assert same_parameters({}, {"a": 1})
    assert same_parameters({"a": "<<any>>"}, {"a": ""})
    assert same_parameters({"a": "Bob"}, {"a": " bob", "b": 1})
    assert not same_parameters({"a": "<<any>>"}, {})
    assert not same_parameters({"a": 5}, {"a": "5"})
    assert not same_parameters({"a": True}, {"a": 1})


def test_rates_count_all_answers() -> None:
    case = next(iter(cases_of("should_respond")))
    texts = ['{"shouldRespond":"RESPOND"}', '{"shouldRespond":"STOP"}', "{}", "x"]
    summary = summarize(judge(case, "guided", said(text)) for text in texts)
    rates = (summary.parse_rate, summary.schema_rate, summary.name_rate, summary.label_rate)
    assert rates == (0.75, 0.5, 0.25, 0.25)
    assert (summary.ms_p50, summary.tokens_per_second, summary.cases) == (500.0, 8.0, 4)
    line = table([summary]).splitlines()[-1]
    assert line.split(" | ")[1:7] == ["guided", "4", "75%", "50%", "25%", "25%"]


# ---- the modes -------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
def test_guided_answers_are_of_the_skeleton(tiny_model: Model, task: str) -> None:
    for case in list(cases_of(task))[:3]:
        prompt = prompt_of(tiny_model, case, chat=False)
        made = {mode: answer(tiny_model, case, prompt, mode, 60) for mode in MODES}
        assert case.skeleton.matches(made["strict-trie-ffi"].text)
        # Greedy, both orders of the grammar come to the same tokens.
        assert made["guided"].text == made["strict-guided"].text
        assert made["guided"].tokens == 60 or case.skeleton.matches(made["guided"].text)
        if made["strict-trie-ffi"].text == made["strict-guided"].text:
            assert made["strict-trie-ffi"].forward_passes < made["strict-guided"].forward_passes


@pytest.mark.parametrize("vocabulary", ["llama-spm", "llama-bpe"])
def test_every_filled_answer_is_of_its_schema_whatever_the_model(
    library: Library, random_model_path: Callable[..., Path], vocabulary: str
) -> None:
    path = random_model_path(vocabulary, n_embd=64, n_layers=2, seed=1)
    with Model(path, library=library, n_ctx=2048, n_threads=1) as model:
        for task in TASKS:
            for case in cases_of(task):
                prompt = prompt_of(model, case, chat=False)
                made = answer(model, case, prompt, "strict-trie-ffi", 6)
                row = judge(case, "strict-trie-ffi", made)
                assert row.of_schema
                assert case.skeleton.matches(made.text)


# ---- the command -----------------------------------------------------------------------------


def test_the_command_prints_a_table_and_writes_all_answers(
    library: Library, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "eval.json"
    options = ["--library", str(library.path), "--threads", "1", "--output", str(output)]
    assert main(["--task", "all", "--mode", "all", "--limit", "1", *options]) == 0
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[:2] for row in rows] == [[t, m] for t in TASKS for m in MODES]
    report = json.loads(output.read_text())
    assert len(report["rows"]) == len(report["summaries"]) == len(TASKS) * len(MODES)
    assert all(
        row["of_schema"] and row["parsed"]
        for row in report["rows"]
        if row["mode"] == "strict-trie-ffi"
    )


def test_a_chat_model_is_asked_in_its_template(
    library: Library, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("jinja2")
    options = ["--mode", "strict-trie-ffi", "--library", str(library.path), "--chat"]
    assert main(["--task", "planner", "--limit", "1", *options]) == 0
    assert "100%" in capsys.readouterr().out


def test_the_plot_is_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    numbers: dict[str, Any] = dict.fromkeys(
        ("cases", "parse_rate", "schema_rate", "name_rate", "label_rate", "ms_p50"), 1
    ) | {"ms_p95": 2.0, "tokens_per_second": 3.0, "tokens": 4.0, "forward_passes": 5.0}
    summaries = [AnswerRates(task, mode, **numbers) for task in TASKS for mode in MODES]
    draw(summaries, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
