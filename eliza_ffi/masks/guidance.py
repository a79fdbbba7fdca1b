"""Masks by llguidance: JSON Schema, regular expressions and grammars in Lark's form."""

from __future__ import annotations

import importlib
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import check_callable, check_whole
from ..errors import ElizaError, InvalidArgumentError, NativeFault, NotSupportedError
from .limits import checked_schema, checked_text, pointer_part
from .token_texts import TokenTexts

__all__ = ["Guidance", "GuidanceMasks", "GuidanceSource", "takes_schema"]

MOST_KEPT = 64
"""Languages that a model keeps compiled, the last ones used."""

COMPACT = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}
"""JSON without white space, as skeletons write it, so that most of what is known is forced. A
schema's own ``x-guidance`` comes first."""


class GuidanceSource:
    """Where one text stands.

    Parameters
    ----------
    matcher
        llguidance's, which nobody else uses.
    n_words
        Of a mask.
    """

    def __init__(self, matcher: Any, n_words: int) -> None:
        self._matcher = matcher
        self._n_words = n_words

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
            return []  # which is found out faster than that no tokens come of it
        tokens: list[int] = self._matcher.compute_ff_tokens()
        return tokens

    def mask(self) -> NDArray[np.uint32]:
        """Return which tokens may come next, a bit each. Others run Python meanwhile."""
        mask = np.zeros(self._n_words, np.uint32)
        self._matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        self._check()
        return mask

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

    def _check(self) -> None:
        if self._matcher.is_error():
            raise NativeFault(f"llguidance failed: {self._matcher.get_error()}")


class GuidanceMasks:
    """A language that llguidance has compiled.

    Parameters
    ----------
    matcher
        llguidance's, at the beginning of a text; it is only copied.
    n_words
        Of a mask.
    """

    def __init__(self, matcher: Any, n_words: int) -> None:
        self._matcher = matcher
        self.n_words = n_words

    def start(self) -> GuidanceSource:
        """Return where a text begins."""
        return GuidanceSource(self._matcher.deep_copy(), self.n_words)


class Guidance:
    """llguidance over one model's vocabulary; any thread may use it.

    Parameters
    ----------
    vocabulary
        Returns the vocabulary; called once, when the first language is compiled.

    Raises
    ------
    NotSupportedError
        If llguidance is not installed.
    """

    def __init__(self, vocabulary: Callable[[], TokenTexts]) -> None:
        try:
            self._package = importlib.import_module("llguidance")
        except ImportError:
            raise NotSupportedError(
                "this shape is answered by llguidance, which is not installed: "
                "pip install 'eliza-ffi[schema]'"
            ) from None
        check_callable("vocabulary", vocabulary)
        self._vocabulary = vocabulary
        self._tokenizers: dict[str, Any] = {}
        self._n_words = 0
        self._kept: OrderedDict[tuple[str, str], GuidanceMasks] = OrderedDict()
        self._lock = threading.Lock()

    def json_schema(self, schema: Mapping[str, Any] | bool) -> GuidanceMasks:
        """Return the masks of JSON that is valid against a schema.

        Raises
        ------
        InvalidArgumentError
            If it is no schema, asks for what llguidance does not know, or is above one of the
            limits of :mod:`eliza_ffi.masks.limits`.
        """
        return self._masks("schema", checked_schema(schema))

    def regex(self, pattern: str) -> GuidanceMasks:
        """Return the masks of texts that match a regular expression as a whole.

        Classes such as ``\\d`` hold ASCII characters alone.

        Raises
        ------
        InvalidArgumentError
            If llguidance does not take it.
        """
        return self._masks("regular expression", checked_text("regular expression", pattern))

    def lark(self, grammar: str) -> GuidanceMasks:
        """Return the masks of a grammar in Lark's form, whose first rule is ``start``.

        Raises
        ------
        InvalidArgumentError
            If llguidance does not take it.
        """
        return self._masks("Lark grammar", checked_text("Lark grammar", grammar))

    def _masks(self, kind: str, text: str) -> GuidanceMasks:
        with self._lock:
            masks = self._kept.pop((kind, text), None)
            if masks is None:
                masks = self._compile(kind, text)
            self._kept[kind, text] = masks
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return masks

    def _compile(self, kind: str, text: str) -> GuidanceMasks:
        matcher_type = self._package.LLMatcher
        try:
            if kind == "schema":
                grammar = matcher_type.grammar_from_json_schema(text, COMPACT)
            elif kind == "regular expression":
                # Classes such as \d have ASCII characters alone, as in our own reader.
                ascii_only = self._package.regex_to_lark(text, "dws")
                grammar = matcher_type.grammar_from_lark(f"start: /{ascii_only}/")
            else:
                grammar = matcher_type.grammar_from_lark(text)
            matcher = matcher_type(self._tokenizer(kind), grammar, log_level=0)
        except ValueError as error:  # what is nested too deep, for one
            raise _refused(kind, text, str(error)) from error
        if matcher.is_error():
            raise _refused(kind, text, matcher.get_error())
        masks = GuidanceMasks(matcher, self._n_words)
        try:
            masks.start().mask()
        except NativeFault as error:  # of what contains itself without end, for one
            said = str(error).partition("<state>")[0].strip()
            raise InvalidArgumentError(f"no text of the {kind} can begin: {said}") from None
        return masks

    def _tokenizer(self, kind: str) -> Any:
        """Return llguidance's view of the vocabulary; it prepares for JSON otherwise."""
        slices = "json_slices" if kind == "schema" else "general_slices"
        if not self._tokenizers:
            vocabulary = self._vocabulary()
            if not vocabulary.ends:
                raise NotSupportedError("the model has no token that ends a text")
            self._n_words = vocabulary.n_words
            wrapped = self._package.TokenizerWrapper(_Wrapped(vocabulary))
            self._tokenizers["plain"] = self._package.LLTokenizer(
                wrapped, eos_token=list(vocabulary.ends), slices=[]
            )
        if slices not in self._tokenizers:
            prepared = getattr(self._package.LLTokenizer, slices)()
            self._tokenizers[slices] = self._tokenizers["plain"].with_slices(prepared)
        return self._tokenizers[slices]


def takes_schema(schema: Mapping[str, Any]) -> bool:
    """Return whether llguidance is installed, and takes a schema; no model is asked for it."""
    try:
        matcher = importlib.import_module("llguidance").LLMatcher
        grammar = matcher.grammar_from_json_schema(checked_schema(schema), COMPACT)
        return not matcher.validate_grammar(grammar)
    except (ImportError, ValueError):
        return False


def _refused(kind: str, text: str, said: str) -> InvalidArgumentError:
    """Return the error of what llguidance does not take, with the place where that is known."""
    said = said.strip()
    if kind == "schema":
        said, _, uri = said.partition("\n  while processing ")
        place = uri.partition("#")[2] if uri else _place_of(text, said)
        if place is not None:
            return InvalidArgumentError(
                f"llguidance does not take the schema: JSON schema at #{place}: {said}"
            )
    return InvalidArgumentError(f"llguidance does not take the {kind}: {said}")


def _place_of(text: str, said: str) -> str | None:
    """Return where the first of the keywords is that llguidance says it does not know."""
    unknown = re.match(r"Unimplemented keys: (\[.*\])", said)
    if unknown is None:
        return None
    names = json.loads(unknown.group(1))
    pending: list[tuple[str, Any]] = [("", json.loads(text))]
    while pending:
        place, part = pending.pop()
        if isinstance(part, dict):
            if any(name in part for name in names) and not place.endswith("/properties"):
                return place
            inner = [(pointer_part(name), each) for name, each in part.items()]
        else:
            inner = [(str(i), each) for i, each in enumerate(part if type(part) is list else ())]
        pending += [(f"{place}/{name}", each) for name, each in reversed(inner)]
    return None


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
