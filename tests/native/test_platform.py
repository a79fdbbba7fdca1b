"""Only one folder of the native sources depends on the operating system."""

from __future__ import annotations

import re
from pathlib import Path

from checkout import ROOT

SOURCES = ROOT / "native" / "src"
SYSTEM_DEPENDENT = re.compile(
    r"#\s*include <(?:unistd|fcntl|sched|poll|pthread|dlfcn|netdb|signal|windows|sys/|netinet/)"
    r"|\b(?:__unix__|__linux__|__APPLE__|_WIN32|_MSC_VER)\b"
)
RPC_CLIENT = SOURCES / "engine" / "model" / "rpc_connections.cpp"


def test_system_dependent_code_is_in_one_folder() -> None:
    """The only exception is the RPC client."""
    found = {
        file.relative_to(SOURCES).as_posix()
        for file in SOURCES.rglob("*")
        if file.suffix in (".cpp", ".h")
        and SYSTEM_DEPENDENT.search(file.read_text(encoding="utf-8"))
    }
    assert {Path(name).parts[0] for name in found} == {"platform", "engine"}
    assert {name for name in found if not name.startswith("platform/")} == {
        RPC_CLIENT.relative_to(SOURCES).as_posix()
    }
