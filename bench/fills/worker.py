"""A process that fills schemas, with the version of the package that Python finds.

For each line of standard input, a JSON object with prompts and schemas, it prints a JSON object
with the seconds of all answers, and the tokens and passes of each answer. It imports nothing from
this folder, so older versions of the package can run it.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def answer(model: Any, way: str, prompt: list[int], schema: Any, most: int) -> tuple[int, int]:
    """Return the number of tokens of an answer, and its passes after the prompt."""
    if way == "fill":
        filled = model.fill(prompt, schema, max_tokens=most)
        return len(filled.tokens), filled.forward_passes
    keyword = "shape" if hasattr(model, "call_tool") else "schema"  # its name in older versions
    written = model.generate(prompt, most, **{keyword: schema})
    if written.finish_reason != "end":
        raise RuntimeError(f"the answer did not end: {written.finish_reason}")
    return len(written.tokens), written.stats.passes_after_prompt


def main() -> int:
    # An editable install would find its own checkout before PYTHONPATH is searched.
    sys.meta_path[:] = [each for each in sys.meta_path if "_editable" not in type(each).__module__]
    from eliza_ffi.model import Model

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
                except Exception as error:  # an older version may not support a schema
                    told = {"problem": f"{type(error).__name__}: {error}"}
                told["seconds"] = time.perf_counter() - begin
                print(json.dumps(told), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
