"""``eliza-ffi doctor`` checks the installation; ``eliza-ffi --version`` prints the versions."""

from __future__ import annotations

import argparse
import importlib
import platform
import sys
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from .. import __version__, _resources
from ..errors import ElizaError, NoChatTemplateError
from ..library.binding import CffiBinding
from ..library.capabilities import InferenceCapabilities, detect_capabilities
from ..library.loading import Library
from ..model import Model
from ..terminal import counted, fact_table, printable, terminal_width
from .console import add_model_arguments, add_options, model_options, print_json

GIB = 2**30

DEPENDENCIES = ("cffi", "jinja2", "jsonschema-rs", "llguidance", "numpy")
"""The required packages, by the name under which they are installed and imported."""

EXTRAS = {
    "serve": (
        "a model over HTTP",
        (
            *(() if sys.version_info >= (3, 14) else ("backports.zstd",)),
            *("brotli", "prometheus-client", "pydantic", "starlette", "uvicorn"),
        ),
    ),
    "mcp": ("tools for agents (MCP)", ("mcp",)),
    "ray": ("decisions on a Ray cluster", ("ray", "pyarrow")),
    "schema": ("answers as objects of your own classes, with Pydantic", ("pydantic",)),
    "plot": ("the plots of `eliza-ffi evaluate`", ("matplotlib",)),
    "cli": ("coloured output that fits the width of the terminal", ("rich",)),
    "parquet": ("tables in Parquet", ("pyarrow",)),
    "duckdb": ("questions in SQL, with DuckDB", ("duckdb", "pyarrow")),
    "hub": ("models by name from Hugging Face", ("huggingface-hub",)),
    "cuda": ("NVIDIA's library cuBLAS, which computes on the GPU", ("nvidia-cublas",)),
    "bench": ("benchmarks against other packages", ("gguf", "torch", "xgrammar")),
    "train": ("training the embedded model", ("gguf", "tokenizers", "torch")),
    "docs": ("building the documentation", ("mkdocs",)),
    "release": ("building and checking wheels", ("auditwheel", "build", "twine", "ziglang")),
    "dev": ("tests and checks", ("gguf", "hypothesis", "mypy", "pytest", "ruff")),
}
"""The purpose of each extra, and the packages to look for; pyproject.toml has the full lists."""

FOR_DEVELOPERS = ("bench", "train", "docs", "release", "dev")
"""The extras that only work on eliza-ffi itself needs; only ``--json`` lists them."""

GPU_REQUIREMENTS = {
    "cuda": "an NVIDIA GPU with its driver, and cuBLAS (pip install 'eliza-ffi[cuda]')",
    "vulkan": "a GPU with a Vulkan driver, and libvulkan.so.1",
}
"""The requirements of the backends for which ``make wheel`` builds wheels."""

PROBE_MESSAGES = [{"role": "user", "content": "Hello"}]
"""The conversation for checking chat templates."""


def add_doctor_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, {"--json": "print JSON: the findings"})
    add_model_arguments(parser)


def run_doctor(arguments: argparse.Namespace) -> int:
    """Print the findings. Return 1 if there are problems, otherwise 0."""
    findings, problems = examine(arguments)
    if arguments.json:
        print_json({**findings, "problems": problems})
        return 1 if problems else 0
    print(
        fact_table(
            _lines_of(findings) | ({"problem": problems} if problems else {}), terminal_width()
        )
    )
    print("\nall is well" if not problems else f"\nproblems: {len(problems)}")
    return 1 if problems else 0


def examine(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    findings: dict[str, Any] = {"python": f"{platform.python_version()} on {sys.platform}"}
    problems: list[str] = []
    findings["needed"] = _examine_dependencies(problems)
    findings["extras"] = {extra: _examine_extra(extra) for extra in EXTRAS}
    if problems:
        return findings, problems  # everything below needs the dependencies
    try:
        findings["header"] = str(_resources.header_path())
        library = Library(arguments.library, bundle=arguments.model)
        findings["library"] = str(library.path)
        findings["abi_version"] = library.abi_version
        findings["missing_symbols"] = list(library.missing_symbols)
        binding = CffiBinding(library)
        findings["token_trie"] = binding.trie_modes != 0
        findings["capabilities"] = _other_capabilities(detect_capabilities(binding))
        if binding.supports("describe"):
            findings.update(binding.describe())
            if line := missing_gpu(findings):
                findings["gpu"] = line
        _examine_model(arguments, library, findings)
    except ElizaError as error:
        problems.append(str(error))
    return findings, problems


def missing_gpu(facts: Mapping[str, Any]) -> str | None:
    """Return a line about the GPU that a library for GPUs did not find, or None, from its
    `facts`."""
    backend = facts["backend"]
    if facts["gpu_offload"] or backend in ("cpu", "blas"):
        return None
    line = f"no {backend} device found, so models run on the CPU"
    needed = GPU_REQUIREMENTS.get(backend)
    return line if needed is None else f"{line}; {backend} needs {needed}"


def _examine_model(
    arguments: argparse.Namespace, library: Library, findings: dict[str, Any]
) -> None:
    """Open the model and let it choose once, which uses all parts together."""
    with Model(arguments.model, **{**model_options(arguments), "library": library}) as model:
        findings["model"] = {"path": model.path}
        if model.binding.supports("describe"):
            findings["model"] = model.describe()["model"]
        capabilities = detect_capabilities(model.binding, model.session.ctx)
        findings["capabilities"] = _other_capabilities(capabilities)
        choice = model.choose("Yes or no? ", ["yes", "no"])
        findings["model_check"] = f"chose 1 of 2 labels in {choice.seconds * 1e3:.1f} ms"
        findings["chat_check"] = _check_chat(model)
        if model.binding.supports("describe") and (passes := model.describe().get("passes")):
            findings["passes"] = passes


def _examine_dependencies(problems: list[str]) -> dict[str, str | None]:
    """Return the versions of the dependencies; add import failures to `problems`."""
    versions: dict[str, str | None] = {}
    for name in DEPENDENCIES:
        try:
            importlib.import_module(name.replace("-", "_"))
        except ImportError as error:
            problems.append(f"{name} cannot be imported: pip install {name} ({error})")
            versions[name] = None
        else:
            versions[name] = _version(name)
    return versions


def _examine_extra(extra: str) -> dict[str, Any]:
    purpose, packages = EXTRAS[extra]
    versions = {name: _version(name) for name in packages}
    return {
        "purpose": purpose,
        "is_there": None not in versions.values(),
        "packages": versions,
        "install": f"pip install 'eliza-ffi[{extra}]'",
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _check_chat(model: Model) -> str:
    try:
        n_tokens = len(model.chat_tokens(PROBE_MESSAGES))
    except NoChatTemplateError:
        return "the model has no chat template; use prompts instead of messages"
    return f"wrote 1 message as {counted(n_tokens, 'token')}"


def _other_capabilities(capabilities: InferenceCapabilities) -> dict[str, Any]:
    """Return the capabilities without the three that doctor reports separately."""
    own_lines = ("abi_version", "missing_symbols", "token_trie")
    return {name: value for name, value in capabilities.to_dict().items() if name not in own_lines}


def _lines_of(findings: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the findings that fit a screen: what works, then what to install for what."""
    needed = [f"{name} {version or 'missing'}" for name, version in findings["needed"].items()]
    lines = {"python": [findings["python"]], "needed": [", ".join(needed)]}
    if "library" in findings:
        facts = [f"ABI {findings['abi_version']}"]
        if "library_version" in findings:
            facts = [findings["library_version"], *facts, findings["backend"]]
            facts.append(f"llama.cpp {findings['llama_cpp']['commit']}")
        lines["library"] = [findings["library"], ", ".join(facts)]
        if findings["missing_symbols"]:
            lines["missing symbols"] = [", ".join(findings["missing_symbols"])]
            lines["capabilities"] = _capability_lines(findings["capabilities"])
    lines["gpu"] = [findings[name] for name in ("gpu",) if name in findings]
    lines["devices"] = [
        f"{item['name']}: {item['description']}, {item['memory_bytes'] / GIB:.1f} GiB"
        for item in findings.get("devices", ())
    ]
    model = findings.get("model", {})
    lines["model"] = [model[name] for name in ("path", "description") if name in model]
    lines["layers"] = [
        f"{part['layers']} on {part['device']}" for part in model.get("placement") or ()
    ]
    for name in ("model_check", "chat_check"):
        lines[name.replace("_", " ")] = [findings[name]] if name in findings else []
    if "passes" in findings:
        lines["passes"] = [_pass_line(findings["passes"])]
    extras = {
        name: facts for name, facts in findings["extras"].items() if name not in FOR_DEVELOPERS
    }
    lines["works"] = [", ".join(name for name, facts in extras.items() if facts["is_there"])]
    lines["to add"] = [
        f"{facts['purpose']}: {facts['install']}"
        for facts in extras.values()
        if not facts["is_there"]
    ]
    return {name: shown for name, shown in lines.items() if any(shown)}


def _capability_lines(capabilities: Mapping[str, Any]) -> list[str]:
    flags = {name: value for name, value in capabilities.items() if isinstance(value, bool)}
    lines = []
    for heading, is_there in (("yes", True), ("no", False)):
        names = [name.replace("_", " ") for name, value in flags.items() if value is is_there]
        lines.append(f"{heading}: {', '.join(names)}")
    return lines


def _pass_line(passes: Mapping[str, Any]) -> str:
    sharing = "shared by" if passes["batching"] == "auto" else "one request per pass,"
    slots, tokens = counted(passes["n_slots"], "slot"), counted(passes["n_batch"], "token")
    return f"{sharing} {slots} (batching: {passes['batching']}), up to {tokens} each"


class ShowVersion(argparse.Action):
    """Prints the versions and exits. The library is loaded only if the option is given."""

    def __init__(self, option_strings: list[str], dest: str, **more: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **more)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        print(_version_text())
        parser.exit()


def _version_text() -> str:
    lines = [f"eliza-ffi {__version__}"]
    try:
        library = Library()
        binding = CffiBinding(library)
        facts = binding.describe() if binding.supports("describe") else {}
        version = facts.get("library_version", "(unknown version)")
        lines.append(f"libelizainference {version}, ABI {library.abi_version}, {library.path}")
        if "llama_cpp" in facts:
            lines.append(f"llama.cpp {facts['llama_cpp']['commit']}, {facts['backend']}")
    except ElizaError as error:
        lines.append(f"no libelizainference: {' '.join(str(error).split())}")
    return printable("\n".join(lines))
