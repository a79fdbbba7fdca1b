#!/usr/bin/env python3
"""Run llama-server's own tests of chat, completions, embeddings and tools against our server.

    $ python scripts/llama_server_tests.py
    $ python scripts/llama_server_tests.py -k test_embedding

The tests are in ``tools/server/tests/unit`` of llama.cpp's source tree. Their class `ServerProcess`
starts ``eliza-ffi serve`` here, with the embedded model. Many tests must fail: they expect the text
of llama.cpp's test models, or use endpoints and fields that only llama-server has. Prints the
counts of docs/reference/http.md. The exit code is 1 if a test fails that `MUST_FAIL` does not list.

Needs the packages ``requests`` and ``filelock``, besides those of the extra ``dev``.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

from fetch_llama_cpp import source_tree

ROOT = Path(__file__).resolve().parents[1]

FILES = ("chat_completion", "compat_oai_responses", "completion", "embedding", "tool_call")
MUST_FAIL = {
    "expect the text or the token counts of llama.cpp's test model": """
        test_chat_completion test_chat_completion_cached_tokens test_chat_completion_stream
        test_chat_completion_with_openai_library test_responses_with_openai_library
        test_completion_with_openai_library test_completion_stream_with_openai_library
        test_embedding_usage_single test_embedding_usage_multiple
    """,
    "need an endpoint or a field that only llama-server has": """
        test_chat_template test_chat_template_assistant_prefill test_logit_bias
        test_chat_template_continue_final_message_vllm_compat test_apply_chat_template
        test_chat_completion_with_timings_per_token test_return_progress test_verbose_debug
        test_chat_completions_multiple_choices test_chat_completions_token_count
        test_responses_stream_with_llama_telemetry test_embedding_content_text_same_as_string
        test_embedding_pooling_none
    """,
    "expect llama-server's messages, or treat unusual requests in another way": """
        test_completion_with_response_format test_invalid_chat_completion_req
        test_context_size_exceeded test_context_size_exceeded_stream test_embedding_mixed_input
        test_embedding_pooling_none_oai test_embedding_error_prompt_too_long
    """,
}
"""The reasons why tests fail. All other tests of ``test_completion.py`` use ``/completion``."""

UTILS = '''\
"""llama.cpp's helpers, changed to start eliza-ffi serve."""

import subprocess
import sys
import time
import types

import requests

sys.modules["wget"] = types.ModuleType("wget")  # only downloads models
from llama_utils import *
from llama_utils import DEFAULT_HTTP_TIMEOUT, ServerPreset, ServerProcess, server_instances


def start(self, timeout_seconds=DEFAULT_HTTP_TIMEOUT):
    command = [sys.executable, "-m", "eliza_ffi", "serve", "--port", str(self.server_port)]
    command += ["--n-slots", str(self.n_slots or 4)]
    command += ["--alias", self.model_alias] if self.model_alias else []
    command += ["--n-ctx", str(self.n_ctx)] if self.n_ctx else []
    self.process = subprocess.Popen(command)
    server_instances.add(self)
    end = time.time() + timeout_seconds
    while time.time() < end and self.process.poll() is None:
        try:
            if self.make_request("GET", "/health").status_code == 200:
                return
        except requests.exceptions.ConnectionError:
            time.sleep(0.05)
    raise RuntimeError("the server has not started")


def make_url(self, path, host=None):
    if path in ("/chat/completions", "/responses"):
        path = "/v1" + path
    return f"http://{host or self.server_host}:{self.server_port}{path}"


ServerProcess.start, ServerProcess.make_url = start, make_url
ServerPreset.load_all = staticmethod(lambda: None)
'''


def prepare(folder: Path) -> None:
    """Copy the tests to a folder, with our helpers in place of llama.cpp's."""
    tests = source_tree(with_models=True) / "tools" / "server" / "tests"
    (folder / "unit").mkdir()
    for name in FILES:
        shutil.copy(tests / "unit" / f"test_{name}.py", folder / "unit")
    shutil.copy(tests / "conftest.py", folder)
    shutil.copy(tests / "pytest.ini", folder)
    shutil.copy(tests / "utils.py", folder / "llama_utils.py")
    (folder / "utils.py").write_text(UTILS, encoding="utf-8")


def run(folder: Path, more: list[str]) -> ElementTree.Element:
    """Run the tests with further arguments of pytest, and return the report."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    report = folder / "report.xml"
    paths = [str(ROOT), str(folder), os.environ.get("PYTHONPATH", "")]
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider"]
    command += [f"--junitxml={report}", "-m", "not slow", *more, "unit"]
    variables = {**os.environ, "PORT": str(port), "PYTHONPATH": os.pathsep.join(paths)}
    subprocess.run(command, cwd=folder, env=variables)
    return ElementTree.parse(report).getroot()


def result_of(case: ElementTree.Element) -> str:
    """Return ``passed``, ``skipped``, a reason of `MUST_FAIL`, or the name of the failed test."""
    tags = {each.tag for each in case}
    if not tags & {"failure", "error"}:
        return "skipped" if "skipped" in tags else "passed"
    name = re.sub(r"\[.*", "", case.get("name", ""))
    for reason, names in MUST_FAIL.items():
        if name in names.split():
            return reason
    is_completion = case.get("classname", "").endswith(".test_completion")
    return [*MUST_FAIL][1] if is_completion else f"FAILED {name}"


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        results = Counter(map(result_of, run(Path(folder), sys.argv[1:]).iter("testcase")))
    for result, count in results.most_common():
        print(f"{count:4} {result}")
    return int(any(result.startswith("FAILED") for result in results))


if __name__ == "__main__":
    raise SystemExit(main())
