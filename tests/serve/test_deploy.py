"""The files in deploy/ use options and metrics that exist. `CHECK=deploy` checks their syntax."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator

import pytest
import yaml
from checkout import ROOT
from served import DECISIONS, Served, decisions_body

from eliza_ffi.cli.main import build_parser

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
def labels(server: Served) -> dict[str, set[str]]:
    """Return the labels of every metric of a server that has answered and rejected a request."""
    for body in (decisions_body(), {}):
        server.client().post(DECISIONS, json=body)
    found: dict[str, set[str]] = {}
    for series in server.figures():
        found.setdefault(series.partition("{")[0], set()).update(re.findall(r'(\w+)="', series))
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
