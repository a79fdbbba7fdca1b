"""Compute token masks with llguidance, for JSON Schemas, regular expressions and Lark grammars."""

from __future__ import annotations

import functools
import json
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import (
    ElizaError,
    InvalidAnswerError,
    InvalidArgumentError,
    NativeFaultError,
    NotSupportedError,
)
from .json_limit import MAX_DIGITS, JsonLimit, JsonTokens
from .limits import check_depth_of_grammar, check_references, checked_text
from .schema import grammar_of_text, without_large_multiples
from .schema_plan import SchemaPlan, plan_of_text
from .schema_walk import SchemaDocument, may_repeat_names
from .token_texts import TokenTexts

MAX_CACHED = 64
"""The maximum number of compiled constraints in a model's cache. The cache drops the least recently
used constraint."""

MAX_CACHED_SECONDS = 10.0
"""The maximum CPU time that compiling all constraints in the cache took, except the newest one. It
bounds their memory, which llguidance does not report: about 130 MB for each second."""

MAX_LEXER_FUEL = 10**6
LEXER_FUEL = 300_000
FUEL_OF_BYTE = 4
"""llguidance's limit for the regular expressions of a constraint: a number, and more for each byte
of the constraint, up to the maximum. It bounds their memory, about 170 bytes for each unit. A short
expression such as ``((a{1000}){1000}){1000}`` gets 55 MB; a long list of values needs more."""

LONGEST_ENDING = 256
"""The search for a short ending stops after this many tokens."""

CLOSING = (b"}", b"]", b",", b"0", b"n", b"t", b"f", b'"', b"{", b"[")
"""The bytes to try when closing an answer outside strings, in order of preference."""

CLOSING_IN_STRING = (b'"',)

_LARK = "Lark grammar"

_NO_NAME = "the answer can only go on with a name that the object already has"

TOO_COMPLEX = ("Stop: LexerTooComplex", "Stop: ParserTooComplex")
"""llguidance's reasons for giving up because of the constraint, which it may find only during a
text. Its error texts contain them; `stop_reason` returns only "InternalError"."""


class Constraint(NamedTuple):
    """A grammar for llguidance, and the conditions that the grammar cannot express."""

    kind: str
    grammar: str
    repeats_names: bool | None = False  # whether an object could have a name twice; None = look
    max_digits: int = MAX_DIGITS
    json_after: tuple[bytes, ...] = ()  # the fixed strings before JSON values
    relaxed: tuple[str, ...] = ()
    plan: SchemaPlan | None = None  # the choices in the text, if it is JSON


def lark_constraint(
    grammar: str,
    *,
    json_after: Iterable[str] = (),
    max_digits: int = MAX_DIGITS,
    plan: SchemaPlan | None = None,
) -> Constraint:
    """Check a Lark grammar. `json_after` are the fixed strings before JSON values, whose numbers
    have at most `max_digits` digits."""
    checked_text(_LARK, grammar)
    after = tuple([text.encode() for text in json_after])
    return Constraint(_LARK, grammar, None, max_digits, after, plan=plan)


class GuidanceSource:
    """Computes the token masks of one text, as the only user of llguidance's `matcher`, which was
    made with `tokenizer`."""

    def __init__(
        self, matcher: Any, tokenizer: Any, vocabulary: TokenTexts, limits: JsonLimit
    ) -> None:
        self._matcher = matcher
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._limits = limits
        self._names = limits if limits.limits_names else None
        self.has_ended = matcher.is_stopped()

    @property
    def may_end(self) -> bool:
        return bool(self._matcher.is_accepting())

    def forced(self) -> list[int]:
        if not (text := self._matcher.compute_ff_bytes()):
            if self._matcher.is_error():
                raise self._failure()
            return []  # no bytes are forced, and checking bytes is faster than computing tokens
        if self._names is not None and self._names.repeats(text):
            raise InvalidAnswerError(f"{_NO_NAME}: {text.decode('utf-8', 'replace')!r}", None)
        tokens: list[int] = self._matcher.compute_ff_tokens()
        return tokens

    def allowed(self, begun: str, ends: Iterable[str]) -> list[int]:
        """Return the indices of the ends of a begun text with which it may come next."""
        names, found = self._names, []
        for i, end in enumerate(ends):
            text = begun + end
            tokens = self._tokenizer.greedy_tokenize(text)
            is_valid = self._matcher.validate_tokens(tokens) == len(tokens)
            if is_valid and not (names is not None and names.repeats(text.encode())):
                found.append(i)
        return found

    def mask(self) -> NDArray[np.uint32]:
        """Return the mask of allowed tokens, one bit each. Releases the GIL meanwhile."""
        mask = np.zeros(self._vocabulary.n_words, np.uint32)
        self._matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        if self._matcher.is_error():
            raise self._failure()
        if self._limits.end:
            mask = self._limits.restricted(mask)
        if self._names is not None:
            self._forbid_repeats(mask, self._names)
        return mask

    def _forbid_repeats(self, mask: NDArray[np.uint32], names: JsonLimit) -> None:
        def has(token: int) -> bool:
            return bool(mask[token // 32] >> np.uint32(token % 32) & 1)

        found = False
        for token in filter(has, names.candidates()):
            if names.repeats(self._vocabulary.texts[token]) or self._forces_repeat(token, names):
                mask[token // 32] &= ~np.uint32(1 << token % 32)
                found = True
        if found and not mask.any():
            raise InvalidAnswerError(_NO_NAME, None)

    def _forces_repeat(self, token: int, names: JsonLimit) -> bool:
        """Return whether only a name that the object already has could follow a token."""
        text = self._vocabulary.texts[token]
        if not names.is_begun(text):
            return False
        matcher = self._matcher.deep_copy()
        matcher.consume_token(token)
        return names.repeats(text + bytes(matcher.compute_ff_bytes()))

    def accept(self, token: int) -> None:
        self.accept_all((token,))

    def accept_all(self, tokens: Sequence[int]) -> None:
        if not tokens:
            return
        if not self._matcher.consume_tokens(list(tokens)):
            if self._matcher.is_error():
                raise self._failure()
            raise NativeFaultError(f"llguidance rejected one of the tokens {list(tokens)}")
        self._limits.push(b"".join(map(self._vocabulary.texts.__getitem__, tokens)))
        self.has_ended = self._matcher.is_stopped()
        if self.has_ended and self._matcher.is_error():
            raise self._failure()

    def _failure(self) -> ElizaError:
        message, _, state = self._matcher.get_error().partition("<state>")
        message = message.strip()
        is_rejected = "doesn't satisfy the grammar" in message  # about a token
        if not is_rejected and any(reason in state for reason in TOO_COMPLEX):
            return InvalidArgumentError(f"the schema is too complex: {message}")
        return NativeFaultError(f"llguidance failed: {message}")

    def ending(self) -> list[int] | None:
        """Append a short ending to the text, and return its tokens; None if none was found."""
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
        for text in CLOSING_IN_STRING if self._limits.scanner.in_string else CLOSING:
            token = self._vocabulary.token_of.get(text)
            if token is not None and mask[token // 32] >> np.uint32(token % 32) & 1:
                return token
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
        return int(np.flatnonzero(bits)[0])


class GuidanceMasks:
    """A constraint that llguidance has compiled. `matcher` is copied for each text and never
    advanced. `limits` returns the limits of one JSON text. `plan` has the choices between known
    labels."""

    def __init__(
        self,
        matcher: Any,
        tokenizer: Any,
        vocabulary: TokenTexts,
        limits: Callable[[], JsonLimit],
        relaxed: tuple[str, ...],
        plan: SchemaPlan | None,
    ) -> None:
        self._matcher = matcher
        self._tokenizer = tokenizer
        self.vocabulary = vocabulary
        self.plan = plan
        self._limits = limits
        self.n_words = vocabulary.n_words
        self.relaxed = relaxed

    def start(self) -> GuidanceSource:
        matcher = self._matcher.deep_copy()
        return GuidanceSource(matcher, self._tokenizer, self.vocabulary, self._limits())

    def tokens_of(self, text: str) -> list[int]:
        """Return tokens that spell a text, for a mask source. A model may split it differently."""
        tokens: list[int] = self._tokenizer.greedy_tokenize(text)
        return tokens

    def close(self, tokens: Sequence[int]) -> tuple[tuple[int, ...], str] | None:
        """Complete a truncated answer, and return its tokens and its text; None if no ending was
        found."""
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
        self._json_tokens: JsonTokens | None = None
        self._cache: OrderedDict[Any, tuple[GuidanceMasks, float]] = OrderedDict()
        self._lock = threading.Lock()
        self._compiling: dict[Any, threading.Lock] = {}

    def schema_text(self, text: str) -> GuidanceMasks:
        """Compile a JSON Schema, given as the text that :func:`.limits.checked_schema` returned.
        Numbers and times have limits."""
        made = grammar_of_text(text)
        limits = made.repeats_names, made.max_digits, (b"",), made.relaxed
        plan = plan_of_text(made.prepared)
        return self.masks(Constraint("schema", made.grammar, *limits, plan))

    def regex(self, pattern: str) -> GuidanceMasks:
        """Compile a regular expression that must match the whole text. Classes such as ``\\d`` are
        ASCII."""
        from llguidance import LLMatcher, regex_to_lark

        kind = "regular expression"
        checked_text(kind, pattern)
        try:
            ascii_only = regex_to_lark(pattern, "dws")  # \d, \w and \s are ASCII only
        except ValueError as error:
            raise _rejected(kind, str(error)) from error
        grammar = LLMatcher.grammar_from_lark(f"start: /{ascii_only}/")
        return self.masks(Constraint(kind, grammar))

    def lark(self, grammar: str) -> GuidanceMasks:
        """Compile a Lark grammar."""
        return self.masks(lark_constraint(grammar))

    def masks(self, key: Constraint) -> GuidanceMasks:
        """Compile a constraint, unless it is in the cache."""
        with self._lock:
            compiling = self._compiling.setdefault(key, threading.Lock())
        with compiling:  # other constraints do not wait
            with self._lock:
                cached = self._cache.get(key)
            if cached is None:
                begin = time.thread_time()
                try:
                    masks = self._compiled(key)
                finally:
                    with self._lock:
                        self._compiling.pop(key, None)
                cached = masks, time.thread_time() - begin
        with self._lock:
            self._compiling.pop(key, None)
            self._cache[key] = cached
            self._cache.move_to_end(key)
            seconds = sum(map(itemgetter(1), self._cache.values()))
            while len(self._cache) > (MAX_CACHED if seconds <= MAX_CACHED_SECONDS else 1):
                _, (_, seconds_of_oldest) = self._cache.popitem(last=False)
                seconds -= seconds_of_oldest
        return cached[0]

    def _compiled(self, key: Constraint) -> GuidanceMasks:
        from llguidance import LLMatcher, LLParserLimits

        kind, grammar = key.kind, key.grammar
        schemas = list(_schemas_of(grammar)) if kind == _LARK else []
        if kind == _LARK:
            check_depth_of_grammar(grammar)
            for document in map(SchemaDocument, schemas):
                check_references(document)
                if places := without_large_multiples(document):
                    raise InvalidArgumentError(
                        f"Lark grammar: %json {places[0]}, because it is too large"
                    )
            grammar = LLMatcher.grammar_from_lark(grammar)
        vocabulary = self._read_vocabulary()
        if self._tokenizer is None:
            self._tokenizer = _tokenizer_of(vocabulary)
        try:
            fuel = min(LEXER_FUEL + FUEL_OF_BYTE * len(grammar), MAX_LEXER_FUEL)
            limits = LLParserLimits(initial_lexer_fuel=fuel)
            matcher = LLMatcher(self._tokenizer, grammar, log_level=0, limits=limits)
        except ValueError as error:  # for example, if the grammar is nested too deeply
            raise _rejected(kind, str(error)) from error
        if matcher.is_error():
            raise _rejected(kind, matcher.get_error())
        if self._json_tokens is None:
            self._json_tokens = JsonTokens(vocabulary)
        repeats = key.repeats_names
        if repeats is None:
            repeats = any(map(may_repeat_names, schemas))
        limits_of_text = functools.partial(
            JsonLimit, self._json_tokens, repeats, key.max_digits, key.json_after
        )
        masks = GuidanceMasks(
            matcher, self._tokenizer, vocabulary, limits_of_text, key.relaxed, key.plan
        )
        try:
            source = masks.start()
            source.mask()
            source.forced()
        except NativeFaultError as error:  # for example, if the rules only refer to themselves
            raise InvalidArgumentError(f"no text can match the {kind}: {error}") from None
        return masks


def _tokenizer_of(vocabulary: TokenTexts) -> Any:
    """Return llguidance's tokenizer. Its slices for JSON make masks inside strings up to ten times
    faster."""
    from llguidance import LLTokenizer, TokenizerWrapper

    if not vocabulary.ends:
        raise NotSupportedError("the model has no end-of-text token")
    return LLTokenizer(
        TokenizerWrapper(_Wrapped(vocabulary)),
        eos_token=list(vocabulary.ends),
        slices=LLTokenizer.json_slices(),
    )


def _schemas_of(grammar: str) -> Iterator[dict[str, Any]]:
    for each in re.finditer(r"%json\s*", grammar):
        try:
            schema, _ = json.JSONDecoder().raw_decode(grammar, each.end())
        except (ValueError, RecursionError):
            continue  # llguidance rejects it, or it is inside a string
        if isinstance(schema, dict):
            yield schema


def _rejected(kind: str, message: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"llguidance rejected the {kind}: {message.strip()}")


class _Wrapped:
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
