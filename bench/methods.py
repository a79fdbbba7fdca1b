"""The list of all compared methods: their labels, requirements and factories.

The label of a method is its name in tables, pictures and results, and its key in `METHODS`. A
method has one factory for each kind of measurement that it takes part in. A benchmark selects the
methods that have the factory it needs. To compare with another library or program, add a method
here, and then add its label to the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from eliza_ffi.structured.token_texts import TokenTexts

from .choosing.other_libraries import (
    LlGuidancePicker,
    MaskPicker,
    Peer,
    XGrammarPicker,
)
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
from .parts.modes import STRICT_GUIDED, TRIE, UNGUIDED, Method
from .together.llama_server import LlamaServer, find_llama_server
from .together.streams import OurStreams

# The labels.
AUTO = "eliza-ffi auto"
SKIP_AHEAD = "eliza-ffi skip-ahead"
TOKEN_BY_TOKEN = "eliza-ffi token-by-token"
SKIP_AHEAD_HEAD = "eliza-ffi skip-ahead, restricted head"
TREE_HEAD = "eliza-ffi tree, restricted head"
GRAMMAR_LAST = "llama.cpp grammar last"
GRAMMAR_FIRST = "llama.cpp grammar first"
NO_CONSTRAINT = "no constraint"
LLGUIDANCE = "llguidance"
XGRAMMAR = "xgrammar"
LLAMA_CPP_PYTHON = "llama-cpp-python"
OURS = "eliza-ffi"
ALONE = "eliza-ffi alone"
SERVER = "llama-server"
SERVER_EQUAL = "llama-server, our settings"
ONE_BY_ONE = "eliza-ffi one by one"
ONE_BY_ONE_ANEW = "eliza-ffi one by one, nothing shared"
TOKENS_ALONE = "the tokens alone"
CAPPR = "cappr"


@dataclass(frozen=True)
class WorkbenchSettings:
    """How eliza-ffi makes a choice; `restricted_head` is the library's option."""

    method: Method
    restricted_head: str = "off"


@dataclass(frozen=True)
class BenchMethod:
    """A compared method. All attributes except `label` may be None.

    Attributes
    ----------
    colour : str or None
        Its colour in pictures; None = not drawn.
    needs : callable or None
        Finds the library or program that the method requires, and returns it as a `Peer`.
    choice : WorkbenchSettings or None
        How `Workbench` makes choices with this method.
    picks : callable or None
        Creates a `MaskPicker`, whose masks are applied to a model's logits, from a vocabulary and
        the labels.
    streams : type or None
        Generates text and chooses labels with many streams at once.
    decides : callable or None
        Creates a `Decider`, which answers questions about an input.
    """

    label: str
    colour: str | None = None
    needs: Callable[[], Peer] | None = None
    choice: WorkbenchSettings | None = None
    picks: Callable[[TokenTexts, Sequence[str]], MaskPicker] | None = None
    streams: type[OurStreams | LlamaServer] | None = None
    decides: Callable[[DecidingSetting], Decider] | None = None


def _ours(strategy: str, **options: str) -> WorkbenchSettings:
    return WorkbenchSettings(Method(TRIE, strategy), **options)


def _grammar(order: str) -> WorkbenchSettings:
    return WorkbenchSettings(Method(STRICT_GUIDED, grammar_order=order))


# The palette of Okabe and Ito, which colour-blind people can distinguish. A method has the same
# colour in all pictures.
_LISTED = (
    BenchMethod(AUTO, "#D55E00", choice=_ours("auto")),
    BenchMethod(SKIP_AHEAD, choice=_ours("skip-ahead")),
    BenchMethod(TOKEN_BY_TOKEN, "#E69F00", choice=_ours("token-by-token")),
    BenchMethod(
        SKIP_AHEAD_HEAD,
        choice=_ours("skip-ahead", restricted_head="auto"),
    ),
    BenchMethod(
        TREE_HEAD,
        choice=_ours("tree", restricted_head="auto"),
    ),
    BenchMethod(GRAMMAR_LAST, "#0072B2", choice=_grammar("last")),
    BenchMethod(GRAMMAR_FIRST, "#56B4E9", choice=_grammar("first")),
    BenchMethod(NO_CONSTRAINT, choice=WorkbenchSettings(Method(UNGUIDED))),
    BenchMethod(
        LLGUIDANCE,
        "#009E73",
        needs=partial(Peer.find, "llguidance"),
        picks=LlGuidancePicker,
        decides=MaskedDecisions,
    ),
    BenchMethod(
        XGRAMMAR,
        "#CC79A7",
        needs=partial(Peer.find, "xgrammar"),
        picks=XGrammarPicker,
    ),
    BenchMethod(
        LLAMA_CPP_PYTHON,
        "#666666",
        needs=partial(Peer.find, "llama-cpp-python", "llama_cpp"),
        decides=GrammarLoop,
    ),
    BenchMethod(
        OURS,
        "#D55E00",
        streams=OurStreams,
        decides=Together,
    ),
    BenchMethod(ALONE, "#E69F00", streams=OurStreams),
    BenchMethod(SERVER, "#0072B2", needs=lambda: find_llama_server()[1], streams=LlamaServer),
    BenchMethod(SERVER_EQUAL, needs=lambda: find_llama_server()[1], streams=LlamaServer),
    BenchMethod(ONE_BY_ONE, "#E69F00", decides=OneByOne),
    BenchMethod(ONE_BY_ONE_ANEW, "#F0E442", decides=OneByOneAnew),
    BenchMethod(TOKENS_ALONE, "#000000", decides=TokensAlone),
    BenchMethod(
        SYSTEMONE, "#0072B2", needs=lambda: find_llama_server()[1], decides=SystemoneServer
    ),
    BenchMethod(
        SERVER_GRAMMAR, "#56B4E9", needs=lambda: find_llama_server()[1], decides=GrammarServer
    ),
    BenchMethod(
        CAPPR,
        "#CC79A7",
        needs=partial(Peer.find, "cappr", "cappr.llama_cpp.classify"),
        decides=CapprDecisions,
    ),
)

METHODS = {method.label: method for method in _LISTED}
"""All methods by label, in the order of the tables."""


def with_maker(maker: str) -> dict[str, BenchMethod]:
    """Return the methods that have a factory, such as ``"decides"``."""
    return {label: each for label, each in METHODS.items() if getattr(each, maker) is not None}


def workbench_settings(label: str) -> WorkbenchSettings:
    """Return the settings of `Workbench` for the choices of a method.

    Raises
    ------
    ValueError
        If `Workbench` cannot run the method.
    """
    choice = METHODS[label].choice
    if choice is None:
        raise ValueError(f"label: expected a method that the workbench can run, got {label!r}")
    return choice


def colours(makers: Sequence[str]) -> dict[str, str]:
    """Return the colours of the drawn methods that have at least one given factory."""
    return {
        label: each.colour
        for label, each in METHODS.items()
        if each.colour and any(getattr(each, maker) for maker in makers)
    }
