"""Measure guessing by the text itself: how many passes it saves, and what wrong guesses cost.

First without running a model: texts whose rest is known are "written" token by token, and what
would have been drafted is compared with what comes. Then the embedded model writes, with drafts and
without.

    $ python -m bench.guessing --docs docs/drop-in.md
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cffi
import numpy as np
from make_test_models import cached_model
from numpy.typing import NDArray
from page_tables import markdown_table, number

from eliza_ffi import Speculation
from eliza_ffi._resources import default_model_path
from eliza_ffi.model import Model
from eliza_ffi.sampling import Sampling

from .parts.hooks import find_hooks
from .parts.machine import machine_facts, machine_line
from .parts.pages import add_output_arguments, publish

ROOT = Path(__file__).resolve().parent.parent
MOST = 8
LARGE = "llama-bpe"
LONG = 40_000  # characters, of which three quarters are the prompt
PROMPT = 2000  # characters of a prompt that the model goes on with
STORY = "Once upon a time there was a lighthouse keeper who"


@dataclass(frozen=True)
class Text:
    """A prompt and the text that follows it."""

    name: str
    prompt: str
    rest: str


@dataclass(frozen=True)
class Drafts:
    """What became of the drafts of a text.

    Attributes
    ----------
    tokens, passes, drafted, right : int
    us : float
        Microseconds of a draft, on average.
    slowest_us : float
        Of the slowest one but the first.
    """

    tokens: int
    passes: int
    drafted: int
    right: int
    us: float
    slowest_us: float


def halves(name: str, text: str, prompt_share: float = 0.5) -> Text:
    """Cut a text in two."""
    at = int(len(text) * prompt_share)
    return Text(name, text[:at], text[at:])


def without_code(markdown: str) -> str:
    """Return the sentences of a page: no code, no tables."""
    text = re.sub(r"```.*?```", "", markdown, flags=re.DOTALL)
    return "\n".join(line for line in text.split("\n") if not line.startswith("|"))


def quoting(source: str, other: str, rng: random.Random) -> Text:
    """Return a text, then sentences of another one with quotes of twelve words from the first."""
    sentences = [each for each in re.split(r"(?<=[.])\s+", source) if 60 < len(each) < 300]
    between = [each for each in re.split(r"(?<=[.])\s+", other) if 30 < len(each) < 120]
    parts = []
    for i, sentence in enumerate(rng.sample(sentences, min(14, len(sentences)))):
        words = sentence.split()
        begin = rng.randint(0, max(0, len(words) - 12))
        quote = " ".join(words[begin : begin + 12])
        parts.append(f'{between[i % len(between)]} The text says: "{quote}".')
    prompt = f"Summarise the text with quotes.\n\n{source}\n\nSummary:\n"
    return Text("summary with quotes", prompt, " ".join(parts))


def texts() -> list[Text]:
    """Return the texts, made of files of this repository."""
    rng = random.Random(5)
    pages = [
        without_code(page.read_text(encoding="utf-8"))
        for page in sorted((ROOT / "docs").glob("**/*.md"))
    ]
    pages.sort(key=len)
    words = sorted(set(re.findall(r"[a-z]{3,9}", (ROOT / "README.md").read_text(encoding="utf-8"))))
    items = [
        f"- {' '.join(rng.sample(words, 3))} ({rng.randint(10, 999)} pieces)" for _ in range(60)
    ]
    the_list = "\n".join(items) + "\n"
    records = [
        {
            "id": i,
            "name": " ".join(rng.sample(words, 2)),
            "price": rng.randint(100, 9999) / 100,
            "in_stock": i % 3 > 0,
        }
        for i in range(60)
    ]
    code = (ROOT / "native" / "src" / "token_trie" / "token_trie.cpp").read_text(encoding="utf-8")
    script = (ROOT / "scripts" / "fetch_llama_cpp.py").read_text(encoding="utf-8")
    return [
        Text("a list, copied", f"Copy this list:\n{the_list}\nThe list:\n", the_list),
        Text("code, edited", f"Rename node:\n{code}\nThe file:\n", code.replace("node", "place")),
        quoting(pages[-3][:9000], pages[-4], rng),
        halves("JSON records", json.dumps(records, indent=1), 0.25),
        halves("C++", code),
        halves("Python", script),
        halves("prose", pages[-1]),
        halves("prose, long prompt", "\n\n".join(pages)[:LONG], 0.75),
        Text("one word for ever", "Say it: ", " yes" * 300),
    ]


class Simulation:
    """Writes texts with drafts, without a model."""

    def __init__(self) -> None:
        self._ffi: Any = cffi.FFI()
        self._ffi.cdef(
            "void eliza_test_guessing(const int32_t *, size_t, size_t, int32_t, int, int64_t *);"
        )
        self._lib: Any = self._ffi.dlopen(str(find_hooks()))

    def write(self, prompt: Sequence[int], rest: Sequence[int], *, as_common: bool) -> Drafts:
        """Return what became of the drafts, by llama.cpp's simple n-grams if `as_common`."""
        tokens = np.array([*prompt, *rest], dtype=np.int32)
        counts: NDArray[np.int64] = np.zeros(5, dtype=np.int64)
        self._lib.eliza_test_guessing(
            self._ffi.from_buffer("int32_t[]", tokens),
            len(tokens),
            len(prompt),
            MOST,
            as_common,
            self._ffi.from_buffer("int64_t[]", counts),
        )
        passes, drafted, right, ns, slowest = (int(count) for count in counts)
        return Drafts(len(rest), passes, drafted, right, ns / 1e3 / passes, slowest / 1e3)


def simulate(model: Model) -> dict[str, Any]:
    """Return by text the drafts of both ways, in tokens of the model's vocabulary."""
    simulation = Simulation()
    results: dict[str, Any] = {}
    for text in texts():
        prompt, rest = model.tokenize(text.prompt), model.tokenize(text.rest, add_special=False)
        results[text.name] = {
            "prompt_tokens": len(prompt),
            "lookup": asdict(simulation.write(prompt, rest, as_common=False)),
            "simple": asdict(simulation.write(prompt, rest, as_common=True)),
        }
    return results


def generate(model: Model, repeats: int) -> dict[str, Any]:
    """Return by prompt and temperature what the model takes to write, with drafts and without.

    Prompts that it answers in fewer than 20 tokens are left out.
    """
    prompts = {text.name: text.prompt[-PROMPT:] for text in texts()[:-2]} | {"a story": STORY}
    results: dict[str, Any] = {}
    for name, prompt in prompts.items():
        for temperature in (0.0, 1.0):
            params = Sampling(temperature=temperature, seed=3)
            cells: dict[str, Any] = {}
            for most in (0, MOST) * repeats:
                model.generate(prompt, max_tokens=1)  # the prompt is decoded outside the time
                begin = time.perf_counter()
                generation = model.generate(
                    prompt,
                    max_tokens=200,
                    sampling=params,
                    speculation=Speculation(max_tokens=most),
                )
                spent = (time.perf_counter() - begin) * 1e3
                stats = generation.stats
                assert stats is not None
                cells[str(most)] = {
                    "tokens": len(generation.tokens),
                    "passes": stats.forward_passes,
                    "drafted": stats.tokens_drafted,
                    "right": stats.tokens_accepted,
                    "ms": min(spent, cells.get(str(most), {}).get("ms", spent)),
                }
            if min(cell["tokens"] for cell in cells.values()) >= 20:
                results[f"{name}, {'drawn' if temperature else 'greedy'}"] = cells
    return results


def simulated_table(simulated: dict[str, Any]) -> str:
    """Return the table of a vocabulary."""
    rows = []
    for name, cell in simulated.items():
        ours, simple = cell["lookup"], cell["simple"]
        rows.append(
            [
                name,
                f"{cell['prompt_tokens']:,}",
                f"{ours['passes'] / ours['tokens']:.2f}",
                f"{ours['right'] / ours['drafted']:.0%}" if ours["drafted"] else "none",
                f"{(ours['drafted'] - ours['right']) / ours['passes']:.2f}",
                number(ours["us"]),
                f"{simple['passes'] / simple['tokens']:.2f}",
                f"{(simple['drafted'] - simple['right']) / simple['passes']:.2f}",
            ]
        )
    head = [
        "text",
        "tokens before it",
        "passes per token",
        "right drafts",
        "wrong tokens per pass",
        "µs per draft",
        "`ngram-simple`: passes per token",
        "its wrong tokens per pass",
    ]
    return markdown_table(head, rows)


def markdown(results: dict[str, Any]) -> str:
    """Return the tables."""
    written = []
    for name, cells in results["generated"].items():
        plain, drafting = cells["0"], cells[str(MOST)]
        written.append(
            [
                name,
                f"{plain['passes'] / plain['tokens']:.2f}",
                f"{drafting['passes'] / drafting['tokens']:.2f}",
                f"{drafting['right']} of {drafting['drafted']}",
                number(plain["ms"] / plain["tokens"]),
                number(drafting["ms"] / drafting["tokens"]),
            ]
        )
    written_head = [
        "prompt",
        "passes per token",
        "with drafts",
        "right",
        "ms per token",
        "with drafts",
    ]
    return "\n".join(
        [
            f"Texts whose rest is known, `draft_max` {MOST}, tokens of the embedded model's small"
            " vocabulary, in which most words are several:",
            "",
            simulated_table(results["simulated"]),
            "",
            f"The same in tokens of a large vocabulary ({results['large_vocabulary']:,}):",
            "",
            simulated_table(results["simulated_large"]),
            "",
            f"What the embedded model writes behind the prompts (their last {PROMPT:,}"
            f" characters), up to 200 tokens, `draft_max` {MOST}, the fastest run;"
            f" {machine_line(results['machine'])}",
            "",
            markdown_table(written_head, written),
            "",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_output_arguments(parser)
    parser.add_argument("--repeats", type=int, default=5, help="runs of which the fastest counts")
    parsed = parser.parse_args(arguments)
    with Model(default_model_path()) as model, Model(cached_model(LARGE)) as large:
        results = {
            "machine": machine_facts(),
            "simulated": simulate(model),
            "large_vocabulary": large.describe()["model"]["n_vocab"],
            "simulated_large": simulate(large),
            "generated": generate(model, parsed.repeats),
        }
    publish("guessing", results, markdown(results), parsed.out, parsed.docs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
