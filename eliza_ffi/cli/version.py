"""``eliza-ffi --version``: the versions of the package, the library and llama.cpp."""

from __future__ import annotations

import argparse
from typing import Any

from .. import __version__
from ..errors import ElizaError
from ..library.binding import CffiBinding
from ..library.loading import Library
from ..terminal import printable

__all__ = ["ShowVersion", "version_text"]


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
        print(version_text())
        parser.exit()


def version_text() -> str:
    """Return the versions, one line each."""
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
