#!/usr/bin/env python3
"""Finish a release: the last step of ``make release``.

    $ python scripts/release_files.py dist build/release/tried.txt

Writes a software bill of materials (CycloneDX) and SHA256SUMS into the folder. Prints the files,
the checks that have passed, and the commands of docs/contribute/build.md that publish the release.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from fetch_llama_cpp import PINNED, source_tree

ROOT = Path(__file__).resolve().parents[1]


def bill_of_materials(version: str) -> Any:
    header = (source_tree() / "vendor" / "nlohmann" / "json.hpp").read_text(encoding="utf-8")
    numbers = re.findall(r"#define NLOHMANN_JSON_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header)
    values = {
        "version": version,
        "llama_cpp": PINNED.commit,
        "xllamacpp": PINNED.version,
        "sha256": PINNED.sha256,
        "nlohmann_json": ".".join(numbers),
        "ziglang": metadata.version("ziglang"),
    }
    text = Path(__file__).with_name("sbom.json").read_text(encoding="utf-8")
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    bill = json.loads(text)
    for requirement in metadata.requires("eliza-ffi") or ():
        if "extra ==" not in requirement:
            name = re.split(r"[^\w-]", requirement)[0]
            purl = f"pkg:pypi/{name}"
            required = {"type": "library", "name": name, "description": requirement, "purl": purl}
            bill["components"].append(required)
    return bill


def main(folder: Path, tried: Path) -> None:
    version = metadata.version("eliza-ffi")
    bill = json.dumps(bill_of_materials(version), indent=2) + "\n"
    (folder / f"eliza-ffi-{version}.cdx.json").write_text(bill, encoding="utf-8")
    files = sorted(path for path in folder.iterdir() if path.name != "SHA256SUMS")
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    passed = tried.read_text(encoding="utf-8").splitlines() if tried.is_file() else []
    page = (ROOT / "docs" / "contribute" / "build.md").read_text(encoding="utf-8")
    commands = page.partition("## A release")[2].partition("```sh\n")[2].partition("```")[0]
    built = [f"[x] {path.name}, {path.stat().st_size:,} bytes" for path in files]
    tried_or_not = [f"[x] {line}" for line in passed] or ["[ ] scripts/check_bare_debian.sh"]
    print("Built:", *built, "Tried:", *tried_or_not, sep="\n")
    print(f"To publish:\n{commands.replace('VERSION', version)}", end="")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
