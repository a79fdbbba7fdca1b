r"""The prefixes that embedding models were trained with.

Many embedding models expect a few words before each text, which name the text's purpose. Their GGUF
files do not have these words, so the family is found by the model's name, or else by its
architecture. The sources are the model cards:

- huggingface.co/intfloat/e5-base-v2, .../multilingual-e5-large-instruct, .../e5-mistral-7b-instruct
- huggingface.co/nomic-ai/nomic-embed-text-v1.5, .../nomic-embed-text-v2-moe
- huggingface.co/google/embeddinggemma-300m
- huggingface.co/Qwen/Qwen3-Embedding-0.6B
- huggingface.co/BAAI/bge-base-en-v1.5, and huggingface.co/Snowflake/snowflake-arctic-embed-m: their
  prefix is only for the queries of a search, so it is left out here, as for all other models.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, NamedTuple

__all__ = ["NO_PREFIXES", "Prefixes", "prefixes"]


class Prefixes(NamedTuple):
    """The text before an input, and before the text of an option with which it is compared.

    In the prefix of an input, ``{question}`` stands for the question about the input.
    """

    input: str
    option: str

    def of_input(self, question: str) -> str:
        """Return the prefix of an input about which this question is asked."""
        return self.input.replace("{question}", question)


NO_PREFIXES = Prefixes("", "")

E5 = Prefixes("query: ", "passage: ")
# The model cards differ in the space after "Query:".
E5_INSTRUCT = Prefixes("Instruct: {question}\nQuery: ", "")
QWEN3 = Prefixes("Instruct: {question}\nQuery:", "")
NOMIC = Prefixes("classification: ", "classification: ")
GEMMA = Prefixes("task: classification | query: ", "title: none | text: ")

BY_NAME = (
    (r"\be5\b.*\binstruct\b", E5_INSTRUCT),
    (r"\be5\b", E5),
    (r"\bnomic-embed-text\b", NOMIC),
    (r"\bembedding-?gemma\b", GEMMA),
    (r"\bqwen3-embedding\b", QWEN3),
)
"""The first expression that matches counts. Names are in lower case, with hyphens."""

BY_ARCHITECTURE = {"gemma-embedding": GEMMA}
"""Architectures that only one family has."""


def prefixes(facts: Mapping[str, Any]) -> Prefixes:
    """Return the prefixes for a model, given the facts in ``Model.describe()["model"]``.

    All models without a known family have empty prefixes, and so do rerankers. The options
    ``input_prefix`` and ``option_prefix`` of a model replace its family's prefixes.
    """
    own = _of_family(facts)
    return Prefixes(facts.get("input_prefix", own.input), facts.get("option_prefix", own.option))


def _of_family(facts: Mapping[str, Any]) -> Prefixes:
    if facts.get("pooling") == "rank":
        return NO_PREFIXES
    for given in (facts.get("name") or "", PurePath(facts.get("path") or "").name):
        name = re.sub(r"[\s_.]+", "-", given.lower())
        for expression, found in BY_NAME:
            if re.search(expression, name):
                return found
    return BY_ARCHITECTURE.get(facts.get("architecture", ""), NO_PREFIXES)
