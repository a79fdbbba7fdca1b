"""Tests of every command in a terminal and in a pipe: help, files, interrupts, widths."""

from __future__ import annotations

import csv
import fcntl
import io
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path

import pytest
from checkout import ROOT
from command import Run, parsers
from gguf import PoolingType
from rich.cells import cell_len
from tiny_files import write_bert

from eliza_ffi.cli.help import EXAMPLES
from eliza_ffi.library.loading import LIBRARY_VARIABLE, Library

pytestmark = pytest.mark.slow

FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467"
TEXTS = [
    f"你好\uff0c我的包裹没有到 {FAMILY}",
    "\U0001f389" * 30,
    "e\u0301te\u0301 \U0001f1e9\U0001f1ea",
    "now!",
]
ONE_THREAD = ["--threads", "1"]
"""Several tests run at the same time; more threads would only wait for each other."""

URGENT = ["--predicate", f"紧急吗 \U0001f6a8 {'very ' * 20}", "--name", "urgent"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: Library) -> Path:
    """Return the working directory of the commands, which contains a table."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(LIBRARY_VARIABLE, str(library.path))
    with Path("mails.csv").open("w", encoding="utf-8", newline="") as file:
        rows = [[TEXTS[i % 4], str(i % 3 == 0).lower()] for i in range(12)]
        csv.writer(file).writerows([["text", "urgent"], *rows])
    return tmp_path


def piped(data: bytes) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8")


def started(*arguments: str, **more: object) -> subprocess.Popen[str]:
    options: dict[str, object] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-m", "eliza_ffi", *arguments],
        text=True,
        env=environment,
        **{**options, **more},  # type: ignore[call-overload]
    )


# ---- help --------------------------------------------------------------------------------------


def examples_of(help_text: str) -> list[list[str]]:
    """Return the example commands at the end of a help text, as words."""
    _, found, end = help_text.partition("\nExample")
    assert found
    lines = end.replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in lines if line.startswith("  ")]


@pytest.mark.parametrize("command", parsers())
@pytest.mark.parametrize("columns", ["50", "200"])
def test_help_has_an_example_that_is_not_wrapped(
    eliza: Run, command: str, columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    shown = eliza(command, "--help").out
    example = shown.partition("\nExample")[2]
    assert [line for line in example.splitlines() if len(line) > int(columns)] == []
    assert f"eliza-ffi {command}" in example
    assert examples_of(shown) == examples_of(f"\n{EXAMPLES[command]}")


@pytest.mark.parametrize("command", sorted({*parsers()} - {"serve", "mcp"}))
def test_the_examples_run(eliza: Run, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if command == "rerank":
        write_bert(Path("reranker.gguf"), PoolingType.RANK)
    if command in ("count", "compare"):
        for name in ("decided", "old", "new"):
            Path(f"{name}.csv").write_text("row,text,urgent\n1,help!,true\n")
        Path("urgent-labels.csv").write_text("row,text,urgent,kind\n1,help!,true,random\n")
    if command == "label":
        monkeypatch.setattr(sys, "stdin", piped(b"1\nq\n"))
    for words in examples_of(f"\n{EXAMPLES[command]}"):
        if "|" in words:
            monkeypatch.setattr(sys, "stdin", piped(words[1].encode().replace(b"\\n", b"\n")))
            words = words[words.index("|") + 1 :]
        assert words[:2] == ["eliza-ffi", command]
        assert eliza(*words[1:]).out.strip()


@pytest.mark.parametrize(("command", "module"), [("serve", "uvicorn"), ("mcp", "mcp")])
def test_the_example_of_a_server_runs_until_interrupted(command: str, module: str) -> None:
    pytest.importorskip(module)
    ((_, *words),) = examples_of(f"\n{EXAMPLES[command]}")
    words[words.index("--port") + 1] = "0"  # any other port may be in use
    process = started(*words)
    assert process.stdout is not None
    assert "is served at http://127.0.0.1:" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")


# ---- files -------------------------------------------------------------------------------------

TABLE = ["mails.csv", "--column", "text"]

READING = {
    "choose labels": ["choose", "--prompt", "x", "--labels-file", "FILE"],
    "choose prompt": ["choose", "--prompt-file", "FILE", "--label", "a"],
    "choose messages": ["choose", "--messages", "FILE", "--label", "a"],
    "rank labels": ["rank", "--prompt", "x", "--labels-file", "FILE"],
    "rerank document": ["rerank", "x", "FILE"],
    "generate prompt": ["generate", "--prompt-file", "FILE"],
    "generate grammar": ["generate", "--prompt", "x", "--grammar-file", "FILE"],
    "tokenize prompt": ["tokenize", "--prompt-file", "FILE"],
    "decide input": ["decide", "--input-file", "FILE", *URGENT],
    "decide messages": ["decide", "--messages", "FILE", *URGENT],
    "decide questions": ["decide", "--input", "x", "--questions", "FILE"],
    "decide calibration": ["decide", "--input", "x", *URGENT, "--calibration", "FILE"],
    "decide table": ["decide", "FILE", "--column", "text", *URGENT, "--output", "o.csv"],
    "evaluate table": ["evaluate", "FILE", "--column", "text", *URGENT],
    "evaluate questions": ["evaluate", *TABLE, "--questions", "FILE"],
    "evaluate calibration": ["evaluate", *TABLE, *URGENT, "--calibration", "FILE"],
    "calibrate table": ["calibrate", "FILE", "--column", "text", *URGENT, "--output", "o"],
    "serve keys": ["serve", "--api-key-file", "FILE"],
    "choose model": ["choose", "--prompt", "x", "--label", "a", "--model", "FILE"],
    "choose library": ["choose", "--prompt", "x", "--label", "a", "--library", "FILE"],
    "generate drafter": ["generate", "--prompt", "x", "--draft-max", "4", "--drafter", "FILE"],
}
WRITING = {
    "decide": ["decide", *TABLE, *URGENT, "--output", "FILE"],
    "evaluate": ["evaluate", *TABLE, *URGENT, "--output", "FILE"],
    "calibrate": ["calibrate", *TABLE, *URGENT, "--output", "FILE"],
}


def rejection_of(eliza: Run, arguments: list[str], file: str) -> str:
    """Return the line that a command prints when it rejects a file."""
    out, err = eliza(*[file if word == "FILE" else word for word in arguments], code=1)
    assert out == ""
    assert err.startswith("eliza-ffi: ") and err.count("\n") == 1
    assert "Errno" not in err
    assert file in err
    return err


@pytest.mark.parametrize("kind", ["missing", "folder", "binary", "secret", "failing"])
@pytest.mark.parametrize("name", READING)
def test_an_unusable_file_is_named(eliza: Run, name: str, kind: str) -> None:
    path = Path(f"{kind}.csv")
    if kind == "folder":
        path.mkdir()
    elif kind == "binary":
        path.write_bytes(b"\x7fELF\x00\xff\xfe\x00")
    elif kind == "secret":
        path.write_text("text\nx\n", encoding="utf-8")
        path.chmod(0)
        if os.access(path, os.R_OK):
            pytest.skip("the current user can read every file")
    elif kind == "failing":  # every user can open this file, but reading its beginning fails
        path = Path("/proc/self/mem")
        if sys.platform != "linux" or name.split()[1] in ("table", "library"):
            pytest.skip("needs Linux, and a command that reads the file")
    said = rejection_of(eliza, READING[name], str(path))
    assert kind != "missing" or "'" not in said
    assert kind != "secret" or re.search("Permission denied|cannot read", said)


@pytest.mark.parametrize("arguments", WRITING.values(), ids=WRITING)
def test_an_unwritable_output_is_named_before_the_model_is_loaded(
    eliza: Run, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eliza_ffi.cli.console.Model", None)
    Path("folder.csv").mkdir()
    assert "folder" in rejection_of(eliza, arguments, "folder.csv")
    command = [word.replace("FILE", "nowhere/o.csv") for word in arguments]
    assert eliza(*command, code=1).err == "eliza-ffi: nowhere: No such folder to write to\n"


def test_labels_can_come_from_standard_input(eliza: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", piped("红\r\n\r\n蓝 \U0001f389\r\n".encode()))
    out = eliza("choose", "--prompt", "x", "--labels-file", "-", "--probabilities").out
    shown = {line.split("%  ")[1] for line in out.splitlines()}
    assert shown == {"红", "蓝 \U0001f389"}


@pytest.mark.parametrize("prompt", [[], ["--prompt-file", "-"]])
def test_standard_input_cannot_hold_both_prompt_and_labels(
    eliza: Run, prompt: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", piped(b"a\nb\n"))
    said = eliza("choose", "--labels-file", "-", *prompt, code=2).err
    assert "standard input holds the labels" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["choose", "--prompt", "\udcff", "--label", "a"], "--prompt is not UTF-8"),
        (["choose", "--prompt", "x", "--label", "a\udcff"], "--label is not UTF-8"),
        (["choose", "--label", "a"], "standard input is not UTF-8: byte 1 of line 2"),
        (["generate", "--chat", "--system", "\udcff", "--prompt", "x"], "--system is not UTF-8"),
    ],
)
def test_invalid_utf8_is_named(
    eliza: Run, arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", piped(b"a\n\xff"))
    assert message in eliza(*arguments, code=1).err


def test_an_address_in_use_is_named(eliza: Run) -> None:
    pytest.importorskip("uvicorn")
    from eliza_ffi.serve.server import listen
    from eliza_ffi.serve.settings import ServeSettings

    with listen(ServeSettings(name="x", host="127.0.0.1", port=0)) as taken:
        port = taken.getsockname()[1]
        err = eliza("serve", "--port", str(port), code=1).err
    assert err == f"eliza-ffi: 127.0.0.1:{port}: Address already in use\n"


# ---- pipes and interrupts ----------------------------------------------------------------------

PRINTING = {
    "help": ["--help"],
    "version": ["--version"],
    "help of a command": ["decide", "--help"],
    "choose": ["choose", "--prompt", "x", "--label", "a", "--label", "b"],
    "generate": ["generate", "--prompt", "x", "--max-tokens", "4"],
    "tokenize": ["tokenize", "--prompt", "x"],
    "doctor": ["doctor"],
    "decide": ["decide", "--input", "x", *URGENT, *ONE_THREAD],
    "evaluate": ["evaluate", *TABLE, *URGENT, *ONE_THREAD],
}


@pytest.mark.parametrize("arguments", PRINTING.values(), ids=PRINTING)
def test_a_closed_output_pipe_ends_a_command_quietly(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = started(*arguments, stdout=writing)
    os.close(writing)
    _, err = process.communicate(timeout=120)
    assert process.returncode in (0, 1)  # argparse ignores the closed pipe
    assert err == ""


def interrupted_in(statement: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command, and interrupt it in a function that `statement` replaces."""
    script = (
        "import os, signal, sys\n"
        "def interrupted(*a, **k):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    import time; time.sleep(9)\n"
        f"{statement}\n"
        "from eliza_ffi.cli import main\n"
        f"sys.exit(main({list(arguments)!r}))"
    )
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
        check=False,
    )


MODEL = "import eliza_ffi.model as m; m.Model.__init__ = interrupted"
LOADING = (
    "import builtins; before = builtins.__import__\n"
    "def importing(name, *more):\n"
    "    if name == 'numpy': interrupted()\n"
    "    return before(name, *more)\n"
    "builtins.__import__ = importing"
)


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        (LOADING, "doctor"),
        (MODEL, "choose"),
        (MODEL, "doctor"),
        ("import eliza_ffi.learning.report as m; m.ask_examples = interrupted", "evaluate"),
        ("import eliza_ffi.model as m; m.Model.decide = interrupted", "decide"),
        ("import eliza_ffi.model as m; m.Model.choose = interrupted", "doctor"),
        ("import eliza_ffi.model as m; m.Model.tokenize = interrupted", "tokenize"),
    ],
)
def test_an_interrupt_exits_with_130_and_no_traceback(statement: str, name: str) -> None:
    done = interrupted_in(statement, *PRINTING[name])
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.parametrize("name", ["cffi", "jinja2", "jsonschema-rs", "llguidance", "numpy"])
def test_a_missing_dependency_is_named(name: str) -> None:
    module = name.replace("-", "_")
    script = f"import sys; sys.modules[{module!r}] = None\nfrom eliza_ffi.cli import main\n"
    script += "sys.exit(main(['doctor']))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 1
    assert "all is well" not in done.stdout
    assert f"pip install {name}" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


# ---- widths ------------------------------------------------------------------------------------

SHOWING: dict[str, list[str]] = {
    "doctor": ["doctor"],
    "decide": [
        *("decide", "--input", TEXTS[0], *URGENT, "--ask", f"哪个团队 {FAMILY}"),
        *("--option", f"销售 {FAMILY}" * 9, "--option", "\U0001f389" * 40, "--option", "支持"),
    ],
    "decide a table": ["decide", *TABLE, *URGENT, "--output", "o.csv", "--overwrite"],
    "rank": [
        *("rank", "--prompt", "x", "--separator", " > ", "--max-passes", "0"),
        *("--label", f"销售 > {FAMILY}" * 9, "--label", "a > \U0001f389" * 20, "--label", "支持"),
    ],
    "evaluate": ["evaluate", *TABLE, *URGENT, *ONE_THREAD],
    "calibrate": [
        *("calibrate", *TABLE, *URGENT, "--output", "c.json"),
        *("--method", "temperature", *ONE_THREAD),
    ],
    "help": ["--help"],
}


@pytest.mark.parametrize("columns", ["50", "200"])
@pytest.mark.parametrize("arguments", SHOWING.values(), ids=SHOWING)
def test_no_line_is_wider_than_the_environment_variable_columns(
    eliza: Run, arguments: list[str], columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    wide = [s for s in eliza(*arguments).out.splitlines() if cell_len(s) > int(columns)]
    assert wide == []


def shown_on_a_terminal(columns: int, *arguments: str) -> str:
    """Return the output of a command on a terminal of a given width, with newlines as in a file."""
    terminal, command_side = pty.openpty()
    fcntl.ioctl(command_side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = started(*arguments, stdout=command_side, stdin=subprocess.DEVNULL)
    os.close(command_side)
    shown = b""
    with suppress(OSError):  # Linux raises it at the end of the output
        while part := os.read(terminal, 4096):
            shown += part
    os.close(terminal)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    return shown.decode().replace("\r\n", "\n")


@pytest.fixture
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    return monkeypatch


def test_tables_fit_the_terminal(plain_terminal: pytest.MonkeyPatch) -> None:
    plain_terminal.setenv("NO_COLOR", "1")
    shown = shown_on_a_terminal(50, *SHOWING["evaluate"])
    assert "\x1b" not in shown
    assert [line for line in shown.splitlines() if cell_len(line) > 50] == []


def test_colour_needs_a_terminal_or_force_color(plain_terminal: pytest.MonkeyPatch) -> None:
    command = ["decide", "--input", "x", "--predicate", "It is short.", *ONE_THREAD]
    piped_to_a_file = started(*command).communicate(timeout=60)[0]
    assert "\x1b" not in piped_to_a_file
    assert "\x1b[1m" in shown_on_a_terminal(50, *command)
    plain_terminal.setenv("FORCE_COLOR", "1")
    assert "\x1b[1m" in started(*command).communicate(timeout=60)[0]
    plain_terminal.setenv("NO_COLOR", "1")
    assert "\x1b" not in shown_on_a_terminal(50, *command)


def test_a_table_in_a_pipe_is_not_wrapped(plain_terminal: pytest.MonkeyPatch) -> None:
    out, _ = started(*SHOWING["evaluate"]).communicate(timeout=60)
    (head,) = (line for line in out.splitlines() if "level error" in line)
    assert "question" in head and "accuracy" in head
