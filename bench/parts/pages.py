"""Results on their way to people: files, and places in documents."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["RESULTS", "add_output_arguments", "fill_sections", "publish"]

RESULTS = Path(__file__).resolve().parent.parent.parent / "bench" / "results"
"""Where scripts write their results if not told otherwise."""


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Add where results go: ``--out`` and ``--docs``."""
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="DIR")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="put the tables between markers")


def fill_sections(file: Path, sections: Mapping[str, str]) -> None:
    """Put each text between the ``<!-- bench:NAME:begin -->`` and ``end`` of its name.

    A document need not have all of them.

    Raises
    ------
    ValueError
        If it has none.
    """
    text = file.read_text(encoding="utf-8")
    found = False
    for name, content in sections.items():
        begin, end = (f"<!-- bench:{name}:{edge} -->" for edge in ("begin", "end"))
        before, has_begin, rest = text.partition(begin)
        _, has_end, after = rest.partition(end)
        if has_begin and has_end:
            found = True
            text = f"{before}{begin}\n\n{content.strip()}\n\n{end}{after}"
    if not found:
        raise ValueError(f"{file} has no <!-- bench:NAME:begin --> and end for {[*sections]}")
    file.write_text(text, encoding="utf-8")


def publish(
    name: str, results: Mapping[str, Any], markdown: str, out: Path, docs: Path | None
) -> None:
    """Write ``NAME.json`` and ``NAME.md``, print the Markdown, and put it into a document."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (out / f"{name}.md").write_text(markdown, encoding="utf-8")
    if docs is not None:
        fill_sections(docs, {name: markdown})
    print(markdown)
