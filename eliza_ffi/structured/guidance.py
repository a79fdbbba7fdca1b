"""Compute token masks with llguidance, for JSON Schemas, regular expressions and Lark grammars."""

from __future__ import annotations

import functools
import json
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ElizaError, InvalidArgumentError, NativeFaultError, NotSupportedError
from .limits import checked_schema, checked_text
from .number_limit import MOST_DIGITS, NumberLimit, NumberTokens
from .schema import grammar_of_text, without_large_multiples
from .schema_plan import SchemaPlan, plan_of_text
from .token_texts import TokenTexts

MOST_KEPT = 64
"""The maximum number of compiled constraints in a model's cache. The cache drops the least recently
used constraint."""

MOST_KEPT_SECONDS = 10.0
"""The maximum CPU time that compiling all constraints in the cache took, except the newest one. It
bounds their memory, which llguidance does not report: about 130 MB for each second."""

LONGEST_ENDING = 256
"""The search for a short ending stops after this many tokens."""

CLOSING = (b"}", b"]", b",", b"0", b"n", b"t", b"f", b'"', b"{", b"[")
"""The bytes to try when closing an answer outside strings, in order of preference."""

CLOSING_IN_STRING = (b'"',)

_LARK = "Lark grammar"

TOO_COMPLEX = ("Stop: LexerTooComplex", "Stop: ParserTooComplex")
"""llguidance's reasons for giving up because of the constraint, which it may find only during a
text. Its error texts contain them; `stop_reason` returns only "InternalError"."""


class GuidanceSource:
    """Computes the token masks of one text.

    This object must be the only user of llguidance's `matcher`. `numbers` limits the digits of JSON
    numbers; None if the text is not JSON.
    """

    def __init__(
        self, matcher: Any, vocabulary: TokenTexts, numbers: NumberLimit | None = None
    ) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._numbers = numbers
        self._unscanned = bytearray()  # the text that `numbers` has not read

    @property
    def has_ended(self) -> bool:
        """Whether the text must end here."""
        ended = bool(self._matcher.is_stopped())
        if ended and self._matcher.is_error():
            raise self._failure()
        return ended

    @property
    def may_end(self) -> bool:
        """Whether the text may end here."""
        return bool(self._matcher.is_accepting())

    def forced(self) -> list[int]:
        """Return the tokens that must follow, as the model's tokenizer splits the text."""
        if not self._matcher.compute_ff_bytes():
            if self._matcher.is_error():
                raise self._failure()
            return []  # no bytes are forced, and checking bytes is faster than computing tokens
        tokens: list[int] = self._matcher.compute_ff_tokens()
        return tokens

    def mask(self) -> NDArray[np.uint32]:
        """Return the mask of allowed tokens, one bit each. Releases the GIL meanwhile."""
        mask = np.zeros(self._vocabulary.n_words, np.uint32)
        self._matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        if self._matcher.is_error():
            raise self._failure()
        numbers = self._numbers
        if numbers is None:
            return mask
        if self._unscanned:
            numbers.push(bytes(self._unscanned))
            self._unscanned.clear()
        return numbers.restricted(mask) if numbers.end else mask

    def accept(self, token: int) -> None:
        """Append a token to the text."""
        if not self._matcher.consume_token(token):
            if self._matcher.is_error():
                raise self._failure()
            raise NativeFaultError(f"llguidance rejected token {token}")
        if self._numbers is not None:
            self._unscanned += self._vocabulary.texts[token]

    def accept_all(self, tokens: Sequence[int]) -> None:
        """Append several tokens to the text."""
        if not self._matcher.consume_tokens(list(tokens)):
            for token in tokens:  # which raises at the wrong one
                self.accept(token)
        elif self._numbers is not None:
            self._unscanned += b"".join(map(self._vocabulary.texts.__getitem__, tokens))

    def _failure(self) -> ElizaError:
        said, _, state = self._matcher.get_error().partition("<state>")
        said = said.strip()
        is_rejected = "doesn't satisfy the grammar" in said  # about a token
        if not is_rejected and any(reason in state for reason in TOO_COMPLEX):
            return InvalidArgumentError(f"the shape of the answer is too complex: {said}")
        return NativeFaultError(f"llguidance failed: {said}")

    def ending(self) -> list[int] | None:
        """Append a short ending to the text, and return its tokens; None if none was found.

        At each step, append the forced tokens. If there are none, append the first allowed token of
        `CLOSING` (of `CLOSING_IN_STRING` inside a string), or else any allowed token.
        """
        tokens: list[int] = []
        while not self.may_end:
            if len(tokens) >= LONGEST_ENDING or self.has_ended:
                return None
            following = self.forced() or [self._closing_token()]
            for token in following:
                self.accept(token)
            tokens += following
        return tokens

    def _closing_token(self) -> int:
        mask = self.mask()
        in_string = self._numbers is not None and self._numbers.in_string
        for text in CLOSING_IN_STRING if in_string else CLOSING:
            token = self._vocabulary.token_of.get(text)
            if token is not None and mask[token // 32] >> np.uint32(token % 32) & 1:
                return token
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
        return int(np.flatnonzero(bits)[0])


class GuidanceMasks:
    """A constraint that llguidance has compiled.

    The `matcher` in its initial state is copied for each text and never advanced. `numbers` returns
    a new digit limit for one text; None if the answers are not JSON. `relaxed` lists the parts of a
    schema that the masks do not enforce. `plan` has the choices between known labels.
    """

    def __init__(
        self,
        matcher: Any,
        vocabulary: TokenTexts,
        numbers: Callable[[], NumberLimit] | None = None,
        relaxed: tuple[str, ...] = (),
        plan: SchemaPlan | None = None,
    ) -> None:
        self._matcher = matcher
        self.vocabulary = vocabulary
        self.plan = plan
        self._numbers = numbers
        self.n_words = vocabulary.n_words
        self.relaxed = relaxed

    def start(self) -> GuidanceSource:
        """Return the mask source of a new text."""
        numbers = None if self._numbers is None else self._numbers()
        return GuidanceSource(self._matcher.deep_copy(), self.vocabulary, numbers)

    def close(self, tokens: Sequence[int]) -> tuple[tuple[int, ...], str] | None:
        """Complete a truncated answer, given as its tokens, and return its tokens and its text.

        None if no ending was found in about 256 tokens.
        """
        source = self.start()
        source.accept_all(tokens)
        ending = source.ending()
        if ending is None:
            return None
        complete = (*tokens, *ending)
        text = b"".join(self.vocabulary.texts[token] for token in complete)
        return complete, text.decode("utf-8", "replace")


class Guidance:
    """Compiles constraints with llguidance for one model's vocabulary. Thread-safe."""

    def __init__(self, vocabulary: Callable[[], TokenTexts]) -> None:
        self._read_vocabulary = vocabulary
        self._tokenizer: Any = None
        self._number_tokens: NumberTokens | None = None
        self._kept: OrderedDict[Any, tuple[GuidanceMasks, float]] = OrderedDict()
        self._lock = threading.Lock()

    def json_schema(self, schema: Mapping[str, Any] | bool) -> GuidanceMasks:
        """Compile a JSON Schema; see :func:`.schema.schema_grammar` for errors and relaxations.

        Integers have at most 19 digits. Other numbers have at most 18 digits, and 2 more in the
        exponent. If the schema itself contains a longer number, the limit is higher. Times have at
        most :data:`.schema.LONGEST_TIME` characters, and numbers in durations at most six digits.
        """
        return self.schema_text(checked_schema(schema))

    def schema_text(self, text: str) -> GuidanceMasks:
        """Compile a JSON Schema, given as the text that :func:`.limits.checked_schema` returned."""
        made = grammar_of_text(text)
        limit = made.most_digits, (b"",)
        return self._masks("schema", made.grammar, limit, made.relaxed, plan_of_text(text))

    def regex(self, pattern: str) -> GuidanceMasks:
        """Compile a regular expression that must match the whole text.

        Classes such as ``\\d`` contain only ASCII characters. Raise InvalidArgumentError if
        llguidance rejects the expression.
        """
        from llguidance import LLMatcher, regex_to_lark

        kind = "regular expression"
        checked_text(kind, pattern)
        try:
            ascii_only = regex_to_lark(pattern, "dws")  # \d, \w and \s are ASCII only
        except ValueError as error:
            raise _rejected(kind, str(error)) from error
        return self._masks(kind, LLMatcher.grammar_from_lark(f"start: /{ascii_only}/"))

    def lark(
        self,
        grammar: str,
        *,
        json_after: Sequence[str] = (),
        most_digits: int = MOST_DIGITS,
        plan: SchemaPlan | None = None,
    ) -> GuidanceMasks:
        """Compile a Lark grammar with the start rule ``start``.

        `json_after` are the fixed strings that precede JSON values in the grammar; numbers in these
        values have at most `most_digits` digits. `plan` has the choices in the text, if it is JSON.
        Raise InvalidArgumentError if llguidance rejects the grammar.
        """
        after = tuple([text.encode() for text in json_after])
        limit = (most_digits, after) if after else None
        return self._masks(_LARK, checked_text(_LARK, grammar), limit, plan=plan)

    def _masks(
        self,
        kind: str,
        grammar: str,
        limit: tuple[int, tuple[bytes, ...]] | None = None,
        relaxed: tuple[str, ...] = (),
        plan: SchemaPlan | None = None,
    ) -> GuidanceMasks:
        key = kind, grammar, limit, relaxed, plan
        with self._lock:
            if key not in self._kept:
                begin = time.thread_time()
                masks = self._compiled(*key)
                self._kept[key] = masks, time.thread_time() - begin
            self._kept.move_to_end(key)
            while len(self._kept) > 1 and not self._fits():
                self._kept.popitem(last=False)
            return self._kept[key][0]

    def _fits(self) -> bool:
        seconds = sum(seconds for _, seconds in self._kept.values())
        return len(self._kept) <= MOST_KEPT and seconds <= MOST_KEPT_SECONDS

    def _compiled(
        self,
        kind: str,
        grammar: str,
        limit: tuple[int, tuple[bytes, ...]] | None,
        relaxed: tuple[str, ...],
        plan: SchemaPlan | None,
    ) -> GuidanceMasks:
        from llguidance import LLMatcher

        if kind == _LARK:
            _check_schemas_of(grammar)
            grammar = LLMatcher.grammar_from_lark(grammar)
        vocabulary = self._read_vocabulary()
        if self._tokenizer is None:
            self._tokenizer = _tokenizer_of(vocabulary)
        try:
            matcher = LLMatcher(self._tokenizer, grammar, log_level=0)
        except ValueError as error:  # for example, if the grammar is nested too deeply
            raise _rejected(kind, str(error)) from error
        if matcher.is_error():
            raise _rejected(kind, matcher.get_error())
        if limit is None:
            masks = GuidanceMasks(matcher, vocabulary)
        else:
            if self._number_tokens is None:
                self._number_tokens = NumberTokens(vocabulary)
            numbers = functools.partial(NumberLimit, self._number_tokens, *limit)
            masks = GuidanceMasks(matcher, vocabulary, numbers, relaxed, plan)
        _check_begins(kind, masks)
        return masks


def _tokenizer_of(vocabulary: TokenTexts) -> Any:
    """Return llguidance's tokenizer for a vocabulary.

    The tokenizer uses llguidance's slices for JSON, which make masks inside JSON strings up to ten
    times faster. In llguidance 1.9, its general slices for other constraints are the same.
    """
    from llguidance import LLTokenizer, TokenizerWrapper

    if not vocabulary.ends:
        raise NotSupportedError("the model has no end-of-text token")
    return LLTokenizer(
        TokenizerWrapper(_Wrapped(vocabulary)),
        eos_token=list(vocabulary.ends),
        slices=LLTokenizer.json_slices(),
    )


def _check_begins(kind: str, masks: GuidanceMasks) -> None:
    """Raise if no text can begin, as with a grammar whose rules only refer to themselves."""
    try:
        source = masks.start()
        source.mask()
        source.forced()
    except NativeFaultError as error:
        raise InvalidArgumentError(f"no text can match the {kind}: {error}") from None


def _check_schemas_of(grammar: str) -> None:
    """Raise if a ``%json`` of a Lark grammar has a schema that takes long to compile."""
    for each in re.finditer(r"%json\s*", grammar):
        try:
            schema, _ = json.JSONDecoder().raw_decode(grammar, each.end())
        except (ValueError, RecursionError):
            continue  # llguidance rejects it, or it is inside a string
        if isinstance(schema, dict) and (places := without_large_multiples(schema)):
            raise InvalidArgumentError(f"Lark grammar: %json {places[0]}, because it is too large")


def _rejected(kind: str, said: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"llguidance rejected the {kind}: {said.strip()}")


class _Wrapped:
    """A vocabulary with the attributes that llguidance requires of a tokenizer."""

    def __init__(self, vocabulary: TokenTexts) -> None:
        self.tokens = list(vocabulary.texts)
        self.special_token_ids = list(vocabulary.control)
        self.eos_token_id = vocabulary.ends[0]
        self.bos_token_id = None
        # Fixed text of schemas, which comes in every answer.
        self._tokenize = functools.lru_cache(maxsize=256)(vocabulary.speller.tokenize)

    def __call__(self, text: str) -> list[int]:
        if not isinstance(text, str):
            raise TypeError("expected a str")  # llguidance tries bytes first, then str
        try:
            return self._tokenize(text)
        except ElizaError:
            return []  # the model was closed meanwhile, which ends the generation anyway
