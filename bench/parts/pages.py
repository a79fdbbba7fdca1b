"""The command line of a benchmark, its results in files, and its tables in documents."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from page_tables import number

RESULTS = Path(__file__).resolve().parent.parent.parent / "bench" / "results"
"""The default folder of the results."""

Results = dict[str, Any]


def bench_parser(description: str, *, merge: bool = False) -> argparse.ArgumentParser:
    """Return a parser with the options for the output.

    `merge` adds the option ``--merge``; see `stored_or_measured`.
    """
    parser = argparse.ArgumentParser(description=description)
    add = parser.add_argument
    if merge:
        text = "keep the stored results that this run does not measure"
        add("--merge", action="store_true", help=text)
    text = "show these results (the stored results); measure nothing"
    add("--render", nargs="?", type=Path, const=Path(), metavar="JSON", help=text)
    text = "folder of the results (bench/results)"
    add("--out", type=Path, default=RESULTS, metavar="DIR", help=text)
    text = "also write the tables between FILE's markers; can be repeated"
    add("--docs", type=Path, action="append", default=[], metavar="FILE", help=text)
    return parser


def add_filter(parser: argparse.ArgumentParser, option: str, what: str, **more: Any) -> None:
    """Add an option, whose value is a list, that limits the run to some models or cells."""
    text = f"measure only {what}; can be repeated"
    parser.add_argument(option, action="append", default=[], help=text, **more)


def stored(file: Path) -> Results:
    """Return the results in a JSON file."""
    results: Results = json.loads(file.read_text(encoding="utf-8"))
    return results


def stored_or_measured(
    options: argparse.Namespace,  # the command line
    name: str,  # the name of the stored results, without ``.json``
    measure: Callable[[], Results],  # returns new results
    # The key of the list of items, and the fields that identify an item. If a stored item has the
    # same values in these fields as a new item, the new figures replace its figures. The other
    # results are the facts that the items depend on.
    items: str = "cells",
    key: Sequence[str] = (),
) -> Results:
    """Return the stored results with ``--render``, and measured results otherwise.

    With ``--merge``, stored items and figures that were not measured are kept. Then nothing except
    the items and the date may differ from the stored results.
    """
    file: Path = options.out / f"{name}.json"
    if options.render is not None:
        return stored(file if options.render == Path() else options.render)
    new = measure()
    if not (key and options.merge and file.is_file()):
        return new
    old = stored(file)
    if _state(old, items) != _state(new, items):
        raise SystemExit(
            "--merge: the stored results were measured on another machine, with other versions or "
            "with other settings"
        )
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for each in (*old[items], *new[items]):
        found.setdefault(tuple(each[field] for field in key), {}).update(each)
    return {**new, items: list(found.values())}


def _state(results: Results, items: str) -> Any:
    state = {name: value for name, value in results.items() if name != items}
    state["machine"] = {name: fact for name, fact in state["machine"].items() if name != "date"}
    return json.loads(json.dumps(state))  # turns tuples into lists, as in the stored results


def publish(name: str, results: Mapping[str, Any], tables: str, options: argparse.Namespace) -> int:
    """Write ``NAME.json``, print the tables, write them into documents, and return 0."""
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"{name}.json").write_text(as_json(results), encoding="utf-8")
    for page in options.docs:
        fill_sections(page, {name: tables})
    print(tables)
    return 0


def as_json(results: Mapping[str, Any]) -> str:
    """Return results as JSON with one line for each cell, and numbers of at most nine digits."""
    lines = []
    for name, value in results.items():
        if isinstance(value, list):
            listed = ",\n".join(json.dumps(_rounded(each), ensure_ascii=False) for each in value)
            lines.append(f"{json.dumps(name)}: [\n{listed}\n]")
        else:
            lines.append(f"{json.dumps(name)}: {json.dumps(_rounded(value), ensure_ascii=False)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, Mapping):
        return {name: _rounded(each) for name, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list | tuple) else value


def fill_sections(file: Path, sections: Mapping[str, str]) -> None:
    """Write each section into a document, between the markers with its name.

    The markers are ``<!-- bench:NAME:begin -->`` and ``<!-- bench:NAME:end -->``. Sections without
    markers are left out, but the document must have markers for one of them.
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


def page_of(*parts: str) -> str:
    """Join the paragraphs and tables of a page; empty ones are left out."""
    return "\n\n".join(filter(None, parts)) + "\n"


def spread(figures: Sequence[float], show: Callable[[float], str] = number, to: str = "-") -> str:
    """Return three quartiles as ``median (first-third)``."""
    low, middle, high = map(show, figures)
    return f"{middle} ({low}{to}{high})"


def by_method(
    methods: Mapping[str, Any], names: Iterable[str], show: Callable[[Any], str]
) -> list[str]:
    """Return the figures of each method for a table; a method that was not measured has a dash."""
    return [show(methods[name]) if name in methods else "-" for name in names]


def versions_of(peers: Iterable[Mapping[str, Any]]) -> str:
    """Return the names and versions of other libraries and programs."""
    return ", ".join(f"{each['name']} {each['version'] or 'missing'}" for each in peers)


def notes_of(
    results: Mapping[str, Any], named: Iterable[tuple[str, Mapping[str, Any]]], title: str
) -> str:
    """Return what was not measured: other libraries, and methods that failed in a cell."""
    missing = [
        f"- {each['name']}: {each['problem']}" for each in results["peers"] if not each["version"]
    ]
    failed = [
        f"- {name}, {method}: {problem[:200]}"
        for name, cell in named
        for method, problem in cell["problems"].items()
    ]
    parts = (("Not measured:", missing), (title, failed))
    return "\n\n".join(part for head, lines in parts if lines for part in (head, "\n".join(lines)))
