"""Write results to files, and tables into documents."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["RESULTS", "add_output_arguments", "fill_sections", "publish"]

RESULTS = Path(__file__).resolve().parent.parent.parent / "bench" / "results"
"""The default folder of the results."""


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the output: ``--out`` and ``--docs``."""
    parser.add_argument(
        "--out",
        type=Path,
        default=RESULTS,
        metavar="DIR",
        help="folder of the results (bench/results)",
    )
    parser.add_argument(
        "--docs", type=Path, metavar="FILE", help="also write the tables between FILE's markers"
    )


def fill_sections(file: Path, sections: Mapping[str, str]) -> None:
    """Write each section into a document, between the markers with its name.

    The markers are ``<!-- bench:NAME:begin -->`` and ``<!-- bench:NAME:end -->``. Sections without
    markers are left out.

    Raises
    ------
    ValueError
        If the document has no markers for any section.
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
        raise ValueError(
            f"{file}: expected <!-- bench:NAME:begin --> and <!-- bench:NAME:end --> for a NAME in "
            f"{[*sections]}, found none"
        )
    file.write_text(text, encoding="utf-8")


def publish(
    name: str, results: Mapping[str, Any], markdown: str, out: Path, docs: Path | None
) -> None:
    """Write ``NAME.json`` and ``NAME.md``, print the Markdown, and write it into a document."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (out / f"{name}.md").write_text(markdown, encoding="utf-8")
    if docs is not None:
        fill_sections(docs, {name: markdown})
    print(markdown)
