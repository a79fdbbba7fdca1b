#!/usr/bin/env python3
"""Run llama-server's own tests of chat, completions, embeddings and tools against our server.

The tests are in ``tools/server/tests/unit`` of llama.cpp's source tree. Their class `ServerProcess`
starts ``eliza-ffi serve`` here, with the embedded model. Prints a table of the results for
docs/serve.md. Most failures are not faults: tests expect the exact text of llama.cpp's test
models, or use endpoints and fields that only llama-server has. `REASONS` explains them.

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
    for test, cases in results.items():
        counts = Counter(result for result, _ in cases)
        print(f"| `{test}` | {', '.join(f'{n} {what}' for what, n in counts.items())} |")
        for result, message in cases:
            if given.verbose and result == "failed":
                print("   ", message[:160].replace("\n", " "))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
