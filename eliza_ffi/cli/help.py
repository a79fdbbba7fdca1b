"""The text that ``--help`` shows below the options: notes, and examples to copy."""

from __future__ import annotations

import argparse
import textwrap

_SHORT = {
    "serve": "serve --port 8080",
    "mcp": "mcp --port 8081",
    "tokenize": "tokenize --prompt 'Hello, world'",
    "models": "models",
    "doctor": "doctor",
}

EXAMPLES = {
    **{name: f"\nExample:\n\n  eliza-ffi {line}\n" for name, line in _SHORT.items()},
    "choose": r"""
Example:

  eliza-ffi choose --prompt 'Is snow white? ' \
    --label yes --label no
""",
    "rank": r"""
Example:

  eliza-ffi rank --prompt 'A good pet is a ' \
    --label cat --label dog --label horse

For a file with a label in each line:

  printf 'red car\nred house\nblue house\n' | \
    eliza-ffi rank --prompt 'I like the ' \
    --labels-file - -k 2
""",
    "rerank": r"""
Example, for documents in the lines of a file:

  eliza-ffi rerank --model reranker.gguf --lines \
    'Where is my refund?' mails.csv

For the lines of standard input:

  printf 'a cat\nRefunds take five days.\n' | \
    eliza-ffi rerank --model reranker.gguf \
    --lines 'How do I get a refund?' -
""",
    "generate": r"""
Example:

  eliza-ffi generate --chat --max-tokens 32 \
    --prompt 'Say hello.'
""",
    "decide": r"""
Example:

  eliza-ffi decide --input 'It crashed again!' \
    --predicate 'The writer is angry.'

For every row of a table with the column text:

  eliza-ffi decide mails.csv --column text \
    --ask 'Which team?' --option sales \
    --option support --output teams.csv
""",
    "count": r"""
Example, for an output of eliza-ffi decide with the answers urgent:

  eliza-ffi count decided.csv --answers urgent \
    --random-labels urgent-labels.csv
""",
    "evaluate": r"""
Example, for a table with the columns text and urgent (true or false):

  eliza-ffi evaluate mails.csv --column text \
    --predicate 'It is urgent.' --name urgent
""",
    "compare": r"""
Example, for two outputs of eliza-ffi decide and a file of eliza-ffi label:

  eliza-ffi compare old.csv new.csv \
    --labels urgent-labels.csv \
    --predicate 'It is urgent.' --name urgent
""",
    "label": r"""
Example, for a table with the column text:

  eliza-ffi label mails.csv --column text \
    --predicate 'It is urgent.' --name urgent \
    --output urgent-labels.csv
""",
    "calibrate": r"""
Example, for a table with the columns text and urgent (true or false):

  eliza-ffi calibrate mails.csv --column text \
    --predicate 'It is urgent.' --name urgent \
    --output urgent.json
""",
}
"""Runnable commands, in lines that fit a narrow terminal."""


class HelpFormatter(argparse.HelpFormatter):
    """Keeps the line breaks of examples, which are indented, and wraps all other paragraphs."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = [paragraph.strip("\n") for paragraph in text.split("\n\n")]
        return "\n\n".join(
            paragraph
            if paragraph.startswith("  ")
            else textwrap.fill(" ".join(paragraph.split()), width)
            for paragraph in paragraphs
        )


def with_example(command: str, more: str | None) -> str:
    """Return the end of a command's help: the notes in `more`, if any, and the example."""
    return "\n\n".join([*([more] if more else []), EXAMPLES[command]])
