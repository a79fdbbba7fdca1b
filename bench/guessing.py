"""Measure speculative decoding with drafts that are copied from earlier tokens.

The figures are the passes that drafts save, and the cost of wrong drafts. The first part runs no
model: it goes through existing documents token by token, and compares each draft with the tokens
that follow. In the second part, the embedded model generates text with and without drafts.

    $ python -m bench.guessing
"""

from __future__ import annotations

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
from .parts.pages import bench_parser, page_of, publish, stored_or_measured

ROOT = Path(__file__).resolve().parent.parent
MOST = 8
LARGE = "llama-bpe"
LONG = 40_000  # characters of a document; the first three quarters are the prompt
PROMPT = 2000  # the last characters of a prompt, after which the model generates
STORY = "Once upon a time there was a lighthouse keeper who"


@dataclass(frozen=True)
class Text:
    """A prompt and the text that follows it."""

    name: str
    prompt: str
    rest: str


@dataclass(frozen=True)
class Drafts:
    """The drafts for a document.

    Attributes
    ----------
    tokens, passes, drafted, right : int
        The tokens of the document, the passes, the drafted tokens, and the correct ones among them.
    us : float
        Mean microseconds to compute a draft.
    slowest_us : float
        Microseconds of the slowest draft except the first one.
    """

    tokens: int
    passes: int
    drafted: int
    right: int
    us: float
    slowest_us: float


def halves(name: str, text: str, prompt_share: float = 0.5) -> Text:
    """Cut a document into a prompt and the text that follows it."""
    at = int(len(text) * prompt_share)
    return Text(name, text[:at], text[at:])


def without_code(markdown: str) -> str:
    """Return the text of a page without code blocks and tables."""
    text = re.sub(r"```.*?```", "", markdown, flags=re.DOTALL)
    return "\n".join(line for line in text.split("\n") if not line.startswith("|"))


def quoting(source: str, other: str, rng: random.Random) -> Text:
    """Return a prompt with a source text, followed by a summary that quotes it.

    The summary has sentences of another text, and quotes of twelve words from the source.
    """
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
    """Return the documents, which are derived from files of this repository."""
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
        Text("one repeated word", "Say it: ", " yes" * 300),
    ]


class Simulation:
    """Simulates decoding of existing documents with drafts, without a model."""

    def __init__(self) -> None:
        self._ffi: Any = cffi.FFI()
        self._ffi.cdef(
            "void eliza_test_guessing(const int32_t *, size_t, size_t, int32_t, int, int64_t *);"
        )
        self._lib: Any = self._ffi.dlopen(str(find_hooks()))

    def write(self, prompt: Sequence[int], rest: Sequence[int], *, as_common: bool) -> Drafts:
        """Return the drafts for a document.

        Parameters
        ----------
        prompt, rest
            The tokens of the prompt, and the tokens that follow it.
        as_common
            Use llama.cpp's ``ngram-simple`` drafts instead of eliza-ffi's.
        """
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
    """Return the drafts of both methods for each document, in tokens of the model's vocabulary."""
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
    """Return passes and times of generated text, with and without drafts.

    The keys name the prompt and whether the text is greedy or sampled. Prompts after which the
    model generates fewer than 20 tokens are left out.
    """
    prompts = {text.name: text.prompt[-PROMPT:] for text in texts()[:-2]} | {"a story": STORY}
    results: dict[str, Any] = {}
    for name, prompt in prompts.items():
        for temperature in (0.0, 1.0):
            params = Sampling(temperature=temperature, seed=3)
            cells: dict[str, Any] = {}
            for most in (0, MOST) * repeats:
                model.generate(prompt, max_tokens=1)  # decodes the prompt before the timed part
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
                results[f"{name}, {'sampled' if temperature else 'greedy'}"] = cells
    return results


def simulated_table(simulated: dict[str, Any]) -> str:
    """Return the table of the simulation with one vocabulary."""
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
        "document",
        "prompt tokens",
        "passes per token",
        "correct drafted tokens",
        "wrong tokens per pass",
        "µs per draft",
        "`ngram-simple`: passes per token",
        "`ngram-simple`: wrong tokens per pass",
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
        "correct drafted tokens",
        "ms per token",
        "with drafts",
    ]
    return page_of(
        f"Existing documents, simulated without a model, with `draft_max` {MOST}. The tokens"
        " come from the embedded model's small vocabulary, in which most words have several"
        " tokens:",
        simulated_table(results["simulated"]),
        f"The same with a large vocabulary of {results['large_vocabulary']:,} tokens:",
        simulated_table(results["simulated_large"]),
        f"Text generated by the embedded model after the last {PROMPT:,} characters of each"
        f" prompt: at most 200 tokens, `draft_max` {MOST}, the fastest run;"
        f" {machine_line(results['machine'])}",
        markdown_table(written_head, written),
    )


def run(repeats: int) -> dict[str, Any]:
    """Simulate with two vocabularies, and generate text with the embedded model."""
    with Model(default_model_path()) as model, Model(cached_model(LARGE)) as large:
        return {
            "machine": machine_facts(),
            "simulated": simulate(model),
            "large_vocabulary": large.describe()["model"]["n_vocab"],
            "simulated_large": simulate(large),
            "generated": generate(model, repeats),
        }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = bench_parser("Measure speculative decoding with drafts from earlier tokens.")
    parser.add_argument("--repeats", type=int, default=5, help="runs; the fastest one counts (5)")
    options = parser.parse_args(arguments)
    results = stored_or_measured(options, "guessing", lambda: run(options.repeats))
    return publish("guessing", results, markdown(results), options)


if __name__ == "__main__":
    sys.exit(main())
