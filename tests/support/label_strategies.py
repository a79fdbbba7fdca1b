"""Label sets for property tests."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator

from hypothesis import strategies as st

# fmt: off
PIECES = (
    "SEND", "_", "EMAIL", "GO", "A", "REPLY", "create", "Note", "x", "1", "42", " ", "  ", ",", "'",
    '"', "{", "é", "ß", "日", "本語", "🙂", "e\u0301", "Ünïcödé", "\n",
)
WORDS = (
    "apple", "blue", "bread", "chair", "cheese", "clock", "coffee", "dark", "door", "fresh",
    "garden", "glass", "green", "hand", "heavy", "horse", "house", "kitchen", "large", "leather",
    "light", "little", "metal", "milk", "modern", "mountain", "office", "old", "orange", "paper",
    "plastic", "quiet", "rain", "red", "river", "round", "salt", "school", "silver", "small",
    "soft", "stone", "street", "strong", "sugar", "summer", "table", "travel", "water", "white",
    "wild", "window", "winter", "wood", "wool", "yellow", "young", "zero", "north", "south",
)
# fmt: on


def product_names(n: int) -> list[str]:
    """Return the first `n` of 8,000 names of three words, each one of twenty."""
    parts = (WORDS[:20], WORDS[20:40], WORDS[40:])
    return [" ".join(words) for words in itertools.islice(itertools.product(*parts), n)]


def _pieces(dice: random.Random) -> Iterator[str]:
    """Yield strings of unusual pieces; many begin with an earlier one."""
    earlier: list[str] = []
    alphabet = dice.sample(PIECES, dice.randint(3, len(PIECES)))
    while True:
        begin = dice.choice(earlier) if earlier and dice.random() < 0.4 else ""
        text = begin[:60] + "".join(dice.choices(alphabet, k=dice.randint(1, 4)))
        earlier.append(text)
        yield text


def _words(dice: random.Random) -> Iterator[str]:
    """Yield one to four words. The few words of a set make shared prefixes likely."""
    words = dice.sample(WORDS, dice.randint(12, len(WORDS)))
    while True:
        yield " ".join(dice.choices(words, k=dice.randint(1, 4)))


def _digits(dice: random.Random) -> Iterator[str]:
    """Yield numbers; short ones are the beginning of long ones."""
    while True:
        yield str(dice.randrange(10 ** dice.randint(1, 8)))


def _codes(dice: random.Random) -> Iterator[str]:
    """Yield codes such as ``A01.1``, and their categories such as ``A01``."""
    while True:
        category = f"{dice.choice('ABCDEFGHIJKLMNOPQRSTUVWXYZ')}{dice.randrange(100):02}"
        yield category if dice.random() < 0.1 else f"{category}.{dice.randrange(100)}"


def _paths(dice: random.Random) -> Iterator[str]:
    """Yield paths such as ``garden > chair > wood``."""
    while True:
        yield " > ".join(dice.choice(WORDS[:40]) for _ in range(dice.randint(1, 4)))


KINDS: dict[str, Callable[[random.Random], Iterator[str]]] = {
    "pieces": _pieces,
    "words": _words,
    "digits": _digits,
    "codes": _codes,
    "paths": _paths,
}


def labels_of(kind: str, n: int, seed: int) -> list[str]:
    """Return up to `n` distinct labels of a kind of `KINDS`; fewer if the kind hardly has more."""
    drawn = itertools.islice(KINDS[kind](random.Random(seed)), 3 * n)
    return list(itertools.islice(dict.fromkeys(drawn), n))


def label_sets(most: int) -> st.SearchStrategy[list[str]]:
    """Draw label sets of 10 to `most` labels."""
    return st.builds(
        labels_of, st.sampled_from(sorted(KINDS)), st.integers(10, most), st.integers(0, 2**32)
    )
