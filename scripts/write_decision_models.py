#!/usr/bin/env python3
"""Write small decision models with random weights.

Writes one model for each type that :mod:`eliza_ffi.decisions.models.decision_model` supports. Each
has a real vocabulary, and a ``systemone`` template and temperatures that we wrote in the style of
the type. The answers have no meaning, but llama-server must compute the same probabilities from the
same file. For each unsupported type, the script writes a file without tensors.

    $ python scripts/write_decision_models.py --out models/
    $ python scripts/write_decision_models.py --type lev --out models/

Needs ``numpy`` and ``gguf`` (the ``dev`` extra).
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import gguf
from fetch_llama_cpp import FetchError, cache_dir
from gguf import GGUFValueType
from make_test_models import (
    Entry,
    ModelError,
    Shape,
    read_metadata,
    vocabulary_file,
    write_model,
)

# Part of the cache path. Raise it whenever the same definitions give other bytes.
FORMAT_VERSION = 1

ARCHITECTURE = "llama"
SHAPE = Shape(n_embd=64, n_layers=2, tied=True, tensor_type="f32", context_length=8192)


@dataclass(frozen=True)
class Definition:
    """The parts of a model.

    Attributes
    ----------
    vocab
        Name of the vocabulary in llama.cpp's source tree.
    template
        The template ``systemone``.
    temperatures
        Temperatures by question type, or by type and bucket.
    """

    vocab: str
    template: str
    temperatures: tuple[tuple[str, float], ...]


# Writes the labels in the template, and uses loops, string tests and trimmed lines.
OPENJEV = """\
<s>{% for image in images %}{{ image }}{% endfor %}
{%- set letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" %}
[INPUT]
{{ state if state is string else state | tojson }}

[{{ type | upper }}: {{ id }}]
{{ instructions if instructions is string else instructions | tojson }}
{% for option in options %}
({{ letters[loop.index0] }}) {{ option.key | trim }}
{%- if option.description is not none %}
: {{ option.description if option.description is string else option.description | tojson }}
{%- endif %}

{% endfor %}

[LETTER]"""

# Writes one JSON object with ordered keys.
LEV = """\
<|im_start|>system
{% if type == "noul" %}
Rate the statement from A, certainly false, to I, certainly true.
{% else %}
Reply with one of: {{ options | map(attribute="label") | join(", ") }}
{% endif %}
<|im_end|>
<|im_start|>user
{{ {"input": state, "options": options, "question": instructions} | tojson }}<|im_end|>
<|im_start|>assistant
"""

# Lists all questions of a request, then the question to answer.
NIMBLE = """\
{%- macro words(value) %}
{{- value if value is string else value | tojson(indent=2) }}
{%- endmacro %}
Known: {{ words(state) }}

{% for question in questions %}
{{ loop.index }}. {{ question.id }} ({{ question.type }}) {{ words(question.instructions) }}
{% for option in question.options %}
  {{ option.label }} = {{ option.key }}{{ "; " ~ words(option.description) if option.description }}
{% endfor %}
{% endfor %}
Code for {{ id }}:"""

# Uses chat turns, and lists the options in one line.
PPLX_DECIDER = """\
<|begin_of_text|><|start_header_id|>user<|end_header_id|>

{%- macro words(value) %}
{{- value if value is string else value | tojson }}
{%- endmacro %}
{{ words(state) }}
---
{{ words(instructions) }}
{%- for option in options -%}
{{ " | " if not loop.first }}[{{ option.label }}] {{ option.key }}
{%- if option.description %} ({{ words(option.description) }}){% endif -%}
{%- endfor %}<|eot_id|><|start_header_id|>assistant<|end_header_id|>

"""

# The input is optional, and the answer to a predicate is a word.
LFM2_D1 = """\
<|begin_of_text|>
{%- if state is not none %}
{{ "Input: " }}{{ state if state is string else state | tojson }}

{% endif %}
Question: {{ instructions if instructions is string else instructions | tojson }}
{% if type == "noul" %}
{% for option in options if option.description %}
{{ "yes" if option.label == "true" else "no" }}: {{ option.description | tojson }}
{% endfor %}
Reply with yes or no.
{% else %}
{% for option in options %}
{{ option.label }}: {{ option.key }}
{%- if option.description %} = {{ option.description | tojson }}{% endif %}

{% endfor %}
Reply with a label.
{% endif %}
Answer:"""

BUCKETS = (
    *(("choice.2", 0.7), ("choice.3_5", 1.9), ("choice.6_10", 1.3), ("choice.11", 2.6)),
    *(("score", 1.6), ("score.3_5", 0.8), ("noul", 1.45)),
)

DEFINITIONS = {
    "openjev": Definition("llama-spm", OPENJEV, BUCKETS),
    "lev": Definition(
        "qwen2",
        LEV,
        (
            *(("choice.small", 1.7), ("choice.mid", 1.2), ("choice.large", 2.2)),
            *(("noul", 1.9), ("noul.small", 1.35), ("score.small", 0.9)),
        ),
    ),
    "nimble": Definition("deepseek-coder", NIMBLE, (("choice", 1.5), ("score", 2.0))),
    "pplx-decider": Definition("llama-bpe", PPLX_DECIDER, BUCKETS),
    "lfm2-d1": Definition("llama-bpe", LFM2_D1, BUCKETS),
}
"""Supported models by type."""

REFUSED = ("kev", "laya", "clef", "lfm2-d1-omni")
"""Unsupported types, whose files have only metadata."""


def entries_of(type: str, definition: Definition) -> dict[str, Entry]:
    """Return the metadata entries about decisions."""
    prefix = f"{ARCHITECTURE}.decision."
    template = definition.template
    entries = {
        f"{prefix}type": Entry(type, GGUFValueType.STRING),
        "tokenizer.chat_template.systemone": Entry(template, GGUFValueType.STRING),
    }
    for name, value in definition.temperatures:
        entries[f"{prefix}temperature.{name}"] = Entry(value, GGUFValueType.FLOAT32)
    return entries


def write_decision_model(type: str, out: Path, shape: Shape = SHAPE) -> Path:
    """Write the model of a type to `out`. A failure leaves no partial file.

    Raises
    ------
    ModelError
        If the type is unknown, or its vocabulary is broken.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".model-", dir=out.parent) as scratch:
        unfinished = Path(scratch) / "model.gguf"
        if type in REFUSED:
            _write_metadata(unfinished, type)
        elif type in DEFINITIONS:
            definition = DEFINITIONS[type]
            metadata = read_metadata(vocabulary_file(definition.vocab))
            tokenizer = {key: each for key, each in metadata.items() if key.startswith("tokenizer")}
            tokenizer |= entries_of(type, definition)
            write_model(unfinished, f"random {type}", tokenizer, shape)
        else:
            known = ", ".join((*DEFINITIONS, *REFUSED))
            raise ModelError(f"type: expected one of {known}; got {type!r}")
        return unfinished.replace(out)


def _write_metadata(file: Path, type: str) -> None:
    writer = gguf.GGUFWriter(file, ARCHITECTURE)
    for key, entry in entries_of(type, Definition("", "{{ state }}", ())).items():
        writer.add_key_value(key, entry.value, entry.type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def cached_decision_model(type: str, shape: Shape = SHAPE) -> Path:
    """Return a model in the user cache, written on first use; see `write_decision_model`."""
    definition = DEFINITIONS.get(type)
    digest = hashlib.sha256(repr((definition, shape)).encode()).hexdigest()[:12]
    folder = cache_dir() / "test-models" / f"decisions-v{FORMAT_VERSION}"
    out = folder / f"{type}-{digest}.gguf"
    return out if out.is_file() else write_decision_model(type, out, shape)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write small decision models with random weights.")
    types = (*DEFINITIONS, *REFUSED)
    parser.add_argument("--type", choices=types, help="write only this type (default: all)")
    parser.add_argument("--out", type=Path, required=True, help="output folder")
    options = parser.parse_args(arguments)
    try:
        for type in [options.type] if options.type else types:
            print(write_decision_model(type, options.out / f"{type}.gguf"))
    except (ModelError, FetchError, OSError) as error:
        print(f"write_decision_models: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
