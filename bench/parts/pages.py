"""Write results to files, and tables into documents."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent.parent / "bench" / "results"
"""The default folder of the results."""


def add_filter(parser: argparse.ArgumentParser, option: str, what: str, **more: Any) -> None:
    """Add an option that limits the run to some models or cells.

    Parameters
    ----------
    option
        The option, such as ``--only``. It can be repeated; its value is a list.
    what
        The end of the help text "measure only ...", such as "this model".
    **more
        More arguments of `add_argument`.
    """
    text = f"measure only {what}; can be repeated"
    parser.add_argument(option, action="append", default=[], help=text, **more)


def add_output_arguments(
    parser: argparse.ArgumentParser, *, merge: bool = False, render: bool = False
) -> None:
    """Add the options for the output: ``--out``, ``--docs``, and on request two more.

    Parameters
    ----------
    merge, render
        Whether to add ``--merge`` and ``--render``; see `.merging.stored_or_measured`.
    """
    if merge:
        text = "keep the stored results that this run does not measure"
        parser.add_argument("--merge", action="store_true", help=text)
    if render:
        text = "show the stored results; measure nothing"
        parser.add_argument("--render", action="store_true", help=text)
    parser.add_argument(
        "--out",
        type=Path,
        default=RESULTS,
        metavar="DIR",
        help="folder of the results (bench/results)",
    )
    parser.add_argument(
        "--docs",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="also write the tables between FILE's markers; can be repeated",
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
    name: str, results: Mapping[str, Any], markdown: str, out: Path, docs: Iterable[Path]
) -> None:
    """Write ``NAME.json`` and ``NAME.md``, print the Markdown, and write it into documents."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (out / f"{name}.md").write_text(markdown, encoding="utf-8")
    for page in docs:
        fill_sections(page, {name: markdown})
    print(markdown)
