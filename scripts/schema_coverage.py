#!/usr/bin/env python3
"""Count how many JSON Schemas compile, how many are relaxed, and why others are rejected.

    scripts/schema_coverage.py FOLDER [--answers N] [--reasons N]

Reads every ``*.json`` file below the folder, and every line of every ``*.jsonl`` file, as a schema.
If an object has a field ``json_schema`` (a schema, or its text), that is the schema. Results are
counted by folder. ``relaxed`` counts the compiled schemas that the token masks do not enforce
completely. With ``--answers N`` the embedded model writes N answers for each compiled schema,
sampled at a high temperature. ``failed`` counts answers that raised an error. ``invalid`` counts
answers that were returned but are not valid, which must be 0. Downloads and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jsonschema
from page_tables import markdown_table

from eliza_ffi import Model
from eliza_ffi.errors import FillError, InvalidArgumentError
from eliza_ffi.structured.limits import checked_schema
from eliza_ffi.structured.schema import grammar_of_text

SETTINGS: dict[str, Any] = {"max_tokens": 100, "on_limit": "close", "temperature": 1.5}
COLUMNS = ("schemas", "compiled", "relaxed", "broken", "answers", "failed", "invalid")

_PLACE = re.compile(r"^(unsupported )?(JSON schema at )?#\S*: ")
_DETAIL = re.compile(r"'[^']*'|\"[^\"]*\"|#/\S*|\d+")


def count(
    text: str,
    found: Counter[str],  # gets the counts of the folder, by the names in `COLUMNS`
    why: Counter[str],  # gets the reasons for rejections and for relaxed constraints
    model: Model | None,
    n: int,
) -> None:
    """Compile a schema, and let the model, if any, write `n` answers to it."""
    try:
        schema = json.loads(text)
        if isinstance(schema, dict) and "json_schema" in schema:
            inner = schema["json_schema"]
            schema = json.loads(inner) if isinstance(inner, str) else inner
    except (ValueError, RecursionError):
        found["broken"] += 1
        return
    found["schemas"] += 1
    try:
        grammar = grammar_of_text(checked_schema(schema))
    except InvalidArgumentError as error:
        why[f"rejected: {_kind_of(str(error))}"] += 1
        return
    found["compiled"] += 1
    found["relaxed"] += bool(grammar.relaxed)
    why.update({f"relaxed: {_kind_of(reason)}" for reason in grammar.relaxed})
    if model is None or not isinstance(schema, dict) or not schema:
        return
    draft = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    for _ in range(n):
        found["answers"] += 1
        try:
            value = model.fill("JSON: ", schema, **SETTINGS).value
        except (FillError, InvalidArgumentError):
            found["failed"] += 1
        else:
            found["invalid"] += not draft(schema).is_valid(value)


def _kind_of(reason: str) -> str:
    """Remove names, places and numbers from a reason."""
    return _DETAIL.sub("\u2026", _PLACE.sub("", reason))[:100]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("folder", type=Path)
    add("--answers", type=int, default=0, metavar="N", help="answers per schema (0)")
    add("--reasons", type=int, default=20, metavar="N", help="reasons to list (20)")
    options = parser.parse_args()
    if not options.folder.is_dir():
        parser.error(f"expected a folder, got {options.folder}")
    folders: dict[str, Counter[str]] = {}
    why: Counter[str] = Counter()
    with Model() if options.answers else nullcontext() as model:
        for file in sorted(options.folder.rglob("*.json*")):
            name = str(file.parent.relative_to(options.folder))
            text = file.read_text(encoding="utf-8", errors="replace")
            is_list = file.suffix == ".jsonl"
            for schema in filter(str.strip, text.splitlines()) if is_list else [text]:
                count(schema, folders.setdefault(name, Counter()), why, model, options.answers)
    folders["all"] = sum(folders.values(), Counter())
    rows = [[name, *(f"{each[column]:,}" for column in COLUMNS)] for name, each in folders.items()]
    print(markdown_table(["folder", *COLUMNS], rows))
    for reason, n in why.most_common(options.reasons):
        print(f"{n:6}  {reason}")
    return 1 if folders["all"]["invalid"] else 0


if __name__ == "__main__":
    sys.exit(main())
