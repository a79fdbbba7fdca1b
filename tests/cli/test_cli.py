"""Tests of the ``eliza-ffi`` command: output and exit codes."""

from __future__ import annotations

import importlib
import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT

from eliza_ffi import cli
from eliza_ffi.chat.template import ChatTemplate, template_of_model
from eliza_ffi.cli.doctor import DEPENDENCIES, EXTRAS
from eliza_ffi.cli.progress import ProgressBar
from eliza_ffi.errors import ElizaError
from eliza_ffi.library.binding import CffiBinding
from eliza_ffi.library.loading import LIBRARY_VARIABLE, Library

Run = Callable[..., int]


@pytest.fixture(scope="session")
def model_options(library: Library, random_model_path: Callable[..., Path]) -> list[str]:
    """Return the options for a small model that opens quickly."""
    path = random_model_path("llama-spm", n_embd=64, n_layers=2, seed=1)
    return [
        "--model",
        str(path),
        "--library",
        str(library.path),
        "--n-ctx",
        "2048",
        "--threads",
        "1",
    ]


@pytest.fixture
def run(model_options: list[str]) -> Run:
    return lambda *arguments: cli.main([*arguments, *model_options])


# ---- choose ------------------------------------------------------------------------------------


def test_choose_prints_only_the_label(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("choose", "--prompt", "x", "--choice", "Grüße", "--choice", "b c") == 0
    out, err = capsys.readouterr()
    assert out in ("Grüße\n", "b c\n")
    assert err == ""


def test_choose_json_has_all_facts(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    choices = ["--choice", "A", "--choice", "B"]
    assert run("choose", "--prompt", "x", *choices, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert set(facts) == {
        "value",
        "index",
        "logprob",
        "probability",
        "tokens",
        "forward_passes",
        "elapsed_ms",
        "model",
    }
    assert facts["value"] == ["A", "B"][facts["index"]]
    assert 0.0 < facts["probability"] <= 1.0


PROBABILITIES = [
    *("choose", "--prompt", "x", "--probabilities"),
    *("--choice", "Grüße", "--choice", "b c", "--choice", "b d", "--choice", "A"),
]


def ranking_of(out: str) -> list[tuple[str, float, str]]:
    """Return each line's mark, probability in per cent, and label."""
    lines = [re.fullmatch(r"([* ]) +([0-9.]+)%  (.+)", line) for line in out.splitlines()]
    return [(line[1], float(line[2]), line[3]) for line in lines if line is not None]


@pytest.mark.parametrize("mode", ["greedy", "sample", "best"])
def test_probabilities_are_sorted_and_the_chosen_label_is_marked(
    run: Run, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    sampling = ["--mode", mode, *(["--temperature", "9", "--seed", "3"] * (mode == "sample"))]
    assert run(*PROBABILITIES, *sampling) == 0
    out = capsys.readouterr().out
    ranking = ranking_of(out)
    assert len(ranking) == len(out.splitlines()) == 4
    assert {text for _, _, text in ranking} == {"Grüße", "b c", "b d", "A"}
    percents = [percent for _, percent, _ in ranking]
    assert percents == sorted(percents, reverse=True)
    assert sum(percents) == pytest.approx(100, abs=0.03)
    assert run(*PROBABILITIES, *sampling, "--json") == 0
    chosen = json.loads(capsys.readouterr().out)["value"]
    assert [text for mark, _, text in ranking if mark == "*"] == [chosen]


def test_mode_best_chooses_the_first_label_and_sampling_may_not(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    places = set()
    for seed in range(40):
        sampling = ["--mode", "sample", "--temperature", "9", "--seed", str(seed)]
        assert run(*PROBABILITIES, *sampling) == 0
        marks = [mark for mark, _, _ in ranking_of(capsys.readouterr().out)]
        assert marks.count("*") == 1
        places.add(marks.index("*"))
        if places - {0}:
            break
    assert places - {0}
    assert run(*PROBABILITIES, "--mode", "best") == 0
    assert ranking_of(capsys.readouterr().out)[0][0] == "*"


def test_json_probabilities_cover_all_labels_and_sum_to_one(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*PROBABILITIES, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    probabilities = facts["probabilities"]
    assert list(probabilities) == ["Grüße", "b c", "b d", "A"]
    assert sum(probabilities.values()) == pytest.approx(1.0, abs=1e-6)
    assert probabilities[facts["value"]] == pytest.approx(facts["probability"], rel=1e-3)


def test_mode_best_chooses_the_most_probable_label(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*PROBABILITIES, "--mode", "best", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    probabilities = facts["probabilities"]
    assert facts["value"] == max(probabilities, key=probabilities.__getitem__)


def test_prompt_and_labels_can_come_from_files_and_standard_input(
    run: Run,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    choices = tmp_path / "choices.txt"
    choices.write_text("A\n\nB\nC\n", encoding="utf-8")
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("What now?\n", encoding="utf-8")
    answers = []
    listed = ["--choices-file", str(choices), "--json"]
    for source in (["--prompt", "What now?"], ["--prompt-file", str(prompt)], []):
        piped = io.TextIOWrapper(io.BytesIO(b"What now?\n"))
        monkeypatch.setattr(sys, "stdin", piped)
        assert run("choose", *source, *listed) == 0
        facts = json.loads(capsys.readouterr().out)
        answers.append((facts["value"], round(facts["logprob"], 3)))
    assert answers[0] == answers[1] == answers[2]


def test_sampling_with_a_seed_is_reproducible(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = set()
    for _ in range(3):
        choices = [option for name in "ABCDEF" for option in ("--choice", name)]
        sampling = ["--mode", "sample", "--temperature", "3", "--seed", "5"]
        assert run("choose", "--prompt", "x", *choices, *sampling) == 0
        outputs.add(capsys.readouterr().out)
    assert len(outputs) == 1


# ---- generate and tokenize ---------------------------------------------------------------------


def test_generate_prints_the_text_with_a_final_newline(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("generate", "--prompt", "x", "--max-tokens", "5") == 0
    out = capsys.readouterr().out
    assert out.endswith("\n")
    assert len(out) > 1


def test_generate_obeys_a_grammar_file(
    run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    grammar = tmp_path / "answer.gbnf"
    grammar.write_text('root ::= "yes" | "no"', encoding="utf-8")
    assert run("generate", "--prompt", "x", "--grammar-file", str(grammar)) == 0
    assert capsys.readouterr().out in ("yes\n", "no\n")


@pytest.fixture
def generated(run: Run, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def generate(*options: str) -> str:
        prompt = ["--prompt", "x y x y", "--max-tokens", "8", "--seed", "3"]
        assert run("generate", *prompt, *options) == 0
        return capsys.readouterr().out

    return generate


@pytest.mark.parametrize(
    "option", [("--temperature", "0"), ("--top-k", "1"), ("--top-p", "0.000001")]
)
def test_a_sampling_option_overrides_the_preset(
    generated: Callable[..., str], option: tuple[str, str]
) -> None:
    greedy = generated()
    assert generated("--preset", "creative") != greedy
    # Each option alone allows only the most probable token; the other settings are the preset's.
    assert generated("--preset", "creative", *option) == greedy


@pytest.mark.slow
def test_a_sampling_option_keeps_the_other_settings_of_the_preset(
    generated: Callable[..., str],
) -> None:
    creative = ["--temperature", "1", "--top-p", "0.9"]
    assert generated("--preset", "creative") == generated(*creative)
    for option in (["--repeat-penalty", "0.01"], ["--top-k", "3"]):
        changed = generated("--preset", "creative", *option)
        assert changed == generated(*creative, *option)
        assert changed != generated("--preset", "creative")


def test_tokenize_prints_ids_and_with_json_also_their_text(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("tokenize", "--prompt", "Hello world") == 0
    ids = [int(word) for word in capsys.readouterr().out.split()]
    assert run("tokenize", "--prompt", "Hello world", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["tokens"] == ids
    assert len(facts["pieces"]) == len(ids)
    assert run("tokenize", "--prompt", "Hello world", "--add-special") == 0
    assert len(capsys.readouterr().out.split()) == len(ids) + 1


# ---- doctor ------------------------------------------------------------------------------------


def test_doctor_reports_a_working_installation(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("doctor") == 0
    out = capsys.readouterr().out
    for expected in (
        "abi version",
        "missing symbols",
        "llama cpp",
        "commit",
        "CPU",
        "chose 1 of 2",
        "shared by 8 slots (batching: auto), up to 512 tokens each",
        "a stream waits up to 30000 ms for a slot",
        "1.0 sequences each",
    ):
        assert expected in out
    assert out.endswith("all is well\n")


def test_doctor_json_has_the_findings(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("doctor", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["problems"] == []
    assert facts["missing_symbols"] == []
    assert facts["abi_version"] == "12"
    assert facts["token_trie"] is True
    assert facts["model"]["n_vocab"] == 32000
    assert facts["passes"]["batching"] == "auto"
    assert facts["passes"]["run"] > 0


@pytest.mark.parametrize(
    ("backend", "gpu_offload", "expected"),
    [
        ("cpu", False, None),
        ("vulkan", True, None),
        ("hip", False, "no hip device found, so models run on the CPU"),
        (
            "vulkan",
            False,
            "no vulkan device found, so models run on the CPU; "
            "vulkan needs a GPU with a Vulkan driver, and libvulkan.so.1",
        ),
        (
            "cuda",
            False,
            "no cuda device found, so models run on the CPU; cuda needs an NVIDIA GPU with its "
            "driver, and cuBLAS (pip install 'eliza-ffi[cuda]')",
        ),
    ],
)
def test_doctor_says_that_a_library_for_gpus_found_no_gpu(
    run: Run,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    backend: str,
    gpu_offload: bool,
    expected: str | None,
) -> None:
    describe = CffiBinding.describe

    def described(self: CffiBinding, *arguments: Any) -> dict[str, Any]:
        facts = describe(self, *arguments)
        return {**facts, "backend": backend, "gpu_offload": gpu_offload}

    monkeypatch.setattr(CffiBinding, "describe", described)
    assert run("doctor", "--json") == 0
    assert json.loads(capsys.readouterr().out).get("gpu") == expected


def test_batching_off_opens_the_model_with_one_slot(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("doctor", "--json", "--batching", "off") == 0
    passes = json.loads(capsys.readouterr().out)["passes"]
    assert (passes["batching"], passes["n_slots"]) == ("off", 1)


def test_doctor_lists_every_extra_with_its_purpose_and_pip_command(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if name == "pyarrow":
            raise metadata.PackageNotFoundError(name)
        return "1.2"

    monkeypatch.setattr(metadata, "version", version)
    assert run("doctor") == 0
    out = capsys.readouterr().out
    assert "parquet: no (tables in Parquet): pip install 'eliza-ffi[parquet]'" in out
    assert "dev: yes (tests and checks)\n" in out
    assert run("doctor", "--json") == 0
    extras = json.loads(capsys.readouterr().out)["extras"]
    assert set(extras) == set(EXTRAS)
    assert extras["parquet"]["is_there"] is False
    assert extras["parquet"]["packages"] == {"pyarrow": None}
    assert extras["dev"]["packages"]["pytest"] == "1.2"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="TOML needs Python 3.11")
def test_doctor_knows_the_extras_and_dependencies_of_pyproject() -> None:
    tomllib = importlib.import_module("tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = project["optional-dependencies"]
    assert set(listed) <= set(EXTRAS)
    for extra, requirements in listed.items():
        names = {re.split(r"[^a-z0-9-]", requirement)[0] for requirement in requirements}
        assert set(EXTRAS[extra][1]) <= names, extra
    needed = {re.split(r"[^a-z0-9-]", requirement)[0] for requirement in project["dependencies"]}
    assert set(DEPENDENCIES) == needed


def test_doctor_reports_missing_jinja2(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert run("doctor") == 1
    out = capsys.readouterr().out
    assert "jinja2 missing" in out
    assert "jinja2 cannot be imported: pip install jinja2" in out
    assert "all is well" not in out


@pytest.mark.parametrize("broken", ["{% for %}", "{{ messages[0].nothing.at_all }}"])
def test_doctor_reports_a_chat_template_that_cannot_be_rendered(
    broken: str,
    library: Library,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = ["doctor", "--library", str(library.path), "--threads", "1"]
    assert cli.main(command) == 0
    assert "wrote 1 message as" in capsys.readouterr().out

    def broken_template(facts: dict[str, Any]) -> ChatTemplate:
        return template_of_model({**facts, "chat_template": broken})

    monkeypatch.setattr("eliza_ffi.session.session.template_of_model", broken_template)
    assert cli.main(command) == 1
    out = capsys.readouterr().out
    assert "the chat template" in out and "all is well" not in out


def test_doctor_reports_a_missing_library(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(LIBRARY_VARIABLE, str(tmp_path / "none.so"))
    assert cli.main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert re.search(f"^problem +{LIBRARY_VARIABLE}=", out, flags=re.MULTILINE)
    assert out.endswith("problems: 1\n")


def test_doctor_names_a_broken_model_file(
    library: Library, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF")
    arguments = ["doctor", "--json", "--model", str(broken), "--library", str(library.path)]
    assert cli.main(arguments) == 1
    facts = json.loads(capsys.readouterr().out)
    assert "broken.gguf" in facts["problems"][0]
    assert facts["library"] == str(library.path)


# ---- exit codes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["choose", "--prompt", "x"], "no labels: give --choice more than once"),
        (["choose", "--prompt", "x", "--choice", "a", "--choice", "a"], "repeats a label: 'a'"),
        (["choose", "--prompt", "x", "--choice", ""], "--choice number 1 is empty"),
        (["choose", "--prompt", "", "--choice", "a"], "the prompt is empty"),
        (["choose", "--prompt", "x", "--prompt-file", "y"], "not allowed with argument"),
        (["generate", "--prompt", "x", "--max-tokens", "-1"], "--max-tokens must be 0 or more"),
        (["generate", "--prompt", "x", "--n-ctx", "many"], "'many' is not a whole number"),
        (["choose", "--mode", "top"], "invalid choice: 'top'"),
        (["dance"], "invalid choice: 'dance'"),
        ([], "required: command; see eliza-ffi --help"),
        (["decide", "--output"], "--output: expected one argument; see eliza-ffi decide --help"),
        (["decide", "--inptu", "x"], "decide has no argument '--inptu': did you mean --input?"),
        (["choose", "--chioce=a"], "choose has no argument '--chioce=a': did you mean --choice?"),
        (["demo", "--xyz"], "demo has no argument '--xyz': see eliza-ffi demo --help"),
        (["demo", "more"], "demo has no argument 'more': see eliza-ffi demo --help"),
    ],
)
def test_a_wrong_command_line_exits_with_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert err.count("\n") == 1
    assert out == ""


def test_a_missing_prompt_at_a_terminal_exits_with_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert cli.main(["generate"]) == 2
    assert "no prompt: give --prompt" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--temperature", "0.5"], "--temperature requires --mode sample"),
        (["--mode", "best", "--temperature", "0.5"], "--temperature requires --mode sample"),
        (["--heal-prompt"], "--heal-prompt requires --tokenization any"),
    ],
)
def test_an_option_without_effect_exits_with_2(
    option: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["choose", "--prompt", "x", "--choice", "a", *option]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "/none/model.gguf"], "/none/model.gguf"),
        (["--library", "/none/lib.so"], "the library path given is not a file: /none/lib.so"),
    ],
)
def test_a_failure_exits_with_1_and_prints_one_line(
    model_options: list[str],
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["generate", "--prompt", "x", *model_options, *arguments]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("eliza-ffi: ")
    assert message in err
    assert err.count("\n") == 1


def test_a_missing_or_undecodable_prompt_file_exits_with_1(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert cli.main(["generate", "--prompt-file", "/none/prompt.txt"]) == 1
    assert "/none/prompt.txt" in capsys.readouterr().err
    (tmp_path / "latin.txt").write_bytes(b"Gr\xfc\xdfe")
    assert cli.main(["generate", "--prompt-file", str(tmp_path / "latin.txt")]) == 1
    assert "latin.txt is not UTF-8: byte 3 of line 1 is 0xfc" in capsys.readouterr().err


def test_an_error_of_several_lines_is_printed_as_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(arguments: object) -> int:
        raise ElizaError("first\n  second")

    monkeypatch.setattr(sys.modules["eliza_ffi.cli.main"], "run_generate", fail)
    assert cli.main(["generate", "--prompt", "x"]) == 1
    assert capsys.readouterr().err == "eliza-ffi: first second\n"


def test_an_interrupt_exits_with_130(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["eliza_ffi.cli.main"], "run_generate", interrupted)
    assert cli.main(["generate", "--prompt", "x"]) == 130
    assert capsys.readouterr().err == ""


def test_help_exits_with_0_and_lists_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    assert "130 interrupted" in capsys.readouterr().out


@pytest.fixture
def endless(model_options: list[str], tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a generation with a grammar that never ends, and wait for the first character."""
    grammar = tmp_path / "endless.gbnf"
    grammar.write_text("root ::= [a-z] root", encoding="utf-8")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "eliza_ffi", "generate", "--prompt", "x"),
            *("--max-tokens", "0", "--grammar-file", str(grammar)),
            *(*model_options, "--n-ctx", "65536"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    assert process.stdout.read(1)
    yield process
    process.kill()
    process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


@pytest.mark.slow
def test_control_c_stops_a_running_generation(endless: subprocess.Popen[str]) -> None:
    endless.send_signal(signal.SIGINT)
    _, err = endless.communicate(timeout=60)
    assert endless.returncode == 130
    assert err == ""


@pytest.mark.slow
def test_closing_the_output_pipe_prints_no_traceback(endless: subprocess.Popen[str]) -> None:
    assert endless.stdout is not None
    assert endless.stderr is not None
    endless.stdout.close()
    assert endless.stderr.read() == ""
    assert endless.wait(60) == 1


# ---- the progress bar --------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_progress_bar_appears_after_a_delay_and_is_erased(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    bar = ProgressBar()
    bar("load", 0.1)
    assert terminal.getvalue() == ""
    now = 1.0
    bar("load", 0.5)
    assert terminal.getvalue().startswith("\rloading the model  50%")
    bar("load", 1.0)
    drawn, erased, end = terminal.getvalue().split("\r")[1:]
    assert (erased, end) == (" " * len(drawn), "")
    shown = terminal.getvalue()
    bar("prefill", 0.5)
    bar("prefill", 1.0)
    bar.erase()
    assert terminal.getvalue() == shown


def test_the_progress_bar_is_not_drawn_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eliza_ffi.cli.progress.DELAY_SECONDS", 0.0)
    output = io.StringIO()
    monkeypatch.setattr("sys.stderr", output)
    ProgressBar()("load", 0.5)
    assert output.getvalue() == ""


def test_error_messages_contain_no_escape_characters(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["choose", "--model", "\x1b[31mred", "--prompt", "x", "--choice", "a"]) != 0
    assert "\x1b" not in capsys.readouterr().err
