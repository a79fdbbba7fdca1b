"""``eliza-ffi doctor``: what is installed here, and does it work."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from importlib import metadata
from typing import Any

from .. import _resources
from ..errors import ElizaError
from ..library.binding import CffiBinding
from ..library.capabilities import InferenceCapabilities, detect_capabilities
from ..library.loading import Library
from ..model import Model
from .console import device_options, printable

__all__ = ["examine", "run_doctor"]

GIB = 2**30

EXTRAS = {
    "chat": "jinja2",
    "parquet": "pyarrow",
    "plot": "matplotlib",
    "ray": "ray",
    "schema": "llguidance",
    "serve": "uvicorn",
    "bench": "xgrammar",
    "train": "tokenizers",
}
"""A package that each extra installs."""


def run_doctor(arguments: argparse.Namespace) -> int:
    """Print the findings; returns 0 if all is well and 1 if something needs mending."""
    findings, problems = examine(arguments)
    if arguments.json:
        print(json.dumps({**findings, "problems": problems}, ensure_ascii=False))
        return 1 if problems else 0
    width = max(len(name) for name in findings) + 2
    for name, value in findings.items():
        for i, line in enumerate(_lines(name, value)):
            label = name.replace("_", " ") if i == 0 else ""
            print(printable(f"{label:<{width}}{line}"))
    for problem in problems:
        print(printable(f"{'problem':<{width}}{problem}"))
    print("\nall is well" if not problems else f"\nto mend: {len(problems)}")
    return 1 if problems else 0


def examine(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Return what was found, by name, and what is wrong."""
    findings: dict[str, Any] = {"python": f"{platform.python_version()} on {sys.platform}"}
    findings["extras"] = {extra: _installed(name) for extra, name in EXTRAS.items()}
    problems: list[str] = []
    try:
        findings["header"] = str(_resources.header_path())
        library = Library(arguments.library, bundle=arguments.model)
        findings["library"] = str(library.path)
        findings["abi_version"] = library.abi_version
        findings["missing_symbols"] = list(library.missing_symbols)
        binding = CffiBinding(library)
        findings["token_trie"] = binding.trie_modes() != 0
        findings["capabilities"] = _unsaid(detect_capabilities(binding))
        if binding.supports("describe"):
            findings.update(binding.describe())
        _examine_model(arguments, library, findings)
    except ElizaError as error:
        problems.append(str(error))
    return findings, problems


def _examine_model(
    arguments: argparse.Namespace, library: Library, findings: dict[str, Any]
) -> None:
    """Open the model and let it choose once: all parts have then worked together."""
    with Model(
        arguments.model,
        library=library,
        n_ctx=arguments.n_ctx,
        n_threads=arguments.threads,
        n_gpu_layers=arguments.gpu_layers,
        seed=arguments.seed,
        options=device_options(arguments),
    ) as model:
        findings["model"] = {"path": model.path}
        if model.binding.supports("describe"):
            findings["model"] = model.describe()["model"]
        capabilities = detect_capabilities(model.binding, model.runner.ctx)
        findings["capabilities"] = _unsaid(capabilities)
        choice = model.choose("Yes or no? ", ["yes", "no"])
        findings["model_check"] = f"chose 1 of 2 answers in {choice.elapsed * 1e3:.1f} ms"
        if model.binding.supports("describe") and (passes := model.describe().get("passes")):
            findings["passes"] = passes


def _installed(name: str) -> str:
    try:
        return f"{name} {metadata.version(name)}"
    except metadata.PackageNotFoundError:
        return f"{name} is not installed"


def _unsaid(capabilities: InferenceCapabilities) -> dict[str, Any]:
    """Return the capabilities without those that have a line of their own."""
    told = ("abi_version", "missing_symbols", "token_trie")
    return {name: value for name, value in capabilities.to_dict().items() if name not in told}


def _capability_lines(capabilities: dict[str, Any]) -> list[str]:
    """Return what there is and what there is not, and then what has a value."""
    flags = {name: value for name, value in capabilities.items() if isinstance(value, bool)}
    lines = []
    for heading, is_there in (("yes", True), ("no", False)):
        names = [name.replace("_", " ") for name, value in flags.items() if value is is_there]
        if names:
            lines.append(f"{heading}: {', '.join(names)}")
    others = {name: value for name, value in capabilities.items() if name not in flags}
    return lines + [f"{name.replace('_', ' ')}: {_lines(name, v)[0]}" for name, v in others.items()]


def _pass_lines(passes: dict[str, Any]) -> list[str]:
    """Return how forward passes are run, and how many sequences there were in one."""
    sharing = "shared by" if passes["batching"] == "auto" else "one for each request of"
    run, sequences = passes["run"], passes["sequences"]
    return [
        f"{sharing} {passes['n_slots']} slots (batching: {passes['batching']}), "
        f"up to {passes['n_batch']} tokens each",
        f"a stream waits {passes['slot_wait_ms']} ms for a slot",
        f"{run} run so far, {sequences / run if run else 0:.1f} sequences each",
    ]


def _lines(name: str, value: Any) -> list[str]:
    """Return a finding as lines for people."""
    if name == "devices":
        return [
            f"{item['name']}: {item['description']}, {item['memory_bytes'] / GIB:.1f} GiB"
            for item in value
        ]
    if name == "placement":
        return [
            ", ".join(
                f"{part['layers']} on {part['device']} ({part['description']})" for part in value
            )
        ]
    if name == "capabilities":
        return _capability_lines(value)
    if name == "passes":
        return _pass_lines(value)
    if name == "system_info":
        # "CPU : SSE3 = 1 | AVX = 1 | NEON = 0": what is there is of interest.
        flags = [part.split(" = ") for part in value.replace(" : ", " | ").split(" | ")]
        return [" ".join(flag[0].strip() for flag in flags if flag[1:] != ["0"])]
    if name == "chat_template":
        return [f"{len(value):,} characters" if value else "none"]
    if isinstance(value, bool):
        return ["yes" if value else "no"]
    if isinstance(value, list):
        return [", ".join(str(item) for item in value) or "none"]
    if isinstance(value, dict):
        return [f"{key.replace('_', ' ')}: {_lines(key, item)[0]}" for key, item in value.items()]
    return [str(value)]
