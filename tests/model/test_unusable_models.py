"""Models that cannot generate text raise an error. An encoder answers with a head."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import httpx
import numpy as np
import pytest
from make_test_models import add_entries, read_tokenizer, vocabulary_file

from eliza_ffi.async_model import AsyncModel
from eliza_ffi.classifier import Classifier
from eliza_ffi.decisions import Choice, calibrate
from eliza_ffi.errors import ElizaError, InvalidArgumentError, NotSupportedError
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model
from eliza_ffi.serve.app import make_app
from eliza_ffi.serve.server import check_model
from eliza_ffi.serve.settings import QuestionSet, ServeSettings

WIDTH = 32
HIDDEN = 64


class TinyFile:
    def __init__(self, path: Path, architecture: str, vocabulary: str | None) -> None:
        self.writer = gguf.GGUFWriter(path, architecture)
        self.random = np.random.default_rng(0)
        self.n_vocab = 256
        if vocabulary is None:
            self.writer.add_tokenizer_model("no_vocab")
        else:
            tokenizer = read_tokenizer(vocabulary_file(vocabulary))
            add_entries(self.writer, tokenizer)
            self.n_vocab = len(tokenizer["tokenizer.ggml.tokens"].value)
        self.writer.add_vocab_size(self.n_vocab)
        self.writer.add_context_length(512)
        self.writer.add_embedding_length(WIDTH)
        self.writer.add_block_count(1)
        self.writer.add_feed_forward_length(HIDDEN)
        self.writer.add_head_count(2)
        self.writer.add_layer_norm_eps(1e-5)
        self.writer.add_layer_norm_rms_eps(1e-5)
        self.tensors(self.n_vocab, WIDTH, names=["token_embd.weight"])

    def tensors(self, *shape: int, names: list[str]) -> None:
        for name in names:
            values = self.random.standard_normal(shape).astype(np.float32)
            self.writer.add_tensor(name, values * np.float32(0.1))

    def finish(self) -> None:
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


def write_bert(path: Path) -> None:
    model = TinyFile(path, "bert", "bert-bge")
    model.writer.add_causal_attention(False)
    model.writer.add_pooling_type(gguf.PoolingType.MEAN)
    model.tensors(512, WIDTH, names=["position_embd.weight"])
    model.tensors(2, WIDTH, names=["token_types.weight"])
    attention = [f"blk.0.attn_{part}" for part in ("q", "k", "v", "output")]
    norms = ["token_embd_norm", "blk.0.attn_output_norm", "blk.0.layer_output_norm"]
    model.tensors(WIDTH, WIDTH, names=[f"{name}.weight" for name in attention])
    model.tensors(WIDTH, names=[f"{name}.weight" for name in norms])
    model.tensors(WIDTH, names=[f"{name}.bias" for name in [*attention, *norms]])
    model.tensors(HIDDEN, WIDTH, names=["blk.0.ffn_up.weight"])
    model.tensors(HIDDEN, names=["blk.0.ffn_up.bias"])
    model.tensors(WIDTH, HIDDEN, names=["blk.0.ffn_down.weight"])
    model.tensors(WIDTH, names=["blk.0.ffn_down.bias"])
    model.finish()


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
        (write_bert, "it cannot generate text"),
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


WORDS = {"money": "bill invoice pay refund", "way": "parcel truck ship courier"}
TOPIC = Choice("What is it about?", list(WORDS), name="topic")


def labelled(n: int) -> list[tuple[str, str]]:
    """Return texts of six words, and the topics whose words they have."""
    draw = random.Random(n)
    topics = draw.choices(list(WORDS), k=n)
    return [(" ".join(draw.choices(WORDS[each].split(), k=6)), each) for each in topics]


def test_an_encoder_answers_with_a_head_alone(tmp_path: Path, library: Library) -> None:
    path = tmp_path / "model.gguf"
    write_bert(path)
    rows, others = labelled(40), labelled(21)
    with Model(path, library=library) as model:
        with pytest.raises(NotSupportedError, match='only with a calibration of the method "head"'):
            model.decide("a bill", TOPIC)
        with pytest.raises(InvalidArgumentError, match='must be "auto" or "head" for an encoder'):
            calibrate(model, TOPIC, rows, method="temperature")
        with pytest.raises(InvalidArgumentError, match="no effect with an encoder"):
            calibrate(model, TOPIC, rows, prior="options")
        calibration = calibrate(model, TOPIC, rows)
        found = model.decide_many([text for text, _ in others], TOPIC, calibration=calibration)
        answers = [each["topic"] for each in found]
        assert [each.value for each in answers] == [topic for _, topic in others]
        tokens = model.tokenize(others[0][0])
        states = model.binding.token_embeddings(model.session.ctx, tokens, range(len(tokens)))
        head = calibration.questions[0].head
        assert head is not None
        log_p = head.log_probabilities(states.mean(axis=0)[None, None])
        assert answers[0].distribution == pytest.approx(np.exp(log_p[0]), abs=1e-6)
        classifier = Classifier(model, list(WORDS)).fit(*zip(*rows, strict=True))
        assert classifier.score(*zip(*others, strict=True)) == 1.0


def test_a_server_of_an_encoder_answers_embeddings_and_sets_with_heads(
    tmp_path: Path, library: Library
) -> None:
    path = tmp_path / "model.gguf"
    write_bert(path)
    question = {"type": "choice", "instructions": "Topic?", "choices": list(WORDS)}
    bodies = {
        "embeddings": {"input": "hi"},
        "completions": {"prompt": "hi"},
        "decisions": {"model": "topics", "input": "a parcel by ship"},
        "decisions?": {"model": "encoder", "input": "a parcel", "questions": [question]},
    }

    async def scene(app: Any) -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return [await client.post(f"/v1/{name}", json=body) for name, body in bodies.items()]

    with Model(path, library=library) as model:
        asked = QuestionSet(
            "topics", (TOPIC,), {"calibration": calibrate(model, TOPIC, labelled(40))}
        )
        settings = ServeSettings("encoder", sets={"topics": asked})
        generates = check_model(model, settings)
        assert not generates
        app = make_app(AsyncModel.of(model), settings, generates=generates)
        embedded, completed, decided, refused = asyncio.run(scene(app))
        expected = model.embed("hi")
    assert embedded.json()["data"][0]["embedding"] == pytest.approx(expected.tolist(), abs=1e-5)
    assert completed.status_code == 501
    assert (
        completed.json()["error"]["message"] == "the model cannot generate text; use /v1/embeddings"
    )
    assert decided.json()["answers"][0]["choice"] == "way"
    assert "only with a calibration" in refused.json()["error"]["message"]
    assert refused.status_code == 501
