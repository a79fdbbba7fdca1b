"""Run passes for a while. ``bench.scaling.measuring`` starts several such processes at once.

The argument is a JSON list: the path of the model, and its number of threads. The process prints
``ready`` when the model is loaded. Then it reads a line with the tokens of a pass and the seconds
to run, runs passes, and prints the median of the seconds per token.
"""

from __future__ import annotations

import json
import sys
import time

from eliza_ffi.model import Model

from ..model.streams import RandomPrompts
from ..parts.figures import median


def main() -> int:
    path, n_threads = json.loads(sys.argv[1])
    with Model(path, n_threads=n_threads) as model:
        source = RandomPrompts(model, seed=1)
        prompts = source.draw(64, 64)
        print("ready", flush=True)
        tokens, seconds = sys.stdin.readline().split()
        taken: list[float] = []
        end = time.monotonic() + float(seconds)
        while time.monotonic() < end:
            prompt = prompts[len(taken) % len(prompts)][: int(tokens)]
            stats = model.choose(prompt, ["yes", "no"]).stats
            assert stats is not None
            read = stats.prompt_tokens - stats.prompt_tokens_reused
            taken.append(stats.decode_us / 1e6 / read)
        print(median(taken))
    return 0


if __name__ == "__main__":
    sys.exit(main())
