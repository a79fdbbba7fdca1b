"""The list of all methods that answer questions about an input: labels, needs and factories.

The label of a method is its name in tables, pictures and results. To compare with another library
or program, add a method here, and then add its label to the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from .choosing.other_libraries import Peer
from .deciding.elsewhere import (
    SERVER_GRAMMAR,
    SYSTEMONE,
    CapprDecisions,
    GrammarLoop,
    GrammarServer,
    SystemoneServer,
)
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
LLAMA_CPP_PYTHON = "llama-cpp-python"
OURS = "eliza-ffi"
ONE_BY_ONE = "eliza-ffi one by one"
ONE_BY_ONE_ANEW = "eliza-ffi one by one, nothing shared"
TOKENS_ALONE = "the tokens alone"
CAPPR = "cappr"


@dataclass(frozen=True)
class BenchMethod:
    """A compared method.

    Attributes
    ----------
    colour : str
        Its colour in pictures.
    decides : callable
        Creates a `Decider`, which answers questions about an input.
    needs : callable or None
        Finds the library or program that the method requires, and returns it as a `Peer`.
    """

    label: str
    colour: str
    decides: Callable[[DecidingSetting], Decider]
    needs: Callable[[], Peer] | None = None


def _server() -> Peer:
    return find_llama_server()[1]


_cappr = partial(Peer.find, "cappr", "cappr.llama_cpp.classify")
_llama_cpp = partial(Peer.find, LLAMA_CPP_PYTHON, "llama_cpp")

# The palette of Okabe and Ito, which colour-blind people can distinguish. A method has the same
# colour in all pictures.
_LISTED = (
    BenchMethod(LLGUIDANCE, "#009E73", MaskedDecisions, partial(Peer.find, LLGUIDANCE)),
    BenchMethod(LLAMA_CPP_PYTHON, "#666666", GrammarLoop, _llama_cpp),
    BenchMethod(OURS, "#D55E00", Together),
    BenchMethod(ONE_BY_ONE, "#E69F00", OneByOne),
    BenchMethod(ONE_BY_ONE_ANEW, "#F0E442", OneByOneAnew),
    BenchMethod(TOKENS_ALONE, "#000000", TokensAlone),
    BenchMethod(SYSTEMONE, "#0072B2", SystemoneServer, _server),
    BenchMethod(SERVER_GRAMMAR, "#56B4E9", GrammarServer, _server),
    BenchMethod(CAPPR, "#CC79A7", CapprDecisions, _cappr),
)

METHODS = {method.label: method for method in _LISTED}
"""All methods by label, in the order of the tables."""


def with_maker(maker: str) -> dict[str, BenchMethod]:
    """Return the methods that have a factory, such as ``"decides"``."""
    return {label: each for label, each in METHODS.items() if getattr(each, maker) is not None}


def colours(makers: Sequence[str]) -> dict[str, str]:
    """Return the colours of the methods that have at least one given factory."""
    return {
        label: each.colour
        for label, each in METHODS.items()
        if any(getattr(each, maker) for maker in makers)
    }
