"""Hostile input: each case is tried alone, within its limits, and what is wrong is said."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT
from faults.preloaded import Preloaded, build
from hostile.case import Broken, Case, Must, Stage
from hostile.files import SlotBytes, fnv1a
from hostile.trial import Outcome, Trials, verdict

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.library.loading import Library

pytestmark = pytest.mark.slow

SCRIPT = ROOT / "scripts" / "check_hostile.py"

needs_linux = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which(os.environ.get("CC", "cc")) is None,
    reason="needs Linux and a C compiler",
)


def nothing(_: Stage) -> None:
    """Open no model."""


@pytest.fixture(scope="module")
def trials(library: Library, tmp_path_factory: pytest.TempPathFactory) -> Trials:
    return Trials(library, Preloaded(Path(library.path), build(tmp_path_factory.mktemp("built"))))


def refuse(_: Stage) -> None:
    raise InvalidArgumentError("the widget is too wide")


def fill_memory(_: Stage) -> int:
    return len(b"x" * (300 << 20))


def take_time(_: Stage) -> None:
    end = time.process_time() + 0.5
    while time.process_time() < end:
        pass


def die(_: Stage) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def find_fault(_: Stage) -> None:
    raise Broken("seven are left")


@needs_linux
@pytest.mark.parametrize(
    ("run", "settings", "said"),
    [
        (refuse, {"must": Must.FAIL, "says": "widget"}, "ok"),
        (refuse, {"must": Must.FAIL, "says": "gadget"}, "does not say gadget"),
        (refuse, {"must": Must.ANSWER}, "no answer"),
        (nothing, {"must": Must.FAIL}, "no error"),
        (nothing, {}, "ok"),
        (fill_memory, {}, "over 200 MiB"),
        (fill_memory, {"address_mib": 100}, "broken"),
        (take_time, {"seconds": 0.2}, "over 0.2 s"),
        (die, {}, "died"),
        (find_fault, {}, "broken"),
    ],
)
def test_what_a_case_does_is_judged_by_its_limits(
    trials: Trials, run: Any, settings: dict[str, Any], said: str
) -> None:
    case = Case("a case", run, prepare=nothing, **settings)
    assert verdict(case, trials.run(case)) == said


@needs_linux
def test_another_stream_that_waits_is_a_failure(trials: Trials) -> None:
    def block(stage: Stage) -> None:
        stage.model.choose("a", ["b", "c"])

    case = Case("a case", block, neighbour=True)
    outcome = trials.run(case)
    assert verdict(case, outcome) == "ok"
    assert outcome.waited is not None
    waited = Outcome("answer", "", waited=3.0)
    assert verdict(case, waited) == "another stream waited 3.0 s"


def test_only_a_death_in_llama_cpp_that_is_known_is_forgiven() -> None:
    case = Case("a case", nothing, may_die_in_llama_cpp=True)
    assert verdict(case, Outcome("died", "", whose="llama.cpp")) == "known"
    assert verdict(case, Outcome("died", "", whose="ours")) == "died"
    assert verdict(Case("a case", nothing), Outcome("died", "", whose="llama.cpp")) == "died"
    assert verdict(case, Outcome("answer", "", after="other")) == "not as before afterwards"


def test_a_slot_file_is_put_together_again_with_a_hash_that_fits() -> None:
    raw = b"ELIZASLT" + struct.pack("<I", 1)
    for part in (b"name", b"\1\0\0\0\2\0\0\0", b"state"):
        raw += struct.pack("<Q", len(part)) + part
    raw += struct.pack("<Q", fnv1a(raw))
    slot = SlotBytes(raw)
    assert slot.whole() == raw
    slot.state += b"!"
    assert SlotBytes(slot.whole()).state == b"state!"
    with pytest.raises(Broken):
        SlotBytes(raw[:-1] + b"x")


@needs_linux
def test_the_program_fails_where_a_case_does_not_hold(library: Library) -> None:
    run = [sys.executable, str(SCRIPT), "--only", "grammar: a rule of itself"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, "1 cases: 1 ok" in done.stdout) == (0, True), done.stdout + done.stderr
    none = subprocess.run(
        [sys.executable, str(SCRIPT), "--only", "no such case"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert none.returncode == 2
