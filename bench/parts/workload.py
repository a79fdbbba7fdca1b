"""The measured models, prompts and labels."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo_prompts import planner_prompt
from fetch_real_models import fetch
from make_test_models import LOGIT_STD, cached_model

from eliza_ffi._resources import default_model_path

MESSAGES = (
    "send Ana a message that I am late",
    "find a recipe for lentil soup",
    "remind me to call the bank tomorrow at nine",
    "what did we decide in the last meeting?",
    "play something quiet",
)

ACTIONS_LISTED = 30
"""The most actions that a prompt lists, so that its length does not grow with the labels."""


def _words(*lines: str) -> list[str]:
    return " ".join(lines).split()


VERBS = _words(
    "ADD ARCHIVE ASK BLOCK BOOK BUY CALL CANCEL CHECK CLOSE COMPARE COPY COUNT CREATE",
    "DELETE DOWNLOAD EDIT EXPORT FIND FOLLOW FORWARD GET IGNORE IMPORT INVITE JOIN LIST",
    "LOAD LOCK MARK MERGE MOVE MUTE OPEN PAUSE PAY PIN PLAY POST PRINT PUBLISH READ",
    "RECORD REMOVE RENAME REPLY REPORT RESET RESUME SAVE SCHEDULE SEARCH SEND SET SHARE",
    "SHOW SORT START STOP TRANSLATE UPDATE",
)
NOUNS = _words(
    "ACCOUNT ALARM ALBUM ARTICLE BALANCE BOOKING BUDGET CALENDAR CHANNEL CHART COMMENT",
    "CONTACT CONTRACT DEVICE DOCUMENT DRAFT EMAIL EVENT EXPENSE FILE FLIGHT FOLDER FORM",
    "GROUP IMAGE INVOICE ISSUE LIGHT LINK LOCATION MEETING MEMORY MESSAGE NOTE ORDER PAGE",
    "PASSWORD PAYMENT PLAYLIST PROFILE PROJECT RECIPE REMINDER REPORT ROOM SONG TASK",
    "TICKET TOKEN VIDEO",
)


@dataclass(frozen=True)
class Subject:
    """A measured model."""

    name: str  # its name in the tables
    # The vocabulary of a model with random weights, by name or as the path of a file; None = the
    # trained model `real`.
    vocab: str | None
    tensor_type: str = "q8_0"  # the type of the random weights
    n_embd: int = 256  # the width and the layers of the random weights
    n_layers: int = 4
    n_heads: int = 0  # 0 = one for 64 values
    logit_std: float = LOGIT_STD  # with 0, all tokens are equally probable
    real: str = ""  # a model of `fetch_real_models`; empty = the embedded model

    @property
    def is_wide(self) -> bool:
        """Whether a forward pass takes tens of milliseconds."""
        return self.n_embd > 256

    @property
    def shape(self) -> dict[str, Any]:
        """The arguments of `make_test_models.Shape`."""
        return {
            "n_embd": self.n_embd,
            "n_layers": self.n_layers,
            "n_heads": self.n_heads or self.n_embd // 64,
            "tensor_type": self.tensor_type,
            "tied": True,
            "logit_std": self.logit_std,
        }

    def path(self) -> Path:
        """Return the model's file; it is created or downloaded on first use."""
        if self.vocab is None:
            return fetch(self.real) if self.real else Path(default_model_path())
        return cached_model(self.vocab, **self.shape)


def wide(name: str, vocab: str, tensor_type: str = "f16", **more: Any) -> Subject:
    """Return a model with width 1,024, 13 layers, and heads of 128 values."""
    return Subject(name, vocab, tensor_type, 1024, 13, **{"n_heads": 8, **more})


EMBEDDED = Subject("embedded 1M", None)
SMOLLM2 = Subject("SmolLM2 135M", None, real="smollm2")
GEMMA = Subject("Gemma 3 270M", None, real="gemma3-270m")
MODELS = (EMBEDDED, SMOLLM2, GEMMA)
"""Trained models, with vocabularies of 2,048, 49,152 and 262,144 tokens."""

LARGE = Subject("random 1.2B", "llama-bpe", "q4_k", 2048, 24)


def action_names(count: int) -> list[str]:
    """Return the first `count` names of a fixed list of action names."""
    names = [f"{verb}_{noun}" for verb, noun in itertools.product(VERBS, NOUNS)]
    random.Random(1).shuffle(names)
    return names[:count]


def prompts(names: list[str], count: int) -> list[str]:
    """Return planner prompts that list the first actions and end before the chosen name."""
    listed = [{"name": name} for name in names[:ACTIONS_LISTED]]
    return [planner_prompt(message, listed) for message in MESSAGES[:count]]
