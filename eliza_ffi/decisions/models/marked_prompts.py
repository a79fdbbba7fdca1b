"""Decision models that return scores instead of embeddings.

The score of an option in ``kev`` is the dot product of a query (the first half of the last token's
row) and a key (the second half of the mark's row), divided by the square root of their length. In
``laya`` and ``lfm2-d1-omni`` it is the value in the column of the question's type. Questions and
options are cut as in the training of the models. ``clef`` has no marks: one prompt has all
questions, the library tells the model which tokens are questions and options, and each option has a
row.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ..._lazy import lazy_property
from ...chat.vocabulary import Detokenize, Tokenize
from ...errors import ChatTemplateError, ContextFullError, InvalidArgumentError, ModelError
from .systemone import SystemoneQuestion, json_copy

MASK = "tokenizer.ggml.mask_token_id"
SEPARATOR = "tokenizer.ggml.seperator_token_id"  # the name is spelled in this way
HEAD = "max_head_tokens"

LONGEST_OPTION = 48  # of laya, in tokens
LONGEST_PROMPT = 16_384  # of lfm2-d1-omni, in tokens

COLUMNS = ("choice", "score", "noul")
ROLES = {"noul": 1, "choice": 2, "score": 3}  # of the tokens of a question
ROLE_OF_OPTION = 4

# The variables that a template writes between the pieces of a prompt (the first one), and at the
# beginning of a piece, and their ids as tokens.
NAMES = {"sep": -1, "mark_state": -2, "mark_question": -3, "mark_option": -4}
BETWEEN, STATE, QUESTION, OPTION = NAMES.values()
PIECES = {"lfm2-d1-omni": "<<d1omni:", "clef": "<<clef:"}  # how the texts of the marks begin

Change: TypeAlias = Callable[[str], str]


@dataclass(frozen=True)
class MarkedPrompt:
    """Hold the tokens of a question's whole prompt, and the positions of the options' marks, in the
    order shown. `column` is None if a query is compared with keys."""

    tokens: tuple[int, ...]
    marks: tuple[int, ...]
    column: int | None

    @lazy_property
    def read(self) -> tuple[int, ...]:
        """The positions whose rows are needed, ascending."""
        last = () if self.column is not None else (len(self.tokens) - 1,)
        return tuple(dict.fromkeys(self.marks + last))

    def scores(self, rows: Any) -> list[float]:
        """Return the score of each answer, from the rows of the positions `read`."""
        values = np.asarray(rows, np.float64)
        half = values.shape[1] // 2
        keys = values[: len(self.marks), half : 2 * half]
        compared = keys @ values[-1, :half] / np.sqrt(half)
        return list(map(float, compared if self.column is None else values[:, self.column]))


@dataclass(frozen=True)
class JointPrompt:
    """Hold the tokens of a prompt with all questions, the role of each token, and the range of this
    question's options among all options."""

    tokens: tuple[int, ...]
    roles: tuple[int, ...]
    options: range
    n_options: int  # of all questions

    @property
    def read(self) -> range:
        """The numbers of the options whose scores are needed: the options of all questions."""
        return range(self.n_options)

    def scores(self, rows: Any) -> list[float]:
        """Return the score of each answer to this question, from the rows of all options."""
        return [float(rows[i][0]) for i in self.options]


class MarkedFormat:
    """The prompts of a type, with `tokenize` and `detokenize` for the text of a template, which
    begins with `preamble`. Raise ModelError if the vocabulary has no mark or the metadata lacks an
    entry."""

    def __init__(
        self, type: str, tokenize: Tokenize, detokenize: Detokenize, metadata: Mapping[str, Any]
    ) -> None:
        self._type, self._metadata = type, metadata
        self.tokenize, self.detokenize, self.preamble = tokenize, detokenize, ""
        if type == "kev":
            marks = tokenize("<|box_end|>", False, True)
            if len(marks) != 1:
                raise ModelError("the vocabulary has no token <|box_end|>")
            self._mark = marks[0]
            return
        if type in PIECES:
            kinds = {
                f"{PIECES[type]}{name.removeprefix('mark_')}>>": id for name, id in NAMES.items()
            }
            self.tokenize, self.detokenize = _in_pieces(kinds, tokenize, detokenize)
            self.preamble = "".join(
                f'{{% set {name} = "{text}" %}}' for name, text in zip(NAMES, kinds, strict=True)
            )
        if type == "clef":
            return
        self._mark = self._whole(MASK)
        if type == "laya":
            self._mark_text = detokenize([self._mark], unparse_special=True)
            self._separator, self._n_head = self._whole(SEPARATOR), self._whole(HEAD, 1)

    def _whole(self, name: str, least: int = 0) -> int:
        value = self._metadata.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ModelError(f"the metadata has no valid {name}: {value!r}")
        return value

    def copy(self, value: Any) -> Any:
        """Return the text or JSON that the template gets for a user's text or JSON."""
        if self._type == "kev":
            return None if value is None else _escaped(_written(value, 0))
        if self._type == "laya":
            return _changed(value, lambda text: text.replace(self._mark_text, " "))
        begin = PIECES[self._type]
        without = begin.replace(":", " ")
        if self._type == "clef":
            return _changed(json_copy(value, sort=True), lambda text: text.replace(begin, without))
        return _changed(value, lambda text: _escaped(text).replace(begin, without), _escaped)

    def joint_prompts(
        self, tokens: list[int], questions: Sequence[SystemoneQuestion]
    ) -> list[JointPrompt]:
        """Return the prompt of all questions, whose tokens the template wrote, once for each.
        Raise ChatTemplateError for unexpected pieces, and InvalidArgumentError for a question or an
        option without text."""
        ids: list[int] = []
        roles: list[int] = []
        begins: list[int] = []  # the number of the first option of each question
        n_options = 0
        for kind, piece in _pieces(tokens):
            role = 0
            if kind == QUESTION and len(begins) < len(questions):
                role = ROLES[questions[len(begins)].type]
                begins.append(n_options)
            elif kind == OPTION:
                role = ROLE_OF_OPTION
                n_options += 1
            elif kind:
                raise _unexpected("more questions than were asked, or a mark of another type")
            if role and not piece:
                raise InvalidArgumentError(
                    f"the question {questions[max(0, len(begins) - 1)].id!r}: instructions and "
                    "options must not be empty for a decision model of type clef"
                )
            if role and roles[-1:] == [role]:
                raise _unexpected("no text between two options")
            ids += piece
            roles += [role] * len(piece)
        own = list(itertools.starmap(range, itertools.pairwise([*begins, n_options])))
        if [*map(len, own)] != [len(question.options) for question in questions]:
            raise _unexpected(f"{n_options} options of {len(begins)} questions")
        return [JointPrompt(tuple(ids), tuple(roles), each, n_options) for each in own]

    def prompt(self, tokens: list[int], question: SystemoneQuestion) -> MarkedPrompt:
        """Return the prompt of a question, whose tokens the template wrote, cut as in training.
        Raise ChatTemplateError for unexpected marks, and ContextFullError if the options do not
        fit."""
        n, column, cut = len(question.options), COLUMNS.index(question.type), tokens
        if self._type != "kev":
            cut = self._with_short_head(cut, n) if self._type == "laya" else _joined(cut, n)
        marks = _places(self._mark, cut)
        if len(marks) < n == tokens.count(self._mark):
            reason = f"{n} options do not fit a prompt of {LONGEST_PROMPT:,} tokens"
            raise ContextFullError(f"the question {question.id!r}: {reason}")
        if len(marks) != n:
            raise _unexpected(f"{len(marks)} marks for {n} options")
        return MarkedPrompt(tuple(cut), tuple(marks), None if self._type == "kev" else column)

    def _with_short_head(self, tokens: list[int], n: int) -> list[int]:
        """Cut the question and the options of ``laya``. The tokens are [CLS], the question, a
        separator, the options, each after a mark, a separator, the input, and a separator."""
        marks, ends = _places(self._mark, tokens), _places(self._separator, tokens)
        after = [i for i in ends if marks and i > marks[-1]]
        begin = marks[0] - 1 if len(after) > 1 and after[-1] == len(tokens) - 1 else 0
        if begin < 1 or begin not in ends:
            raise _unexpected("separators at other places")
        pairs = itertools.pairwise([*marks, after[0]])
        options = [tokens[a:b][: LONGEST_OPTION + 1] for a, b in pairs]
        if sum(map(len, options)) + 16 > self._n_head:
            options = [each[: max(4, max(0, self._n_head - 16) // n)] for each in options]
        n_asked = max(8, self._n_head - sum(map(len, options)))
        asked = [*tokens[: min(begin, 1 + n_asked)], self._separator]
        return [*asked, *itertools.chain.from_iterable(options), *tokens[after[0] :]]


def _in_pieces(
    kinds: Mapping[str, int], tokenize: Tokenize, detokenize: Detokenize
) -> tuple[Tokenize, Detokenize]:
    """Return functions to which the texts between pieces are control tokens with negative ids."""
    split = re.compile(f"({'|'.join(kinds)})").split
    texts = {id: text for text, id in kinds.items()}

    def tokens_of(text: str, add_special: bool, parse_special: bool) -> list[int]:
        if not parse_special:
            return tokenize(text, False, False)
        parts = (
            [kinds[each]] if each in kinds else tokenize(each, False, True) for each in split(text)
        )
        return list(itertools.chain.from_iterable(parts))

    def text_of(tokens: Sequence[int], unparse_special: bool = False) -> str:
        if tokens[0] >= 0:
            return detokenize(tokens, unparse_special=unparse_special)
        return texts[tokens[0]] if unparse_special else ""

    return tokens_of, text_of


def _pieces(tokens: list[int]) -> Iterator[tuple[int, list[int]]]:
    """Yield the pieces of a prompt, each with the mark that it begins with, or 0."""
    begins = _places(BETWEEN, tokens)
    for begin, end in itertools.pairwise([-1, *begins, len(tokens)]):
        kind = tokens[begin + 1] if begin + 1 < end else 0
        piece = tokens[begin + 1 + (kind < 0) : end]
        if any(token < 0 for token in piece):
            raise _unexpected("a mark within a piece")
        yield min(kind, 0), piece


def _joined(tokens: list[int], n: int) -> list[int]:
    """Cut the pieces of a prompt of ``lfm2-d1-omni`` with `n` options, and join them."""
    budget = max(96, min(24 * n + 32, LONGEST_PROMPT // 2))
    longest = {QUESTION: budget, OPTION: max(2, budget // n - 3)}
    parts: list[list[int]] = [[]]  # before the input, the input, after the input
    for kind, piece in _pieces(tokens):
        if kind == STATE:
            parts += [piece, []]
        else:
            parts[-1] += piece[: longest.get(kind)]
    if tokens[:1] != [BETWEEN] or len(parts) != 3:
        raise _unexpected("no pieces with one input")
    before, state, after = parts
    n_state = max(0, LONGEST_PROMPT - len(before) - len(after))
    return (before + state[:n_state] + after)[:LONGEST_PROMPT]


def _places(token: int, tokens: list[int]) -> list[int]:
    return [i for i, each in enumerate(tokens) if each == token]


def _unexpected(what: str) -> ChatTemplateError:
    return ChatTemplateError(f"the model's template wrote an unexpected prompt: {what}")


def _escaped(text: str) -> str:
    """Change everything that looks like a special token."""
    return re.sub(r"<\|([A-Za-z0-9_]+)\|>", "<\u00a6\\1\u00a6>", text)


def _changed(value: Any, change: Change, of_key: Change = str) -> Any:
    """Return a copy of JSON with changed strings and keys."""
    if isinstance(value, list):
        return [_changed(item, change, of_key) for item in value]
    if isinstance(value, dict):
        return {of_key(key): _changed(item, change, of_key) for key, item in value.items()}
    return change(value) if isinstance(value, str) else value


def _written(value: Any, depth: int) -> str:
    """Return JSON as the text that ``kev`` was trained on."""
    indent = "  " * depth
    if isinstance(value, list):
        items = (_written(item, depth + 1).lstrip(" \t\n\r") for item in value)
        return "\n".join(f"{indent}- {item}" for item in items)
    if isinstance(value, dict):
        lines = []
        for key, item in value.items():
            is_nested = isinstance(item, list | dict)
            text = _written(item, depth + 1 if is_nested else 0)
            lines.append(indent + key + (":\n" if is_nested else ": ") + text)
        return "\n".join(lines)
    if isinstance(value, bool | str):
        return str(value)
    return "" if value is None else json.dumps(value)
