"""The methods that answer questions about an input, by their labels in tables and results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from .choosing.other_libraries import Peer
from .deciding.elsewhere import SERVER_GRAMMAR, SYSTEMONE, GrammarServer, SystemoneServer
from .deciding.ours import (
    Decider,
    DecidingSetting,
    MaskedDecisions,
    OneByOne,
    OneByOneAnew,
    Together,
    TokensAlone,
)
from .together.llama_server import find_llama_server

LLGUIDANCE = "llguidance"
OURS = "eliza-ffi"
ONE_BY_ONE = "eliza-ffi one by one"
ONE_BY_ONE_ANEW = "eliza-ffi one by one, nothing shared"
TOKENS_ALONE = "the tokens alone"


@dataclass(frozen=True)
class BenchMethod:
    """A compared method."""

    # Creates a `Decider`, which answers questions about an input.
    decides: Callable[[DecidingSetting], Decider]
    # Finds the library or program that the method requires, and returns it as a `Peer`.
    needs: Callable[[], Peer] | None = None


def _server() -> Peer:
    return find_llama_server()[1]


METHODS = {
    LLGUIDANCE: BenchMethod(MaskedDecisions, partial(Peer.find, LLGUIDANCE)),
    OURS: BenchMethod(Together),
    ONE_BY_ONE: BenchMethod(OneByOne),
    ONE_BY_ONE_ANEW: BenchMethod(OneByOneAnew),
    TOKENS_ALONE: BenchMethod(TokensAlone),
    SYSTEMONE: BenchMethod(SystemoneServer, _server),
    SERVER_GRAMMAR: BenchMethod(GrammarServer, _server),
}
