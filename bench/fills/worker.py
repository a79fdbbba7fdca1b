"""A process that fills schemas, with whichever version of the package it finds.

It reads one JSON object per line, and writes one: the seconds that the answers took together, and
the tokens and the passes of each. It imports nothing of this folder, so that older versions run it.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from eliza_ffi.model import Model


def answer(model: Any, way: str, prompt: list[int], schema: Any, most: int) -> tuple[int, int]:
    """Return how many tokens an answer has, and how many passes behind the prompt it took."""
    if way == "fill":
        filled = model.fill(prompt, schema, max_tokens=most)
        return len(filled.tokens), filled.forward_passes
    keyword = "shape" if hasattr(model, "call_tool") else "schema"  # its name in older versions
    written = model.generate(prompt, most, **{keyword: schema})
    if written.finish_reason != "end":
        raise RuntimeError(f"the answer has not ended: {written.finish_reason}")
    return len(written.tokens), written.stats.passes_after_prompt


def main() -> int:
    path, n_ctx, n_slots = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with Model(path, n_ctx=n_ctx, n_slots=n_slots) as model:
        print(json.dumps({"threads": model.describe()["threads"]}), flush=True)
        with ThreadPoolExecutor(n_slots) as threads:
            for line in sys.stdin:
                asked = json.loads(line)
                prompts = [list(map(int, model.prompt_tokens(each))) for each in asked["prompts"]]
                begin = time.perf_counter()
                try:
                    found = threads.map(
                        lambda one, asked=asked: answer(
                            model, asked["way"], one[0], one[1], asked["most"]
                        ),
                        zip(prompts, asked["schemas"], strict=True),
                    )
                    told: dict[str, Any] = {"answers": list(found)}
                except Exception as error:  # an older version may not take a schema
                    told = {"problem": f"{type(error).__name__}: {error}"}
                told["seconds"] = time.perf_counter() - begin
                print(json.dumps(told), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
