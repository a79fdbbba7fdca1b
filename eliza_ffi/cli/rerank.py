"""``eliza-ffi rerank``: sort documents by their relevance for a query."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from ..async_model import AsyncModel
from ..errors import InvalidArgumentError
from ..session.results import RerankResult
from ..terminal import printable
from .console import (
    UsageError,
    add_model_arguments,
    add_options,
    open_model,
    print_json,
    run_interruptibly,
)
from .files import STANDARD_INPUT, check_utf8, read_standard_input, read_text


@dataclass(frozen=True)
class _Document:
    name: str  # of the file; with the number of the line, if each line is a document
    text: str


def add_rerank_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Print documents with their relevance for a query, the most relevant first. The model must "
        "be a reranker."
    )
    parser.add_argument("query", metavar="QUERY", help="a question, or words to search for")
    parser.add_argument("files", metavar="FILE", nargs="+", help="a document; - = standard input")
    add_options(
        parser,
        {
            "--lines": "each line of the files that is not empty is a document",
            "--top-n N": "print the N most relevant documents (default: all)",
            "--json": "print JSON: the name, index, score and probability of each document",
        },
    )
    add_model_arguments(parser)


def run_rerank(arguments: argparse.Namespace) -> int:
    check_utf8(arguments.query, "QUERY")
    if not arguments.query.strip():
        raise UsageError("QUERY is empty")
    if arguments.files.count(STANDARD_INPUT) > 1:
        raise UsageError("standard input can be read only once: give - once")
    documents = [*_documents(arguments)]
    if not documents:
        raise UsageError("the files have no lines: expected at least one document")
    with open_model(arguments) as model:
        try:
            found = run_interruptibly(
                AsyncModel.of(model).rerank(
                    arguments.query, [each.text for each in documents], arguments.top_n
                )
            )
        except InvalidArgumentError as error:
            if error.index is None:
                raise
            reason = str(error).rpartition(": ")[2]
            raise InvalidArgumentError(
                f"{documents[error.index].name} with the query: {reason}"
            ) from error
    if arguments.json:
        print_json({"results": [_facts(each, documents) for each in found], "model": model.path})
        return 0
    for each in found:
        document = documents[each.index]
        print(
            f"{each.score:8.3f}  {printable(document.text if arguments.lines else document.name)}"
        )
    return 0


def _documents(arguments: argparse.Namespace) -> Iterator[_Document]:
    for path in arguments.files:
        is_input = path == STANDARD_INPUT
        text = read_standard_input() if is_input else read_text(path)
        name = "standard input" if is_input else path
        if not arguments.lines:
            if not text.strip():
                raise UsageError(f"{name} is empty: expected a document")
            yield _Document(name, text)
            continue
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                yield _Document(f"{name}: line {number}", line)


def _facts(result: RerankResult, documents: list[_Document]) -> dict[str, object]:
    return {
        "document": documents[result.index].name,
        "index": result.index,
        "score": result.score,
        "probability": result.probability,
    }
