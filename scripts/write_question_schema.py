#!/usr/bin/env python3
"""Write docs/reference/questions.schema.json: the JSON Schema of question files, for editors.

The server checks and describes questions with the same models (``eliza_ffi/serve/questions.py``).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from eliza_ffi.serve.questions import Questions

SCHEMA = Path(__file__).resolve().parent.parent / "docs" / "reference" / "questions.schema.json"


def question_schema() -> str:
    adapter: TypeAdapter[Any] = TypeAdapter(Questions)
    written = adapter.json_schema()
    forms = {"oneOf": written.pop("oneOf")}
    own = {"$schema": {"type": "string"}}  # names this schema in a file
    (named,) = (form for form in forms["oneOf"] if form.get("type") == "object")
    named["properties"] = own
    file = {
        "type": "object",
        "properties": {**own, "questions": {"$ref": "#/$defs/Questions"}},
        "required": ["questions"],
        "additionalProperties": False,
    }
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Questions for eliza-ffi",
        "anyOf": [{"$ref": "#/$defs/Questions"}, file],
        "$defs": {**written["$defs"], "Questions": forms},
    }
    return json.dumps(schema) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(question_schema(), encoding="utf-8")
    print(SCHEMA)
