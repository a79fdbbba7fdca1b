"""Masks by llguidance: JSON Schema, regular expressions and grammars in Lark's form."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import check_callable, check_each, check_several, check_whole
from ..errors import ElizaError, InvalidArgumentError, NativeFault, NotSupportedError
from .limits import checked_schema, checked_text
from .number_limit import MOST_DIGITS, NumberLimit, NumberTokens
from .schema import grammar_of_text
from .token_texts import TokenTexts

__all__ = ["Guidance", "GuidanceMasks", "GuidanceSource"]

MOST_KEPT = 64
"""Languages that a model keeps compiled, the last ones used."""

LONGEST_ENDING = 256
"""Tokens after which the search for an ending gives up."""

CLOSING = (b"}", b"]", b",", b"0", b"n", b"t", b"f", b'"', b"{", b"[")
"""What ends an answer outside of strings, the best first."""

CLOSING_IN_STRING = (b'"',)


class GuidanceSource:
    """Where one text stands.

    Parameters
    ----------
    matcher
        llguidance's, which nobody else uses.
    vocabulary
    numbers
        Keeps the numbers of JSON short; None if the text is not JSON.
    """

    def __init__(
        self, matcher: Any, vocabulary: TokenTexts, numbers: NumberLimit | None = None
    ) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._numbers = numbers

    @property
    def has_ended(self) -> bool:
        """Whether nothing may follow."""
        ended = bool(self._matcher.is_stopped())
        if ended:  # which is also what it says of itself when it has failed
            self._check()
        return ended

    @property
    def may_end(self) -> bool:
        """Whether the text is whole as it is."""
        return bool(self._matcher.is_accepting())

    def forced(self) -> list[int]:
        """Return the tokens that must come next, as the model's tokenizer spells them."""
        if not self._matcher.compute_ff_bytes():
            self._check()
            return []  # which is found out faster than that no tokens come of it
        tokens: list[int] = self._matcher.compute_ff_tokens()
        return tokens

    def mask(self) -> NDArray[np.uint32]:
        """Return which tokens may come next, a bit each. Others run Python meanwhile."""
        mask = np.zeros(self._vocabulary.n_words, np.uint32)
        self._matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        self._check()
        return mask if self._numbers is None else self._numbers.restricted(mask)

    def accept(self, token: int) -> None:
        """Take note of the token that has come."""
        try:
            is_expected = self._matcher.consume_token(token)
        except (OverflowError, TypeError):  # not looked at before: this is done per token
            check_whole("token", token, 0)
            raise
        if not is_expected:
            self._check()
            raise NativeFault(f"llguidance did not expect token {token}")
        if self._numbers is not None:
            self._numbers.push(self._vocabulary.texts[token])

    def _check(self) -> None:
        if self._matcher.is_error():
            raise NativeFault(f"llguidance failed: {self._matcher.get_error()}")

    def ending(self) -> list[int] | None:
        """Write a short ending of the text, and return its tokens; None if none is found.

        At each step the token is taken that is most likely to close what is open.
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
    """A language that llguidance has compiled.

    Parameters
    ----------
    matcher
        llguidance's, at the beginning of a text; it is only copied.
    vocabulary
    numbers
        Makes what keeps the numbers of one text short; None if the language is not JSON.
    relaxed
        What of a schema the masks do not enforce.
    """

    def __init__(
        self,
        matcher: Any,
        vocabulary: TokenTexts,
        numbers: Callable[[], NumberLimit] | None = None,
        relaxed: tuple[str, ...] = (),
    ) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._numbers = numbers
        self.n_words = vocabulary.n_words
        self.relaxed = relaxed

    def start(self) -> GuidanceSource:
        """Return where a text begins."""
        numbers = None if self._numbers is None else self._numbers()
        return GuidanceSource(self._matcher.deep_copy(), self._vocabulary, numbers)

    def close(self, tokens: Sequence[int]) -> tuple[tuple[int, ...], str] | None:
        """Return the tokens and the text of an answer that is brought to a short ending.

        Parameters
        ----------
        tokens
            What has been written of the answer.

        Returns
        -------
        tuple or None
            None if no ending was found in a few hundred tokens.
        """
        source, tokens = self.start(), tuple(check_several("tokens", tokens, "token ids"))
        for token in tokens:
            source.accept(token)
        ending = source.ending()
        if ending is None:
            return None
        whole = (*tokens, *ending)
        text = b"".join(self._vocabulary.texts[token] for token in whole)
        return whole, text.decode("utf-8", "replace")


class Guidance:
    """llguidance over one model's vocabulary; any thread may use it.

    Parameters
    ----------
    vocabulary
        Returns the vocabulary; called once, when the first language is compiled.
    """

    def __init__(self, vocabulary: Callable[[], TokenTexts]) -> None:
        check_callable("vocabulary", vocabulary)
        self._read_vocabulary = vocabulary
        self._tokenizer: Any = None
        self._number_tokens: NumberTokens | None = None
        self._kept: OrderedDict[tuple[str, str], GuidanceMasks] = OrderedDict()
        self._lock = threading.Lock()

    def json_schema(self, schema: Mapping[str, Any] | bool) -> GuidanceMasks:
        """Return the masks of JSON that is valid against a schema.

        What llguidance cannot enforce is named by the masks' `relaxed`. Whole numbers have at most
        18 digits, other numbers 17 and two more in the exponent, unless the schema itself has a
        longer number.

        Raises
        ------
        InvalidArgumentError
            As :func:`eliza_ffi.structured.schema.schema_grammar` does.
        """
        return self.schema_text(checked_schema(schema))

    def schema_text(self, text: str) -> GuidanceMasks:
        """As :meth:`json_schema`, of a schema that :func:`.limits.checked_schema` has returned."""
        made = grammar_of_text(text)
        key = "schema", made.grammar
        return self._masks(key, made.grammar, (made.most_digits, (b"",)), made.relaxed)

    def regex(self, pattern: str) -> GuidanceMasks:
        """Return the masks of texts that match a regular expression as a whole.

        Classes such as ``\\d`` hold ASCII characters alone.

        Raises
        ------
        InvalidArgumentError
            If llguidance does not take it.
        """
        from llguidance import LLMatcher, regex_to_lark

        kind = "regular expression"
        checked_text(kind, pattern)
        try:
            # Classes such as \d hold ASCII characters alone.
            ascii_only = regex_to_lark(pattern, "dws")
        except ValueError as error:
            raise _rejected(kind, str(error)) from error
        return self._masks((kind, pattern), LLMatcher.grammar_from_lark(f"start: /{ascii_only}/"))

    def lark(
        self, grammar: str, *, json_after: Sequence[str] = (), most_digits: int = MOST_DIGITS
    ) -> GuidanceMasks:
        """Return the masks of a grammar in Lark's form, whose first rule is ``start``.

        Parameters
        ----------
        grammar
        json_after
            The fixed texts before JSON values of the grammar. Their numbers are kept short.
        most_digits
            How many digits these numbers may have.

        Raises
        ------
        InvalidArgumentError
            If llguidance does not take it.
        """
        from llguidance import LLMatcher

        after = tuple(map(str.encode, check_each("json_after", json_after, str, "a string")))
        check_whole("most_digits", most_digits, 1)
        kind = "Lark grammar"
        checked_text(kind, grammar)
        limit = (most_digits, after) if after else None
        key = f"{limit} {grammar}"
        return self._masks((kind, key), LLMatcher.grammar_from_lark(grammar), limit)

    def _masks(
        self,
        key: tuple[str, str],
        grammar: str,
        limit: tuple[int, Sequence[bytes]] | None = None,
        relaxed: tuple[str, ...] = (),
    ) -> GuidanceMasks:
        with self._lock:
            masks = self._kept.pop(key, None)
            if masks is None:
                masks = self._compiled(key[0], grammar, limit, relaxed)
            self._kept[key] = masks
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return masks

    def _compiled(
        self,
        kind: str,
        grammar: str,
        limit: tuple[int, Sequence[bytes]] | None,
        relaxed: tuple[str, ...],
    ) -> GuidanceMasks:
        from llguidance import LLMatcher

        vocabulary = self._read_vocabulary()
        if self._tokenizer is None:
            self._tokenizer = _tokenizer_of(vocabulary)
        try:
            matcher = LLMatcher(self._tokenizer, grammar, log_level=0)
        except ValueError as error:  # what is nested too deep, for one
            raise _rejected(kind, str(error)) from error
        if matcher.is_error():
            raise _rejected(kind, matcher.get_error())
        if limit is None:
            masks = GuidanceMasks(matcher, vocabulary)
        else:
            if self._number_tokens is None:
                self._number_tokens = NumberTokens(vocabulary)
            numbers = partial(NumberLimit, self._number_tokens, *limit)
            masks = GuidanceMasks(matcher, vocabulary, numbers, relaxed)
        _check_begins(kind, masks)
        return masks


def _tokenizer_of(vocabulary: TokenTexts) -> Any:
    """Return llguidance's view of a vocabulary.

    The slices make masks inside of JSON strings up to ten times faster. In llguidance 1.9 they are
    the same as its slices for other languages.
    """
    from llguidance import LLTokenizer, TokenizerWrapper

    if not vocabulary.ends:
        raise NotSupportedError("the model has no token that ends a text")
    return LLTokenizer(
        TokenizerWrapper(_Wrapped(vocabulary)),
        eos_token=list(vocabulary.ends),
        slices=LLTokenizer.json_slices(),
    )


def _check_begins(kind: str, masks: GuidanceMasks) -> None:
    """Raise if no text can begin, as in a language that contains itself without end."""
    try:
        source = masks.start()
        source.mask()
        source.forced()
    except NativeFault as error:
        said = str(error).partition("<state>")[0].strip()
        raise InvalidArgumentError(f"no text of the {kind} can begin: {said}") from None


def _rejected(kind: str, said: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"llguidance does not take the {kind}: {said.strip()}")


class _Wrapped:
    """A vocabulary as llguidance asks for it."""

    def __init__(self, vocabulary: TokenTexts) -> None:
        self.tokens = list(vocabulary.texts)
        self.special_token_ids = list(vocabulary.control)
        self.eos_token_id = vocabulary.ends[0]
        self.bos_token_id = None
        self._speller = vocabulary.speller

    def __call__(self, text: str) -> list[int]:
        if not isinstance(text, str):
            raise TypeError("texts only")  # llguidance then asks for texts
        try:
            return self._speller.tokenize(text)
        except ElizaError:
            return []  # a generation that runs while its model is closed ends without this
