"""Models that cannot generate text raise an error. An encoder decides."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from served import ask
from tiny_files import HIDDEN, WIDTH, TinyFile, write_bert

from eliza_ffi.async_model import AsyncModel
from eliza_ffi.classifier import Classifier
from eliza_ffi.decisions import Choice
from eliza_ffi.errors import ElizaError, InvalidArgumentError, ModelError, NotSupportedError
from eliza_ffi.learning import calibrate
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model
from eliza_ffi.serve.app import make_app
from eliza_ffi.serve.server import check_model
from eliza_ffi.serve.settings import QuestionSet, ServeSettings


def write_llama_without_vocabulary(path: Path) -> None:
    model = TinyFile(path, "llama", None)
    model.writer.add_head_count_kv(2)
    model.writer.add_rope_dimension_count(WIDTH // 2)
    model.tensors(model.n_vocab, WIDTH, names=["output.weight"])
    norms = ["output_norm.weight", "blk.0.attn_norm.weight", "blk.0.ffn_norm.weight"]
    model.tensors(WIDTH, names=norms)
    parts = ("q", "k", "v", "output")
    model.tensors(WIDTH, WIDTH, names=[f"blk.0.attn_{part}.weight" for part in parts])
    model.tensors(HIDDEN, WIDTH, names=["blk.0.ffn_up.weight", "blk.0.ffn_gate.weight"])
    model.tensors(WIDTH, HIDDEN, names=["blk.0.ffn_down.weight"])
    model.finish()


def write_t5(path: Path) -> None:
    model = TinyFile(path, "t5", "llama-spm")
    model.writer.add_key_length(16)
    model.writer.add_value_length(16)
    model.writer.add_relative_attn_buckets_count(8)
    model.writer.add_decoder_start_token_id(0)
    model.tensors(model.n_vocab, WIDTH, names=["output.weight"])
    for half in ("enc", "dec"):
        layer = f"{half}.blk.0."
        norms = [f"{half}.output_norm", f"{layer}attn_norm", f"{layer}ffn_norm"]
        square = [f"{layer}attn_{part}" for part in ("q", "k", "v", "o")]
        if half == "dec":
            norms.append(f"{layer}cross_attn_norm")
            square += [f"{layer}cross_attn_{part}" for part in ("q", "k", "v", "o")]
        model.tensors(WIDTH, names=[f"{name}.weight" for name in norms])
        model.tensors(WIDTH, WIDTH, names=[f"{name}.weight" for name in square])
        model.tensors(8, 2, names=[f"{layer}attn_rel_b.weight"])
        model.tensors(HIDDEN, WIDTH, names=[f"{layer}ffn_up.weight"])
        model.tensors(WIDTH, HIDDEN, names=[f"{layer}ffn_down.weight"])
    model.finish()


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (write_bert, "cannot generate text: it is an encoder"),
        (write_t5, "is not decoder-only: it cannot generate text"),
        (write_llama_without_vocabulary, "has no vocabulary"),
    ],
)
def test_a_model_that_cannot_generate_is_rejected(
    write: Callable[[Path], None], said: str, tmp_path: Path, library: Library
) -> None:
    path = tmp_path / "model.gguf"
    write(path)
    with pytest.raises(ElizaError, match=said), Model(path, library=library) as model:
        model.generate([5, 6, 7], max_tokens=2)


@pytest.mark.parametrize(
    ("architecture", "kind", "said"),
    [
        ("clip", None, "is a projector for images or sound"),
        ("llama", "adapter", "is a LoRA adapter: pass the path of the model"),
        ("imatrix", "imatrix", "is an importance matrix"),
        ("wavtokenizer", None, "is not a language model: it has no vocabulary"),
    ],
)
def test_a_file_that_is_no_model_of_text_is_named(
    architecture: str, kind: str | None, said: str, tmp_path: Path, library: Library
) -> None:
    path = tmp_path / "file.gguf"
    writer = gguf.GGUFWriter(path, architecture)
    if kind is not None:
        writer.add_type(kind)
    writer.add_tensor("a.weight", np.zeros((WIDTH, WIDTH), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    for opening in ({"path": path}, {"encoder": path}):
        with pytest.raises(ModelError, match=f"file.gguf: {said}"):
            Model(**opening, library=library)


def test_an_encoder_decoder_does_not_embed(tmp_path: Path, library: Library) -> None:
    write_t5(tmp_path / "model.gguf")
    with (
        Model(tmp_path / "model.gguf", library=library) as model,
        pytest.raises(NotSupportedError, match="encoder-decoder, which cannot compute embeddings"),
    ):
        model.embed("a text")
    with (
        Model(tmp_path / "model.gguf", library=library) as model,
        pytest.raises(NotSupportedError, match="llama.cpp cannot compute embeddings"),
    ):
        model.binding.embed_texts(model.session.ctx, ["a text"])


def test_an_encoder_decoder_does_not_decide(
    tmp_path: Path, library: Library, tiny_model: Model
) -> None:
    path = tmp_path / "model.gguf"
    write_t5(path)
    with (
        Model(path, library=library) as model,
        pytest.raises(NotSupportedError, match="is an encoder-decoder, which cannot decide"),
    ):
        model.decide("a bill", TOPIC)
    with pytest.raises(InvalidArgumentError, match="a reranker, got .*, an encoder-decoder"):
        Model(tiny_model.path, library=library, encoder=path)


WORDS = {"money": "bill invoice pay refund", "way": "parcel truck ship courier"}
TOPIC = Choice("What is it about?", list(WORDS), name="topic")


def labelled(n: int) -> list[tuple[str, str]]:
    """Return texts of six words, and the topics whose words they have."""
    draw = random.Random(n)
    topics = draw.choices(list(WORDS), k=n)
    return [(" ".join(draw.choices(WORDS[each].split(), k=6)), each) for each in topics]


def test_an_encoder_answers_with_a_head(tmp_path: Path, library: Library) -> None:
    path = tmp_path / "model.gguf"
    write_bert(path)
    rows, others = labelled(40), labelled(21)
    with Model(path, library=library) as model:
        with pytest.raises(InvalidArgumentError, match="no effect with an encoder"):
            calibrate(model, TOPIC, rows, prior="options")
        calibration = calibrate(model, TOPIC, rows, method="head")
        found = model.decide_many([text for text, _ in others], TOPIC, calibration=calibration)
        answers = [each["topic"] for each in found]
        assert [each.value for each in answers] == [topic for _, topic in others]
        head = calibration.questions[0].head
        assert head is not None
        log_p = head.log_probabilities(model.embed(others[0][0])[None, None])
        assert answers[0].distribution == pytest.approx(np.exp(log_p[0]), abs=1e-5)
        classifier = Classifier(model, list(WORDS)).fit(*zip(*rows, strict=True))
        assert classifier.score(*zip(*others, strict=True)) == 1.0


def test_a_server_of_an_encoder_answers_embeddings_and_decisions(
    tmp_path: Path, library: Library
) -> None:
    path = tmp_path / "model.gguf"
    write_bert(path)
    asked = {"type": "choice", "instructions": "Topic?", "choices": list(WORDS)}
    either = {"type": "predicate", "instructions": "Is it money?"}
    bodies = {
        "embeddings": {"input": "hi"},
        "completions": {"prompt": "hi"},
        "decisions": {"model": "topics", "input": "a parcel by ship"},
        "decisions?": {"model": "encoder", "input": "a parcel", "questions": [asked]},
        "decisions?predicate": {"model": "encoder", "input": "a parcel", "questions": [either]},
    }

    with Model(path, library=library) as model:
        topics = QuestionSet(
            "topics", (TOPIC,), {"calibration": calibrate(model, TOPIC, labelled(40))}
        )
        settings = ServeSettings("encoder", sets={"topics": topics})
        check_model(model, settings)
        app = make_app(AsyncModel.of(model), settings)
        embedded, completed, decided, compared, refused = ask(
            app, *(("POST", f"/v1/{name}", body) for name, body in bodies.items())
        )
        expected = model.embed("hi")
        answer = model.decide("a parcel", [asked])[0]
    assert embedded.json()["data"][0]["embedding"] == pytest.approx(expected.tolist(), abs=1e-5)
    assert completed.status_code == 501
    assert completed.json()["error"]["message"] == (
        "the model cannot generate text; use /v1/decisions or /v1/embeddings"
    )
    assert decided.json()["answers"][0]["choice"] == "way"
    assert compared.json()["answers"][0]["confidence"] == pytest.approx(answer.confidence)
    assert "give the predicate if_true and if_false" in refused.json()["error"]["message"]
    assert refused.status_code == 400
