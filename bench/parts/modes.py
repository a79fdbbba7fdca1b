"""How an answer can be come to, by name; the command line's ``--mode`` takes these names."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "CHOICE_MODES",
    "GRAMMAR_ORDERS",
    "GUIDED",
    "METHOD_OF_MODE",
    "MODES",
    "STRATEGIES",
    "STRICT_GUIDED",
    "TOKENIZATIONS",
    "TRIE",
    "UNGUIDED",
    "Method",
]

UNGUIDED = "unguided"
"""Free generation."""

GUIDED = "guided"
"""Under a grammar that a sampled token is checked against: ``strict-guided``, in the order last."""

STRICT_GUIDED = "strict-guided"
"""Under a grammar of the answers."""

TRIE = "strict-trie-ffi"
"""Over the token trie; of a whole answer, by filling its skeleton."""

MODES = (UNGUIDED, GUIDED, STRICT_GUIDED, TRIE)
"""Of whole answers."""

CHOICE_MODES = (UNGUIDED, STRICT_GUIDED, TRIE)
"""Of choices, whose grammar's order is told apart from the mode."""

STRATEGIES = ("auto", "tree", "skip-ahead", "token-by-token")
GRAMMAR_ORDERS = ("last", "first")
TOKENIZATIONS = ("own", "any")


@dataclass(frozen=True)
class Method:
    """How a choice is made.

    Attributes
    ----------
    mode : str
        One of `CHOICE_MODES`.
    strategy : str
        How the trie's tokens are decoded; one of `STRATEGIES`.
    grammar_order : str
        ``"first"``: the grammar masks the whole vocabulary before every token is sampled.
        ``"last"``: a token is sampled and checked, and the vocabulary masked only if it was
        illegal.
    tokenization : str
        Of choices without a grammar: each one's ``"own"``, a trie, or ``"any"`` that spells it.
    """

    mode: str
    strategy: str = "auto"
    grammar_order: str = "last"
    tokenization: str = "own"

    @property
    def has_trie(self) -> bool:
        """Whether the answers are held in a trie, not in a grammar."""
        return self.mode == TRIE


METHOD_OF_MODE = {
    UNGUIDED: Method(UNGUIDED),
    GUIDED: Method(STRICT_GUIDED, grammar_order="last"),
    STRICT_GUIDED: Method(STRICT_GUIDED, grammar_order="first"),
    TRIE: Method(TRIE),
}
"""What each of `MODES` is."""
