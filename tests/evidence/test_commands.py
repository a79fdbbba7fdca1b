"""The commands and the tables decide with an encoder, alone and beside a decoder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_files import write_bert

from eliza_ffi.cli.main import main
from eliza_ffi.decisions import Choice
from eliza_ffi.evidence.sources import N_TEXTS
from eliza_ffi.library.binding import CffiBinding
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

TOPICS = {"money": "bills and invoices", "way": "parcels on a truck"}
QUESTION = Choice("What is it about?", TOPICS, "topic")


@pytest.fixture
def questions_file(tmp_path: Path) -> Path:
    path = tmp_path / "questions.json"
    choices = [{"value": name, "description": text} for name, text in TOPICS.items()]
    asked = {"type": "choice", "instructions": "What is it about?", "choices": choices}
    path.write_text(json.dumps({"topic": asked}))
    return path


@pytest.fixture
def encoder_file(tmp_path: Path) -> Path:
    path = tmp_path / "encoder.gguf"
    write_bert(path)
    return path


def test_decide_with_an_encoder_adds_its_evidence(
    questions_file: Path,
    encoder_file: Path,
    tiny_model: Model,
    library: Library,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ["--questions", str(questions_file), "--input", "a truck", "--json"]
    models = ["--model", tiny_model.path, "--encoder", str(encoder_file)]
    assert main(["decide", *asked, *models, "--library", str(library.path)]) == 0
    printed = json.loads(capsys.readouterr().out)
    with Model(tiny_model.path, library=library, encoder=encoder_file) as model:
        expected = model.decide("a truck", [QUESTION])[0]
    found = [each["probability"] for each in printed["answers"][0]["probabilities"]]
    assert found == pytest.approx(expected.distribution, abs=2e-3)


def test_a_table_is_decided_with_an_encoder_in_few_calls(
    questions_file: Path,
    encoder_file: Path,
    library: Library,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table, output = tmp_path / "in.csv", tmp_path / "out.jsonl"
    n_rows = 2 * N_TEXTS
    table.write_text("body\n" + "".join(f"row {i}\n" for i in range(n_rows)))
    calls: list[int] = []
    embed_texts = CffiBinding.embed_texts

    def counted(self: CffiBinding, ctx: Any, texts: list[str], **more: Any) -> Any:
        calls.append(len(texts))
        return embed_texts(self, ctx, texts, **more)

    monkeypatch.setattr(CffiBinding, "embed_texts", counted)
    command = ["decide", str(table), "--column", "body", "--questions", str(questions_file)]
    command += [
        "--output",
        str(output),
        "--model",
        str(encoder_file),
        "--library",
        str(library.path),
    ]
    assert main(command) == 0
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["body"] for row in rows] == [f"row {i}" for i in range(n_rows)]
    assert all(row["topic"] in TOPICS for row in rows)
    assert len(calls) < 12
