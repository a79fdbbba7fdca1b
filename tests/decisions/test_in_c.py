"""The C example of decisions compiles, runs, and agrees with Python."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from checkout import ROOT

from eliza_ffi import Model

PAGE = (ROOT / "docs" / "reference" / "c.md").read_text(encoding="utf-8")


def test_the_c_example_agrees_with_separate_choices(tiny_model: Model, tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.fail("expected a C compiler named cc, found none")
    (example,) = [
        block
        for block in re.findall(r"```c\n(.*?)```", PAGE, flags=re.DOTALL)
        if "eliza_inference_decide" in block
    ]
    source, program = tmp_path / "decide.c", tmp_path / "decide"
    source.write_text(example, encoding="utf-8")
    library = Path(tiny_model.binding.library.path)
    command = [compiler, "-std=c11", "-Wall", "-Wextra", "-Werror"]
    command += ["-I", str(ROOT / "native" / "include"), "-o", str(program), str(source)]
    command += [str(library), f"-Wl,-rpath,{library.parent}", "-lm"]
    subprocess.run(command, check=True)
    done = subprocess.run([program, tiny_model.path], check=True, capture_output=True, text=True)
    text = re.findall(r'text = "(.*)\\n";', example)[0] + "\n"
    tokens = tiny_model.tokenize(text, add_special=True)
    expected: list[float] = []
    for question, answers in (
        ("Is it urgent? Answer: ", ["yes", "no"]),
        ("Which team? Answer: ", ["billing", "shipping", "sales"]),
    ):
        assert question in example
        prompt = tokens + tiny_model.tokenize(question)
        probabilities = tiny_model.choose(prompt, answers, probabilities=True).probabilities
        assert probabilities is not None
        expected += probabilities.values()
    *found, masses = done.stdout.splitlines()
    assert [float(line) for line in found] == pytest.approx(expected, abs=0.02)
    assert all(0.0 < float(mass) < 1.0 for mass in re.findall(r"[\d.]+e-\d+", masses))
