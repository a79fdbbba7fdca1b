"""What users would take instead: llama-server, other libraries, classifiers on text features."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from fetch_real_models import fetch

from eliza_ffi.chat.template import template_of_model
from eliza_ffi.decisions import Predicate, Score
from eliza_ffi.model import Model

from ..choosing.other_libraries import Peer
from ..together.llama_server import asked, find_llama_server, serving
from .datasets import DataSet, Question
from .learned import open_brier
from .methods import LABELS, AnswerMethod, Ask, Subject, learned_method
from .metrics import LEAST, Probabilities

MISSING = "llama-server is missing: run 'make peers'"
N_CTX = 4096
MINILM_TOKENS = 256
"""The most tokens of an input that all-MiniLM-L6-v2 was trained for."""

Classify = Callable[[Sequence[str]], Any]
"""Converts texts to features."""


def peers_used() -> list[Peer]:
    """Return the libraries and programs of the peers, with their versions."""
    names = {
        "scikit-learn": "sklearn",
        "onnxruntime": "onnxruntime",
        "typed-gguf": "typed_gguf",
        "brier": "brier",
        "AnyJev": "anyjev",
    }
    return [find_llama_server()[1], *(Peer.find(*each) for each in names.items())]


def described_options(question: Question) -> list[tuple[str, str | None]]:
    """Return the options of a question, as texts with their descriptions."""
    if isinstance(question, Predicate):
        return [("yes", question.if_true), ("no", question.if_false)]
    if isinstance(question, Score):
        return [(level.label, level.description) for level in question.levels]
    return [(str(option.value), option.description) for option in question.options]


# The best constant answer.


def open_majority(subject: Subject, _: ExitStack) -> Ask:
    """Answer with the frequencies of the options among the measured rows."""
    targets = subject.data.targets(subject.rows)
    shares = np.bincount(targets, minlength=len(subject.data.values)) / len(targets)
    return lambda question, texts: np.tile(shares, (len(texts), 1))


# Plain prompts, as a user would write them.


def _written_prompt(question: Question, *, lists_options: bool) -> str:
    """Return the beginning of a plain prompt, which is the same for all inputs."""
    if not lists_options:
        return question.instructions
    options = described_options(question)
    lines = [f"- {name}: {meaning}" if meaning else f"- {name}" for name, meaning in options]
    return "\n".join([question.instructions, "Answer with one of:", *lines])


def open_written_prompt(subject: Subject, _: ExitStack, *, lists_options: bool) -> Ask:
    """Choose among the names of the options after a plain prompt with the question first."""

    def ask(question: Question, texts: Sequence[str]) -> Probabilities:
        labels = [f" {name}" for name, _ in described_options(question)]
        head = _written_prompt(question, lists_options=lists_options)
        prompts = [f"{head}\n\nText: {text}\nAnswer:" for text in texts]
        results = subject.model.choose_many(prompts, labels, probabilities=True)
        return np.array(
            [[(each.probabilities or {})[label] for label in labels] for each in results]
        )

    return ask


# llama-server.


def open_server(subject: Subject, stack: ExitStack) -> Ask:
    """Ask llama-server in a hand-written loop: a plain prompt that lists the options."""
    program, _ = find_llama_server()
    if program is None:
        raise RuntimeError(MISSING)
    port = stack.enter_context(serving(program, subject.path, 1, N_CTX, subject.n_threads, ())).port

    def ask(question: Question, texts: Sequence[str]) -> Probabilities:
        options = described_options(question)
        head = _written_prompt(question, lists_options=True)
        # The line break ends a label, so no label is the beginning of another one.
        spelled = [
            asked(port, "/tokenize", {"content": f" {name}\n", "add_special": False})["tokens"]
            for name, _ in options
        ]
        prompts = [f"{head}\n\nText: {text}\nAnswer:" for text in texts]
        return np.array([_label_probabilities(port, prompt, spelled) for prompt in prompts])

    return ask


def _label_probabilities(port: int, prompt: str, labels: Sequence[Sequence[int]]) -> list[float]:
    """Return the probabilities of labels after a prompt, among these labels.

    Each request divides the probability of all labels with the same beginning by their next tokens.
    """
    found = [1.0] * len(labels)
    beginnings = {tuple(label[:n]) for label in labels for n in range(len(label))}
    for begin in beginnings:
        n = len(begin)
        next_tokens = {i: t[n] for i, t in enumerate(labels) if tuple(t[:n]) == begin}
        if len({*next_tokens.values()}) > 1:
            shares = _next(port, [prompt, *begin], sorted({*next_tokens.values()}))
            for i, token in next_tokens.items():
                found[i] *= shares.get(token, 0.0)
    return found


def _next(port: int, prompt: list[Any], tokens: Sequence[int]) -> dict[int, float]:
    """Return the probabilities of the next tokens among the given ones."""
    request = {
        "prompt": prompt,
        "cache_prompt": True,
        "n_predict": 1,
        "n_probs": len(tokens),
        "post_sampling_probs": True,
        "samplers": ["temperature"],
        "temperature": 1.0,
        "logit_bias": [[token, 100.0] for token in tokens],
    }
    answer = asked(port, "/completion", request)
    top = answer["completion_probabilities"][0]["top_probs"]
    return {each["id"]: float(each["prob"]) for each in top}


# typed-gguf.


def open_typed_gguf(subject: Subject, stack: ExitStack) -> Ask:
    """Ask typed-gguf in its own process, with the llama.cpp libraries of ``make peers``.

    By default, typed-gguf downloads an older build of llama.cpp from GitHub.
    """
    program, _ = find_llama_server()
    if program is None:
        raise RuntimeError(f"its libraries: {MISSING}")
    home = stack.enter_context(TemporaryDirectory())
    command = [sys.executable, "-m", "bench.answers.typed_gguf_worker", str(subject.path)]
    folders = {"TYPED_GGUF_RUNTIME_DIR": str(program.parent), "TYPED_GGUF_HOME": home}
    pipe, variables = subprocess.PIPE, {**os.environ, **folders}
    worker = stack.enter_context(
        subprocess.Popen(
            command, env=variables, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
        )
    )
    options: dict[str, Any] = {"threads": subject.n_threads}
    if not subject.model.describe()["model"]["has_chat_template"]:
        options["template"] = "plain"
    assert worker.stdin is not None and worker.stdout is not None
    stack.callback(worker.stdin.close)
    requests, answers = worker.stdin, worker.stdout

    def ask(question: Question, texts: Sequence[str]) -> Probabilities:
        asked_question, keys = _typed_question(question)
        rows = []
        for text in texts:
            request = {"state": text, "questions": {"q": asked_question}, "options": options}
            request["model"] = str(subject.path)
            print(json.dumps(request), file=requests, flush=True)
            answer = json.loads(answers.readline() or '{"error": "it has exited"}')
            if "error" in answer:
                raise RuntimeError(answer["error"])
            rows.append([answer["probabilities"][key] for key in keys])
        return np.array(rows)

    return ask


def _typed_question(question: Question) -> tuple[dict[str, Any], list[str]]:
    """Return a question in typed-gguf's format, and the keys of its probabilities."""
    options = described_options(question)
    asked_question: dict[str, Any] = {"instructions": question.instructions}
    if isinstance(question, Predicate):
        meanings = {"true": question.if_true, "false": question.if_false}
        return {"type": "noul", **asked_question, "criteria": meanings}, ["yes", "no"]
    if isinstance(question, Score):
        levels = [f"{name}: {meaning}" for name, meaning in options]
        return {"type": "score", **asked_question, "criteria": levels}, [
            str(i) for i in range(len(options))
        ]
    return {"type": "choice", **asked_question, "criteria": dict(options)}, [
        name for name, _ in options
    ]


# Classifiers, which learn from labelled rows.


def open_classifier(
    features: Callable[[DataSet, int], Classify], n: int, subject: Subject, _: ExitStack
) -> Ask:
    """Fit scikit-learn's logistic regression on features of the first `n` labelled rows."""
    linear = importlib.import_module("sklearn.linear_model")
    train = subject.data.train[:n]
    extract = features(subject.data, n)
    # The strength of the regularization that is usual for features of length 1.
    model = linear.LogisticRegression(C=10.0, max_iter=1000)
    model.fit(extract([text for text, _ in train]), subject.data.targets(train))

    def ask(question: Question, texts: Sequence[str]) -> Probabilities:
        found = np.full((len(texts), len(subject.data.values)), LEAST)
        found[:, model.classes_] = model.predict_proba(extract(texts))
        return found

    return ask


def tf_idf(data: DataSet, n: int) -> Classify:
    """Return TF-IDF features of words and pairs of words."""
    text = importlib.import_module("sklearn.feature_extraction.text")
    vectorizer = text.TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    vectorizer.fit([given for given, _ in data.train[:n]])
    transform: Classify = vectorizer.transform
    return transform


def mini_lm(data: DataSet, n: int) -> Classify:
    """Return the sentence embeddings of all-MiniLM-L6-v2: the mean over its tokens."""
    runtime = importlib.import_module("onnxruntime")
    folder = fetch("minilm-onnx")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1  # waiting threads use CPU time, too
    model = runtime.InferenceSession(str(folder / "model.onnx"), options)
    tokenizers = importlib.import_module("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(MINILM_TOKENS)
    tokenizer.no_padding()
    names = {each.name for each in model.get_inputs()}

    def embed(text: str) -> Any:
        encoded = tokenizer.encode(text)
        given: Mapping[str, Any] = {
            "input_ids": encoded.ids,
            "attention_mask": encoded.attention_mask,
            "token_type_ids": encoded.type_ids,
        }
        feed = {key: np.array([value]) for key, value in given.items() if key in names}
        mean = np.asarray(model.run(None, feed)[0][0]).mean(axis=0)
        return mean / np.linalg.norm(mean)

    return lambda texts: np.array([embed(text) for text in texts])


# AnyJev.


class _AnyJevBackend:
    """Our models as AnyJev asks them; AnyJev itself opens models with transformers or vLLM."""

    name = "eliza-ffi"

    def __init__(self, model: Model) -> None:
        self._model, self.tokenizer = model, self
        self._facts = model.describe()["model"]
        self.chat_template = self._facts["chat_template"]

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return self._model.tokenize(text, add_special=add_special_tokens)

    def apply_chat_template(self, messages: Any, **_: Any) -> str:
        return template_of_model(self._facts).render(messages)

    def next_token_logprobs(self, prompts: Sequence[str], token_ids: Any) -> list[Any]:
        """Return the log-probabilities of label tokens, up to a constant that AnyJev ignores."""
        found = []
        for prompt, ids in zip(prompts, token_ids, strict=True):
            labels = [self._model.detokenize([each]) for each in ids]
            tokens = self._model.tokenize(prompt, add_special=True, parse_special=True)
            chosen = self._model.choose(tokens, labels, probabilities=True)
            shares = [(chosen.probabilities or {})[label] for label in labels]
            found.append(np.log(np.maximum(shares, LEAST)))
        return found


def open_anyjev(subject: Subject, _: ExitStack) -> Ask:
    """Ask AnyJev with its defaults: all rotations of the options, and a prior of the inputs."""
    anyjev: Any = importlib.import_module("anyjev")
    decider = anyjev.Decider(_AnyJevBackend(subject.model))

    def ask(question: Question, texts: Sequence[str]) -> Probabilities:
        options = [
            f"{name}: {text}" if text else name for name, text in described_options(question)
        ]
        if isinstance(question, Predicate):
            asked = anyjev.Question.noul(question.instructions)
        elif isinstance(question, Score):
            asked = anyjev.Question.score(question.instructions, levels=options)
        else:
            asked = anyjev.Question.choice(question.instructions, options)
        return np.array([each.probs for each in decider.decide_batch(list(texts), asked)])

    return ask


MAJORITY = "majority class"
UNLISTED = partial(open_written_prompt, lists_options=False)
PEERS = (
    AnswerMethod(MAJORITY, open_majority, reads_options=False),
    AnswerMethod("plain prompt, no list", UNLISTED, reads_options=False),
    AnswerMethod("plain prompt, list", partial(open_written_prompt, lists_options=True)),
    AnswerMethod("llama-server, hand-written loop", open_server),
    AnswerMethod("typed-gguf", open_typed_gguf, most_rows=50),
    AnswerMethod("AnyJev", open_anyjev),
    *(
        AnswerMethod(
            f"{name}, {n} labels", partial(open_classifier, features, n), n, reads_options=False
        )
        for name, features in (("TF-IDF", tf_idf), ("MiniLM", mini_lm))
        for n in LABELS
    ),
    *(
        learned_method(f"brier's head, {n} labels", partial(open_brier, n), n_labels=n)
        for n in LABELS
    ),
)
"""The peers, in the order of the tables."""
