"""Compile JSON Schemas that have not been checked yet."""

from __future__ import annotations

from typing import Any

from eliza_ffi.structured.guidance import Guidance, GuidanceMasks
from eliza_ffi.structured.limits import checked_schema
from eliza_ffi.structured.schema import SchemaGrammar, grammar_of_text


def schema_grammar(schema: Any) -> SchemaGrammar:
    return grammar_of_text(checked_schema(schema))


def schema_masks(guidance: Guidance, schema: Any) -> GuidanceMasks:
    return guidance.schema_text(checked_schema(schema))
