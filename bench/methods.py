"""Every method that the benchmarks compare, once: its label, what it needs and how it is made.

The label is what tables, pictures and results call a method, and its key in `METHODS`. One method
may be measured in several ways, and has a maker for each of them; a benchmark picks those that have
the maker it measures. To compare with something else, add it here, then name it in the tables.

What is not here: parts of one method that are measured against each other, such as two sampler
chains (``bench/sampling.py``) or four ways to consume a stream (``bench/streaming.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .choosing.other_libraries import (
    LlamaCppPython,
    LlGuidancePicker,
    MaskPicker,
    Peer,
    VocabularyBytes,
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
from .masking.engines import Eliza, Engine, LlGuidance, XGrammar
from .masking.vocabularies import TokenBytes
from .model.together import OurStreams
from .parts.modes import STRICT_GUIDED, TRIE, UNGUIDED, Method
from .schemas.answering import Answerer, AnsweringSetting
from .schemas.elsewhere import GrammarAnswers, GuidanceAnswers, XGrammarAnswers
from .schemas.ours import FilledAnswers, GuidedAnswers
from .together.batch_loop import BatchLoop
from .together.llama_server import LlamaServer, find_llama_server

__all__ = [
    "ALONE",
    "AUTO",
    "CAPPR",
    "GRAMMAR_FIRST",
    "GRAMMAR_LAST",
    "LLAMA_CPP_PYTHON",
    "LLGUIDANCE",
    "LOOP",
    "METHODS",
    "NO_CONSTRAINT",
    "ONE_BY_ONE",
    "ONE_BY_ONE_ANEW",
    "OURS",
    "OUR_MASKS",
    "SERVER",
    "SERVER_GRAMMAR",
    "SKIP_AHEAD",
    "SKIP_AHEAD_BOTH",
    "SKIP_AHEAD_HEAD",
    "SKIP_AHEAD_SAMPLING",
    "SYSTEMONE",
    "TOKENS_ALONE",
    "TOKEN_BY_TOKEN",
    "TREE",
    "TREE_BOTH",
    "XGRAMMAR",
    "BenchMethod",
    "WorkbenchSettings",
    "colours",
    "with_maker",
    "workbench_settings",
]


# The labels.
AUTO = "eliza-ffi auto"
TREE = "eliza-ffi tree"
SKIP_AHEAD = "eliza-ffi skip-ahead"
TOKEN_BY_TOKEN = "eliza-ffi token-by-token"
SKIP_AHEAD_HEAD = "eliza-ffi skip-ahead, restricted head"
SKIP_AHEAD_SAMPLING = "eliza-ffi skip-ahead, backend sampling"
SKIP_AHEAD_BOTH = "eliza-ffi skip-ahead, both"
TREE_BOTH = "eliza-ffi tree, both"
GRAMMAR_LAST = "llama.cpp grammar last"
GRAMMAR_FIRST = "llama.cpp grammar first"
NO_CONSTRAINT = "no constraint"
LLGUIDANCE = "llguidance"
XGRAMMAR = "xgrammar"
LLAMA_CPP_PYTHON = "llama-cpp-python"
OURS = "eliza-ffi"
ALONE = "eliza-ffi alone"
LOOP = "batch loop"
SERVER = "llama-server"
ONE_BY_ONE = "eliza-ffi one by one"
ONE_BY_ONE_ANEW = "eliza-ffi one by one, nothing shared"
TOKENS_ALONE = "the tokens alone"
CAPPR = "cappr"
OUR_MASKS = "eliza-ffi, llguidance's masks"


@dataclass(frozen=True)
class WorkbenchSettings:
    """How our library makes a choice; the last two are the options of the same names."""

    method: Method
    backend_sampling: str = "off"
    restricted_head: str = "off"


@dataclass(frozen=True)
class BenchMethod:
    """A method.

    Attributes
    ----------
    label : str
    colour : str or None
        In pictures; None = in no picture.
    needs : callable or None
        Finds what it needs beside our library, its version or why it cannot be used.
    choice : WorkbenchSettings or None
        Makes choices with our library, as `Workbench` runs them.
    picks : callable or None
        Makes a `MaskPicker` of a vocabulary and the answers: masks applied to a model's logits.
    generates : type or None
        Makes choices by a loop of its own.
    masks : callable or None
        Makes an `Engine` of a vocabulary and the path of our test hooks: masks by themselves.
    streams : type or None
        Writes and chooses with many streams at once.
    decides : callable or None
        Makes a `Decider`: answers typed questions about an input.
    answers : callable or None
        Makes an `Answerer`: writes JSON of a schema.
    """

    label: str
    colour: str | None = None
    needs: Callable[[], Peer] | None = None
    choice: WorkbenchSettings | None = None
    picks: Callable[[VocabularyBytes, Sequence[str]], MaskPicker] | None = None
    generates: type[LlamaCppPython] | None = None
    masks: Callable[[TokenBytes, Path], Engine] | None = None
    streams: type[OurStreams | BatchLoop | LlamaServer] | None = None
    decides: Callable[[DecidingSetting], Decider] | None = None
    answers: Callable[[AnsweringSetting], Answerer] | None = None


def _ours(strategy: str, **options: str) -> WorkbenchSettings:
    return WorkbenchSettings(Method(TRIE, strategy), **options)


def _grammar(order: str) -> WorkbenchSettings:
    return WorkbenchSettings(Method(STRICT_GUIDED, grammar_order=order))


# Okabe and Ito's colours, told apart by the colour-blind too; a method has the same one everywhere.
_LISTED = (
    BenchMethod(AUTO, "#D55E00", choice=_ours("auto")),
    BenchMethod(TREE, choice=_ours("tree")),
    BenchMethod(SKIP_AHEAD, choice=_ours("skip-ahead")),
    BenchMethod(TOKEN_BY_TOKEN, "#E69F00", choice=_ours("token-by-token")),
    BenchMethod(
        SKIP_AHEAD_HEAD,
        choice=_ours("skip-ahead", restricted_head="auto"),
    ),
    BenchMethod(
        SKIP_AHEAD_SAMPLING,
        choice=_ours("skip-ahead", backend_sampling="on"),
    ),
    BenchMethod(
        SKIP_AHEAD_BOTH,
        choice=_ours("skip-ahead", backend_sampling="on", restricted_head="auto"),
    ),
    BenchMethod(
        TREE_BOTH,
        choice=_ours("tree", backend_sampling="on", restricted_head="auto"),
    ),
    BenchMethod(GRAMMAR_LAST, "#0072B2", choice=_grammar("last")),
    BenchMethod(GRAMMAR_FIRST, "#56B4E9", choice=_grammar("first")),
    BenchMethod(NO_CONSTRAINT, choice=WorkbenchSettings(Method(UNGUIDED))),
    BenchMethod(
        LLGUIDANCE,
        "#009E73",
        needs=partial(Peer.find, "llguidance"),
        picks=LlGuidancePicker,
        masks=lambda vocabulary, hooks: LlGuidance(vocabulary),
        decides=MaskedDecisions,
        answers=GuidanceAnswers,
    ),
    BenchMethod(
        XGRAMMAR,
        "#CC79A7",
        needs=partial(Peer.find, "xgrammar"),
        picks=XGrammarPicker,
        masks=lambda vocabulary, hooks: XGrammar(vocabulary),
        answers=XGrammarAnswers,
    ),
    BenchMethod(
        LLAMA_CPP_PYTHON,
        "#666666",
        needs=partial(Peer.find, "llama-cpp-python", "llama_cpp"),
        generates=LlamaCppPython,
        decides=GrammarLoop,
        answers=GrammarAnswers,
    ),
    BenchMethod(
        OURS,
        "#D55E00",
        masks=Eliza,
        streams=OurStreams,
        decides=Together,
        answers=FilledAnswers,
    ),
    BenchMethod(OUR_MASKS, "#E69F00", answers=GuidedAnswers),
    BenchMethod(ALONE, "#E69F00", streams=OurStreams),
    BenchMethod(LOOP, "#666666", streams=BatchLoop),
    BenchMethod(SERVER, "#0072B2", needs=lambda: find_llama_server()[1], streams=LlamaServer),
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
"""All of them by label, in the order in which they are shown."""


def with_maker(maker: str) -> dict[str, BenchMethod]:
    """Return the methods that have a maker, such as ``"masks"``."""
    return {label: each for label, each in METHODS.items() if getattr(each, maker) is not None}


def workbench_settings(label: str) -> WorkbenchSettings:
    """Return how our library makes a choice in the way of a label.

    Raises
    ------
    ValueError
        If that is no choice of our library.
    """
    choice = METHODS[label].choice
    if choice is None:
        raise ValueError(f"{label} is no choice of our library")
    return choice


def colours(makers: Sequence[str]) -> dict[str, str]:
    """Return the colours of the methods that have one of the makers and are drawn."""
    return {
        label: each.colour
        for label, each in METHODS.items()
        if each.colour and any(getattr(each, maker) for maker in makers)
    }
