"""Which system this is, the native sources ask in one folder."""

from __future__ import annotations

import re
from pathlib import Path

from checkout import ROOT

SOURCES = ROOT / "native" / "src"
ASKS = re.compile(
    r"#\s*include <(?:unistd|fcntl|sched|poll|pthread|dlfcn|netdb|signal|windows|sys/|netinet/)"
    r"|\b(?:__unix__|__linux__|__APPLE__|_WIN32|_MSC_VER)\b"
)
RPC_CLIENT = SOURCES / "engine" / "model" / "rpc_connections.cpp"


def test_what_systems_do_differently_is_in_one_folder() -> None:
    asking = {
        file.relative_to(SOURCES).as_posix()
        for file in SOURCES.rglob("*")
        if file.suffix in (".cpp", ".h") and ASKS.search(file.read_text(encoding="utf-8"))
    }
    assert {Path(name).parts[0] for name in asking} == {"platform", "engine"}
    assert {name for name in asking if not name.startswith("platform/")} == {
        RPC_CLIENT.relative_to(SOURCES).as_posix()
    }
