"""Tests of the pages about the server, and of deploy/: programs work, lists are complete.

``CHECK=deploy`` checks the syntax of the files in deploy/.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
import yaml
from checkout import ROOT
from command import parsers
from pages import TOLERANCE
from served import DECISIONS, Served, ask, decisions_body

from eliza_ffi.cli.main import build_parser
from eliza_ffi.cli.serve import EPILOG
from eliza_ffi.serve import request_body
from eliza_ffi.serve import server as serving
from eliza_ffi.serve.app import ENDPOINTS
from eliza_ffi.serve.decisions import Extra
from eliza_ffi.serve.endpoint import Endpoint
from eliza_ffi.serve.openapi import PAGES
from eliza_ffi.serve.settings import ServeSettings

pytestmark = pytest.mark.slow

DOCS = ROOT / "docs"
HTTP = (DOCS / "reference" / "http.md").read_text(encoding="utf-8")
SERVE = (DOCS / "guides" / "serve.md").read_text(encoding="utf-8")
PROGRAMS = [
    each for each in re.findall(r"```python\n(.*?)```", HTTP + SERVE, re.DOTALL) if "8080" in each
]
REQUESTS = re.findall(r"```console\n\$ (curl [^$]*?)```(?:\n\n```json\n(.*?)```)?", HTTP, re.DOTALL)


@pytest.mark.parametrize(
    ("command", "shown"),
    [each for each in REQUESTS if not re.search("/v1/(rerank|labels)", each[0])],
)
def test_a_request_has_the_fields_of_the_shown_response(
    server: Served, command: str, shown: str
) -> None:
    command = command.replace("localhost:8080", "{}:{}".format(*server.address))
    done = subprocess.run(
        ["sh", "-c", command.replace("curl", "curl --silent", 1)], capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout, done
    for expected, got in (
        zip(values_of(shown), values_of(done.stdout), strict=True) if shown else ()
    ):
        assert_has_fields(expected, got)


def values_of(text: str) -> list[Any]:
    """Return the JSON values of a text, ordered by their ``index``, as in a batch."""
    found, at, decoder = [], 0, json.JSONDecoder()
    while at < len(text.rstrip()):
        value, at = decoder.raw_decode(text, at)
        at += len(text[at:]) - len(text[at:].lstrip())
        found.append(value)
    return sorted(found, key=lambda value: value.get("index", 0))


def assert_has_fields(expected: Any, got: Any) -> None:
    """Compare fields, strings except ids, numbers with fractions, and lists of objects."""
    if isinstance(expected, dict):
        assert expected.keys() <= got.keys()
        for name in expected.keys() - {"id", "model"}:
            assert_has_fields(expected[name], got[name])
    elif isinstance(expected, list) and expected and isinstance(expected[0], dict):
        assert len(expected) == len(got)
        for one, other in zip(expected, got, strict=True):
            assert_has_fields(one, other)
    elif isinstance(expected, str):
        assert got == expected
    elif isinstance(expected, float):
        assert got == pytest.approx(expected, abs=TOLERANCE)


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_programs_work(server: Served, program: str) -> None:
    program = program.replace("http://127.0.0.1:8080", server.url)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert 0.0 <= float(done.stdout) <= 1.0


def test_the_page_lists_all_metrics(server: Served) -> None:
    text = httpx.get(f"{server.url}/metrics").text
    metrics = set(re.findall(r"^# TYPE (\w+) (?:counter|gauge|histogram)$", text, re.M))
    metrics = {name for name in metrics if not name.endswith("_created")}
    section = HTTP.partition("## Metrics")[2].partition("\n## ")[0]
    assert set(re.findall(r"`(eliza_\w+)", section)) == metrics


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda each: each.path)
def test_the_page_lists_all_fields_with_an_effect(endpoint: Endpoint[Any]) -> None:
    ours = ("model", "input", "questions", "include", "state")  # described in the text
    for name, field in endpoint.kind.model_fields.items():
        shown = field.alias or name
        if field.description == "accepted, without effect":  # /openapi.json lists these
            continue
        assert shown in ours or re.search(rf"`{shown}[`.:]", HTTP), shown


def test_the_limits_match_the_code() -> None:
    section = HTTP.partition("## Limits")[2].partition("\n## ")[0]
    defaults = ServeSettings("tiny")
    for limit in (
        f"{defaults.max_body // 2**20} MiB",
        f"{request_body.MAX_DEPTH} levels",
        f"| {defaults.n_waiting} |",
        f"| {defaults.deadline:g} s |",
        f"request's head | {serving.HEAD_SECONDS:g} s |",
        f"read an answer | {serving.WRITE_SECONDS:g} s |",
        f"| {serving.MAX_CONNECTIONS:,}",
        f"| {serving.IDLE_SECONDS} s |",
    ):
        assert limit in section, limit
    assert all(f'`"{name}"`' in HTTP for name in get_args(Extra))


def test_the_page_names_only_existing_options() -> None:
    help_of_all = parsers()["serve"].format_help()
    for option in set(re.findall(r"--[a-z][a-z-]+", HTTP + SERVE)):
        assert option in help_of_all, option
    assert build_parser().parse_args(["serve"]).port == 8080


def test_help_and_the_page_list_all_endpoints() -> None:
    listed = re.sub(r"\s+", " ", EPILOG).partition(". After")[0]
    table = HTTP.partition("\n## ")[0]
    paths = {*PAGES, *(each.path for each in ENDPOINTS)}
    paths = {path.replace("{name}", "NAME") for path in paths}
    assert set(re.findall(r"/[\w/.]*", listed)) == paths
    assert set(re.findall(r"(/[\w/.]*)`", table)) == paths


# ---- deploy/ ------------------------------------------------------------------------------------

DEPLOY = ROOT / "deploy"
ADDED = {"instance", "job", "le"}
"""Labels that Prometheus adds."""


def text_of(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf-8")


def commands() -> Iterator[list[str]]:
    """Return the arguments of ``eliza-ffi`` in the unit and in the container."""
    (start,) = re.findall(r"^ExecStart=\S+ (.*)$", text_of("eliza-ffi.service"), flags=re.MULTILINE)
    yield shlex.split(start)
    (entry,) = re.findall(r"^ENTRYPOINT (.*)$", text_of("Dockerfile"), flags=re.MULTILINE)
    service = yaml.safe_load(text_of("compose.yaml"))["services"]["eliza-ffi"]
    yield [*json.loads(entry)[1:], *service["command"]]


def expressions() -> Iterator[str]:
    for group in yaml.safe_load(text_of("alerts.yml"))["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    for panel in json.loads(text_of("grafana.json"))["panels"]:
        yield from (f"{each['expr']} {each['legendFormat']}" for each in panel["targets"])


@pytest.fixture
def labels(tmp_path: Path, app_of: Callable[..., Any]) -> dict[str, set[str]]:
    """Return the labels of every metric of a server that has answered and rejected a request."""
    path = tmp_path / "set.json"
    path.write_text(json.dumps(decisions_body()["questions"]), encoding="utf-8")
    bodies = decisions_body(), {}, {"model": "set", "input": "The book is old."}
    app = app_of("--questions", str(path))
    *_, metrics = ask(
        app, *(("POST", DECISIONS, each) for each in bodies), ("GET", "/metrics", None)
    )
    found: dict[str, set[str]] = {}
    for series in metrics.text.splitlines():
        name = re.split(r"[{ ]", series, maxsplit=1)[0]
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', series))
    return found


@pytest.mark.parametrize("arguments", list(commands()), ids=("systemd", "container"))
def test_commands_have_only_options_that_exist(arguments: list[str]) -> None:
    assert build_parser().parse_args(arguments).deadline == 60


@pytest.mark.parametrize("expression", list(expressions()))
def test_alerts_and_panels_use_metrics_that_exist(
    expression: str, labels: dict[str, set[str]]
) -> None:
    names = set(re.findall(r"\beliza_\w+", expression))
    assert names <= labels.keys()
    used = {
        name
        for listed in re.findall(r"\b(?:by|on) \((.*?)\)", expression)
        for name in re.split(r", *", listed)
    }
    used |= {a or b for a, b in re.findall(r'(\w+)=~?"|{{(\w+)}}', expression)}
    assert used <= ADDED.union(*(labels[name] for name in names))
