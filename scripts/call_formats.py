#!/usr/bin/env python3
"""Print a Markdown table of the tool-call format of each chat template in llama.cpp's source.

    $ python scripts/call_formats.py           # also updates docs/reference/call-formats.md
    $ python scripts/call_formats.py --check   # exit code 1 if the page is out of date

The templates come from the pinned llama.cpp, which is downloaded if it is not in the cache.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from fetch_llama_cpp import source_tree
from page_tables import markdown_table

from eliza_ffi.chat import ChatTemplate
from eliza_ffi.chat.call_finder import find_call_format
from eliza_ffi.chat.call_format import CallFormat, Hole, Json
from eliza_ffi.errors import ChatTemplateError

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "call-formats.md"
BEGIN, END = "<!-- call-formats:begin -->", "<!-- call-formats:end -->"
HEAD = [
    "template",
    "question",
    "tools",
    "calls",
    "a call begins with",
    "arguments",
    "a string ends at",
    "id",
    "several",
    "thoughts",
]


def table() -> str:
    """Return a summary of all templates, followed by the table."""
    rows, kinds = [], Counter[str]()
    for file in sorted((source_tree() / "models" / "templates").glob("*.jinja")):
        template = ChatTemplate(file.read_text(encoding="utf-8"), "<s>", "</s>")
        try:
            format = find_call_format(template)
        except ChatTemplateError:
            kinds["rejected"] += 1
            rows.append([f"`{file.stem}`", "rejected", *[""] * (len(HEAD) - 2)])
            continue
        kinds["generic" if format.generic else arguments_of(format)] += 1
        rows.append([f"`{file.stem}`", "yes", *cells(format)])
    summary = (
        f"Of {kinds.total()} templates, {kinds['JSON'] + kinds['one by one']} write calls: "
        f"{kinds['JSON']} with arguments as JSON, {kinds['one by one']} with arguments one by one. "
        f"{kinds['generic']} write no calls and get the generic format. "
        f"{kinds['rejected']} cannot be used with tools."
    )
    return f"{summary}\n\n{markdown_table(HEAD, rows, left=len(HEAD))}"


def cells(format: CallFormat) -> list[str]:
    """Return the cells of a row, beginning with the column `tools`."""
    listed = "yes" if format.lists_tools else "in the system message"
    number = "number" if Hole.INDEX in format.call else ""
    return [
        listed,
        "generic" if format.generic else "yes",
        shown(format.call_start),
        arguments_of(format),
        shown(format.forbidden or ""),
        "id" if Hole.ID in format.call else number,
        "yes" if format.parallel else "no",
        "yes" if format.thoughts else "no",
    ]


def arguments_of(format: CallFormat) -> str:
    return "JSON" if isinstance(format.arguments, Json) else "one by one"


def shown(text: str) -> str:
    """Return a string as inline code for a table cell; an empty string stays empty."""
    text = text.replace("\n", "\\n").replace("|", "\\|")
    return f"`{text}`" if text else ""


def page(text: str, content: str) -> str:
    """Return the page with the content between its markers replaced."""
    before, _, rest = text.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"expected the markers {BEGIN} and {END} in the page, in this order")
    return f"{before}{BEGIN}\n\n{content}\n\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="compare the page instead of writing it"
    )
    parser.add_argument("--page", type=Path, default=PAGE, metavar="FILE")
    options = parser.parse_args(arguments)
    text = options.page.read_text(encoding="utf-8")
    content = table()
    wanted = page(text, content)
    if options.check:
        if text != wanted:
            print(f"{options.page} is out of date: run scripts/call_formats.py", file=sys.stderr)
        return int(text != wanted)
    print(content)
    options.page.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
