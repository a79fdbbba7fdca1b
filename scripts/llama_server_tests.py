#!/usr/bin/env python3
"""Run llama-server's own tests of chat, completions, embeddings and tools against our server.

The tests are in ``tools/server/tests/unit`` of llama.cpp's source tree. Their class `ServerProcess`
starts ``eliza-ffi serve`` here, with the embedded model. Prints the table of docs/serve.md. Many
tests must fail: they expect the text of llama.cpp's test models, or use endpoints and fields that
only llama-server has. `REASONS` has the reason for each. The exit code is 1 if another test fails.

Usage::

    $ python scripts/llama_server_tests.py
    $ python scripts/llama_server_tests.py -k test_embedding --verbose

Needs the packages ``requests`` and ``filelock``, besides those of the extra ``dev``.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]

FILES = (
    "test_chat_completion.py",
    "test_compat_oai_responses.py",
    "test_completion.py",
    "test_embedding.py",
    "test_tool_call.py",
)

MODEL = "expects the text or the token counts of llama.cpp's test model"
OWN = "needs an endpoint or a field that only llama-server has"

REASONS = {
    "test_chat_completion": {
        "test_chat_completion": MODEL,
        "test_chat_completion_cached_tokens": MODEL,
        "test_chat_completion_stream": MODEL,
        "test_chat_completion_with_openai_library": MODEL,
        "test_chat_template": f"{OWN}: `__verbose`",
        "test_chat_template_assistant_prefill": f"{OWN}: `__verbose`",
        "test_chat_template_continue_final_message_vllm_compat": f"{OWN}: `__verbose`",
        "test_apply_chat_template": f"{OWN}: `/apply-template`",
        "test_completion_with_response_format": "expects an array, but the schema allows any type",
        "test_invalid_chat_completion_req": "expects that two assistant messages in a row fail",
        "test_chat_completion_with_timings_per_token": f"{OWN}: `timings_per_token`",
        "test_logit_bias": f"{OWN}: `/tokenize`",
        "test_context_size_exceeded": "expects llama-server's error; ours is OpenAI's",
        "test_context_size_exceeded_stream": "expects llama-server's error; ours is OpenAI's",
        "test_return_progress": f"{OWN}: `return_progress`",
        "test_chat_completions_multiple_choices": f"{OWN}: `id_slot`",
        "test_chat_completions_token_count": f"{OWN}: `/chat/completions/input_tokens`",
        "test_verbose_debug": f"{OWN}: `verbose`",
    },
    "test_compat_oai_responses": {
        "test_responses_with_openai_library": MODEL,
        "test_responses_stream_with_llama_telemetry": f"{OWN}: `timings_per_token`",
    },
    "test_completion": {
        "test_completion_with_openai_library": MODEL,
        "test_completion_stream_with_openai_library": MODEL,
        "": f"{OWN}: `/completion`",
    },
    "test_embedding": {
        "test_embedding_mixed_input": "sends objects, or token ids that belong to no text",
        "test_embedding_content_text_same_as_string": f"{OWN}: an object as input",
        "test_embedding_pooling_none": f"{OWN}: `/embeddings` without `/v1`",
        "test_embedding_pooling_none_oai": "starts the server without pooling, which is always on",
        "test_embedding_error_prompt_too_long": "expects llama-server's message",
        "test_embedding_usage_single": MODEL,
        "test_embedding_usage_multiple": MODEL,
    },
}
"""Why tests fail: by file and function; an empty name stands for all other functions."""

UTILS = '''\
"""llama.cpp's helpers, changed to start eliza-ffi serve."""

import subprocess
import sys
import types

sys.modules["wget"] = types.ModuleType("wget")  # only downloads models
from llama_utils import *
from llama_utils import DEFAULT_HTTP_TIMEOUT, ServerPreset, ServerProcess
import llama_utils


def start(self, timeout_seconds=DEFAULT_HTTP_TIMEOUT):
    command = [sys.executable, "-m", "eliza_ffi", "serve", "--port", str(self.server_port)]
    command += ["--n-slots", str(self.n_slots or 4)]
    if self.model_alias:
        command += ["--alias", self.model_alias]
    if self.n_ctx:
        command += ["--n-ctx", str(self.n_ctx)]
    self.process = subprocess.Popen(command)
    llama_utils.server_instances.add(self)
    llama_utils.wait_until_ready(self, timeout_seconds)


def make_url(self, path, host=None):
    if path in ("/chat/completions", "/responses"):
        path = "/v1" + path
    return f"http://{host or self.server_host}:{self.server_port}{path}"


ServerProcess.start, ServerProcess.make_url = start, make_url
ServerPreset.load_all = staticmethod(lambda: None)
'''

WAIT = """

def wait_until_ready(server, seconds):
    end = time.time() + seconds
    while time.time() < end:
        try:
            if server.make_request("GET", "/health").status_code == 200:
                return
        except requests.exceptions.ConnectionError:
            pass
        assert server.process.poll() is None, "the server has ended"
        time.sleep(0.05)
    raise TimeoutError
"""


def prepare(folder: Path, tree: Path) -> None:
    """Copy the tests to a folder, with our helpers in place of llama.cpp's."""
    tests = tree / "tools" / "server" / "tests"
    (folder / "unit").mkdir()
    for name in FILES:
        shutil.copy(tests / "unit" / name, folder / "unit")
    shutil.copy(tests / "conftest.py", folder)
    shutil.copy(tests / "pytest.ini", folder)
    text = (tests / "utils.py").read_text(encoding="utf-8")
    (folder / "llama_utils.py").write_text(text + WAIT, encoding="utf-8")
    (folder / "utils.py").write_text(UTILS, encoding="utf-8")


def run(folder: Path, more: list[str]) -> dict[str, list[tuple[str, str]]]:
    """Run the tests; return for each test function its results and failures."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    report = folder / "report.xml"
    paths = [str(ROOT), str(folder), os.environ.get("PYTHONPATH", "")]
    subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *(f"--junitxml={report}", "-m", "not slow", *more),
            "unit",
        ],
        cwd=folder,
        env={**os.environ, "PORT": str(port), "PYTHONPATH": os.pathsep.join(paths)},
    )
    results: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        failed = [each for each in case if each.tag in ("failure", "error")]
        skipped = any(each.tag == "skipped" for each in case)
        message = failed[0].get("message", "") if failed else ""
        results[re.sub(r"\[.*", "", name)].append(
            ("failed" if failed else "skipped" if skipped else "passed", message)
        )
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-k", metavar="EXPRESSION", help="run only these tests, as in pytest")
    parser.add_argument("--verbose", action="store_true", help="print the failures")
    given = parser.parse_args()
    fetched = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "fetch_llama_cpp.py")],
        capture_output=True,
        text=True,
        check=True,
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, Path(fetched.stdout.strip()))
        more = ["-k", given.k] if given.k else []
        results = run(folder, more if given.verbose else [*more, "--tb=no"])
    table, others = summary(results)
    print("\n".join(table))
    if given.verbose:
        for test, cases in results.items():
            for result, message in cases:
                if result == "failed":
                    print(f"{test}: {message[:160]}".replace("\n", " "))
    print(*(f"- {test}: {why}" for test, why in others.items()), sep="\n")
    return int("unexplained" in others.values())


def summary(results: dict[str, list[tuple[str, str]]]) -> tuple[list[str], dict[str, str]]:
    """Return the table of docs/serve.md, and the reasons for all other failures by test."""
    of_file: dict[str, Counter[str]] = defaultdict(Counter)
    others: dict[str, str] = {}
    for test, cases in results.items():
        file, _, name = test.partition("::")
        n_failed = count(cases, "failed")
        of_file[file]["passed"] += count(cases, "passed")
        if n_failed:
            why = reason(file, name)
            kind = "model" if why == MODEL else "own" if why.startswith(OWN) else "others"
            of_file[file][kind] += n_failed
            if kind == "others":
                others[test] = why
    kinds = ("passed", "model", "own", "others")
    head = ("file", "passed", "need llama.cpp's test model", "need llama-server", "other failures")
    rows = [
        [f"`{file}`", *(str(counts[kind]) for kind in kinds)] for file, counts in of_file.items()
    ]
    ruler = ["--", *("--:" for _ in kinds)]
    return [f"| {' | '.join(row)} |" for row in (head, ruler, *rows)], others


def count(cases: list[tuple[str, str]], result: str) -> int:
    """Return the number of cases with a result."""
    return sum(each == result for each, _ in cases)


def reason(file: str, name: str) -> str:
    """Return why a test fails."""
    reasons = REASONS.get(file, {})
    return reasons.get(name, reasons.get("", "unexplained"))


if __name__ == "__main__":
    raise SystemExit(main())
