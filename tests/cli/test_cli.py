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
from command import Run, parsers, runner

from eliza_ffi.chat.template import ChatTemplate, template_of_model
from eliza_ffi.cli.doctor import DEPENDENCIES, EXTRAS
from eliza_ffi.cli.main import build_parser
from eliza_ffi.cli.serve import LLAMA_SERVER_FLAGS
from eliza_ffi.errors import ElizaError
from eliza_ffi.library.binding import CffiBinding
from eliza_ffi.library.loading import LIBRARY_VARIABLE, Library


@pytest.fixture(scope="session")
def model_options(library: Library, random_model_path: Callable[..., Path]) -> list[str]:
    """Return the options for a small model that opens quickly."""
    path = random_model_path("llama-spm", n_embd=64, n_layers=2, seed=1)
    files = ["--model", str(path), "--library", str(library.path)]
    return [*files, "--n-ctx", "2048", "--threads", "1"]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], model_options: list[str]) -> Run:
    return runner(capsys, *model_options)


# ---- choose ------------------------------------------------------------------------------------


def test_choose_prints_only_the_label(run: Run) -> None:
    out, err = run("choose", "--prompt", "x", "--label", "Grüße", "--label", "b c")
    assert out in ("Grüße\n", "b c\n")
    assert err == ""


def test_choose_json_has_all_facts(run: Run) -> None:
    choices = ["--label", "A", "--label", "B"]
    facts = run("choose", "--prompt", "x", *choices, "--json").json
    assert facts.keys() == {
        *("value", "index", "logprob", "probability"),
        *("tokens", "forward_passes", "elapsed_ms", "model"),
    }
    assert facts["value"] == ["A", "B"][facts["index"]]
    assert 0.0 < facts["probability"] <= 1.0


PROBABILITIES = [
    *("choose", "--prompt", "x", "--probabilities"),
    *("--label", "Grüße", "--label", "b c", "--label", "b d", "--label", "A"),
]


def ranking_of(out: str) -> list[tuple[str, float, str]]:
    """Return each line's mark, probability in per cent, and label."""
    lines = [re.fullmatch(r"([* ]) +([0-9.]+)%  (.+)", line) for line in out.splitlines()]
    return [(line[1], float(line[2]), line[3]) for line in lines if line is not None]


@pytest.mark.parametrize("mode", ["greedy", "sample", "best"])
def test_probabilities_are_sorted_and_the_chosen_label_is_marked(run: Run, mode: str) -> None:
    sampling = ["--mode", mode, *(["--temperature", "9", "--seed", "3"] * (mode == "sample"))]
    out = run(*PROBABILITIES, *sampling).out
    ranking = ranking_of(out)
    assert len(ranking) == len(out.splitlines()) == 4
    percents = [percent for _, percent, _ in ranking]
    assert percents == sorted(percents, reverse=True)
    assert sum(percents) == pytest.approx(100, abs=0.03)
    facts = run(*PROBABILITIES, *sampling, "--json").json
    chosen = facts["value"]
    of_label = {text: percent / 100 for _, percent, text in ranking}
    assert list(facts["probabilities"]) == ["Grüße", "b c", "b d", "A"]
    assert facts["probabilities"] == pytest.approx(of_label, abs=1e-3)
    assert [text for mark, _, text in ranking if mark == "*"] == [chosen]
    assert mode != "best" or chosen == ranking[0][2]
    assert mode != "sample" or chosen != ranking[0][2]  # with this seed


def with_bom(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8-sig")
    return str(path)


def test_a_byte_order_mark_is_no_part_of_a_file(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows Notepad writes it. Before, it became part of the first label and of the prompt."""
    labels = with_bom(tmp_path / "labels.txt", "A\nB\nC\n")
    expected = run("choose", "--prompt", "Now?", "--labels-file", labels, "--json").json
    assert expected["value"] in {"A", "B", "C"}
    prompt = with_bom(tmp_path / "prompt.txt", "Now?\n")
    found = run("choose", "--prompt-file", prompt, "--labels-file", labels, "--json").json
    assert found["logprob"] == pytest.approx(expected["logprob"], abs=1e-3)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("Now?\n".encode("utf-8-sig"))))
    found = run("choose", "--labels-file", labels, "--json").json
    assert found["logprob"] == pytest.approx(expected["logprob"], abs=1e-3)


def test_a_byte_order_mark_is_no_part_of_a_json_file(run: Run, tmp_path: Path) -> None:
    asked = {"team": {"type": "choice", "instructions": "Which?", "choices": ["A", "B"]}}
    questions = with_bom(tmp_path / "q.json", json.dumps(asked))
    rows = "".join(f"mail {i},A\n" for i in range(10))
    table = with_bom(tmp_path / "in.csv", f"text,team\n{rows}")
    examples = with_bom(tmp_path / "e.jsonl", '{"text": "x", "team": "A"}\n')
    calibration = tmp_path / "c.json"
    options = ["--questions", questions, "--column", "text"]
    run("calibrate", table, *options, "--output", str(calibration), "--method", "batch")
    with_bom(calibration, calibration.read_text(encoding="utf-8"))
    one = ["decide", "--input", "hello", "--questions", questions, "--json"]
    assert run(*one, "--calibration", str(calibration)).json["calibrated"]
    assert not run(*one, "--examples", examples, "--examples-column", "text").json["calibrated"]


def test_json_is_valid_on_a_terminal_that_is_not_utf8(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, Python escaped the emoji as ``\\U0001f600``, which is not JSON."""
    data = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(data, encoding="cp1252"))
    run("choose", "--prompt", "Now?", "--label", "\U0001f600", "--label", "\U0001f600!", "--json")
    run("tokenize", "--prompt", "\U0001f600", "--json")
    sys.stdout.flush()
    choice, tokens = data.getvalue().decode("ascii").splitlines()
    assert json.loads(choice)["value"].startswith("\U0001f600")
    assert json.loads(tokens)["tokens"]


# ---- generate and tokenize ---------------------------------------------------------------------


def test_generate_obeys_a_grammar_file(run: Run, tmp_path: Path) -> None:
    grammar = tmp_path / "answer.gbnf"
    grammar.write_text('root ::= "yes" | "no"', encoding="utf-8")
    assert run("generate", "--prompt", "x", "--grammar-file", str(grammar)).out in ("yes\n", "no\n")


@pytest.fixture
def generated(run: Run) -> Callable[..., str]:
    def generate(*options: str) -> str:
        prompt = ["--prompt", "x y x y", "--max-tokens", "8", "--seed", "3"]
        return run("generate", *prompt, *options).out

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


def test_tokenize_prints_ids_and_with_json_also_their_text(run: Run) -> None:
    ids = [int(word) for word in run("tokenize", "--prompt", "Hello world").out.split()]
    facts = run("tokenize", "--prompt", "Hello world", "--json").json
    assert facts["tokens"] == ids
    assert len(facts["pieces"]) == len(ids)
    special = run("tokenize", "--prompt", "Hello world", "--add-special").out.split()
    assert len(special) == len(ids) + 1


# ---- doctor ------------------------------------------------------------------------------------


def test_doctor_reports_a_working_installation(run: Run) -> None:
    out = run("doctor").out
    for expected in (
        "ABI 12, cpu, llama.cpp b",
        "CPU",
        "chose 1 of 2",
        "shared by 8 slots (batching: auto), up to 512 tokens each",
    ):
        assert expected in out
    assert out.endswith("all is well\n")


def test_doctor_fits_a_small_terminal_without_any_extra(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = metadata.version

    def version(name: str) -> str:
        if name in DEPENDENCIES:
            return installed(name)
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    lines = run("doctor").out.splitlines()
    assert len(lines) <= 24
    assert [line for line in lines if len(line) > 100 and "/" not in line] == []


def test_doctor_json_has_the_findings(run: Run) -> None:
    facts = run("doctor", "--json").json
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
        ("vulkan", False, "; vulkan needs a GPU with a Vulkan driver, and libvulkan.so.1"),
        ("cuda", False, "and cuBLAS (pip install 'eliza-ffi[cuda]')"),
    ],
)
def test_doctor_says_that_a_library_for_gpus_found_no_gpu(
    run: Run, monkeypatch: pytest.MonkeyPatch, backend: str, gpu_offload: bool, expected: str | None
) -> None:
    describe = CffiBinding.describe

    def described(self: CffiBinding, *arguments: Any) -> dict[str, Any]:
        facts = describe(self, *arguments)
        return {**facts, "backend": backend, "gpu_offload": gpu_offload}

    monkeypatch.setattr(CffiBinding, "describe", described)
    said = run("doctor", "--json").json.get("gpu")
    assert (said is None) == (expected is None)
    if expected is not None:
        assert said.startswith(f"no {backend} device found, so models run on the CPU")
        assert said.endswith(expected)


def test_batching_off_opens_the_model_with_one_slot(run: Run) -> None:
    passes = run("doctor", "--json", "--batching", "off").json["passes"]
    assert (passes["batching"], passes["n_slots"]) == ("off", 1)


def test_doctor_lists_every_extra_with_its_purpose_and_pip_command(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if name == "pyarrow":
            raise metadata.PackageNotFoundError(name)
        return "1.2"

    monkeypatch.setattr(metadata, "version", version)
    out = run("doctor").out
    assert "tables in Parquet: pip install 'eliza-ffi[parquet]'" in out
    assert re.search(r"^works +serve, mcp, schema, ", out, flags=re.MULTILINE)
    assert "tests and checks" not in out
    extras = run("doctor", "--json").json["extras"]
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
        names = {re.split(r"[^a-z0-9.-]", requirement)[0] for requirement in requirements}
        assert set(EXTRAS[extra][1]) <= names, extra
    needed = {re.split(r"[^a-z0-9-]", requirement)[0] for requirement in project["dependencies"]}
    assert set(DEPENDENCIES) == needed


@pytest.mark.parametrize("broken", ["{% for %}", "{{ messages[0].nothing.at_all }}"])
def test_doctor_reports_a_chat_template_that_cannot_be_rendered(
    eliza: Run, broken: str, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["doctor", "--library", str(library.path), "--threads", "1"]
    assert "wrote 1 message as" in eliza(*command).out

    def broken_template(facts: dict[str, Any]) -> ChatTemplate:
        return template_of_model({**facts, "chat_template": broken})

    monkeypatch.setattr("eliza_ffi.session.session.template_of_model", broken_template)
    out = eliza(*command, code=1).out
    assert "the chat template" in out and "all is well" not in out


def test_doctor_reports_a_missing_library(
    eliza: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(LIBRARY_VARIABLE, str(tmp_path / "none.so"))
    out = eliza("doctor", code=1).out
    assert re.search(f"^problem +{LIBRARY_VARIABLE}=", out, flags=re.MULTILINE)
    assert out.endswith("problems: 1\n")


def test_doctor_names_a_broken_model_file(eliza: Run, library: Library, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF")
    arguments = ["doctor", "--json", "--model", str(broken), "--library", str(library.path)]
    facts = eliza(*arguments, code=1).json
    assert "broken.gguf" in facts["problems"][0]
    assert facts["library"] == str(library.path)


# ---- exit codes --------------------------------------------------------------------------------

ONE_LABEL = ["choose", "--prompt", "x", "--label", "a"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["choose", "--prompt", "x"], "no labels: give --label more than once"),
        (["choose", "--prompt", "x", "--label", "a", "--label", "a"], "repeats a label: 'a'"),
        (["choose", "--prompt", "x", "--label", ""], "--label number 1 is empty"),
        (["choose", "--prompt", "", "--label", "a"], "the prompt is empty"),
        (["choose", "--prompt", "x", "--prompt-file", "y"], "not allowed with argument"),
        (
            ["generate", "--prompt", "x", "--max-tokens", "-1"],
            "'-1' is not a whole number of 0 or more",
        ),
        (["generate", "--prompt", "x", "--n-ctx", "many"], "'many' is not a whole number"),
        (["choose", "--mode", "top"], "invalid choice: 'top'"),
        (["dance"], "invalid choice: 'dance'"),
        ([], "required: command; see eliza-ffi --help"),
        (["decide", "--output"], "--output: expected one argument; see eliza-ffi decide --help"),
        (["decide", "--inptu", "x"], "decide has no argument '--inptu': did you mean --input?"),
        (["choose", "--lable=a"], "choose has no argument '--lable': did you mean --label?"),
        (["choose", "Hello!", "--label", "a"], "no argument 'Hello!': give a prompt with --prompt"),
        (["choose", "--option", "a"], "no argument '--option': did you mean --label?"),
        (["rank", "--top", "3"], "no argument '--top': did you mean -k?"),
        (["rank", "--input=x"], "no argument '--input': did you mean --prompt?"),
        (["models", "--xyz"], "models has no argument '--xyz': see eliza-ffi models --help"),
        (["models", "more"], "models has no argument 'more': see eliza-ffi models --help"),
        ([*ONE_LABEL, "--temperature", "0.5"], "--temperature requires --mode sample"),
        ([*ONE_LABEL, "--mode", "best", "--temperature", "0.5"], "requires --mode sample"),
        ([*ONE_LABEL, "--heal-prompt"], "--heal-prompt requires --tokenization any"),
        ([*ONE_LABEL, "--labels-file", "b"], "not allowed with argument"),
        (["rank", *ONE_LABEL[1:], "-k", "0"], "-k: expected 1 or more, got 0"),
        (["rank", *ONE_LABEL[1:], "--group-level", "1"], "--group-level requires --separator"),
        (["--vers", "doctor"], "has no argument '--vers'"),
        (["serve", "--ctx-size", "many"], "--n-ctx"),
        (["serve", "--timeout", "5"], "did you mean --deadline?"),
    ],
)
def test_a_wrong_command_line_exits_with_2(eliza: Run, arguments: list[str], message: str) -> None:
    out, err = eliza(*arguments, code=2)
    assert message in err
    assert err.count("\n") == 1
    assert out == ""


@pytest.mark.parametrize("command", parsers())
def test_no_command_takes_abbreviated_options(eliza: Run, command: str) -> None:
    """``serve --api-key KEY`` meant ``--api-key-file KEY``, and the error contained the key."""
    known = {name for action in parsers()[command]._actions for name in action.option_strings}
    abbreviated = {name[:-1] for name in known if len(name) > 3} - known
    assert abbreviated
    for option in sorted(abbreviated):
        for given in ([option, "sk-123"], [f"{option}=sk-123"]):
            out, err = eliza(command, *given, code=2)
            assert "sk-123" not in out + err
            assert f"{command} has no argument '{option}'" in err or "are required" in err


def test_an_api_key_in_place_of_its_file_is_not_printed(eliza: Run) -> None:
    for given in (["--api-key", "sk-123"], ["--api-key=sk-123"]):
        _, err = eliza("serve", *given, code=2)
        assert "did you mean --api-key-file?" in err and "sk-123" not in err


def test_a_missing_prompt_at_a_terminal_exits_with_2(
    eliza: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert "no prompt: give --prompt" in eliza("generate", code=2).err


def test_an_error_of_several_lines_is_printed_as_one_line(
    eliza: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(arguments: object) -> int:
        raise ElizaError("first\n  second")

    monkeypatch.setattr(sys.modules["eliza_ffi.cli.main"], "run_generate", fail)
    assert eliza("generate", "--prompt", "x", code=1).err == "eliza-ffi: first second\n"


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


def test_error_messages_contain_no_escape_characters(eliza: Run) -> None:
    command = ["choose", "--model", "\x1b[31mred", "--prompt", "x", "--label", "a"]
    assert "\x1b" not in eliza(*command, code=1).err


# ---- names of llama.cpp's programs ---------------------------------------------------------------


def test_options_have_the_names_that_llama_server_gives_them() -> None:
    parser = build_parser()

    def parsed(command: str) -> object:
        return parser.parse_args(command.split())

    ours = parsed("serve --model m --n-ctx 8192 --n-slots 8 --gpu-layers 9 --alias a")
    assert parsed("serve -m m --ctx-size=8192 --parallel 8 -ngl 9 -a a") == ours
    assert parsed("serve -hf m -c 8192 -np 8 --n-gpu-layers 9 -a a") == ours
    for name in ("-n", "--predict", "--n-predict"):
        assert parsed(f"generate {name} 5") == parsed("generate --max-tokens 5")


def test_serve_accepts_llama_servers_flags_for_parts_that_are_always_on() -> None:
    parser = build_parser()
    for flag in (flag for flags in LLAMA_SERVER_FLAGS for flag in flags):
        assert parser.parse_args(["serve", flag, "--port", "5"]).port == 5
    assert "--jinja" not in parser.parse_args(["serve"]).parser.format_help()
