"""Answer requests with typed-gguf: JSON lines on standard input and output.

    $ TYPED_GGUF_RUNTIME_DIR=build/peers/bin python -m bench.answers.typed_gguf_worker MODEL

The model is opened once, as in typed-gguf's own resident process.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import sys
from typing import Any


def add_new_field(binding: Any) -> None:
    """Give typed-gguf's structure of context parameters the field that llama.cpp has added."""
    fields = list(binding.llama_context_params._fields_)
    if all(name != "moe_cache_size" for name, _ in fields):
        place = [name for name, _ in fields].index("abort_callback")
        fields.insert(place, ("moe_cache_size", ctypes.c_size_t))
        made = type("llama_context_params", (ctypes.Structure,), {"_fields_": fields})
        binding.llama_context_params = made


def main() -> int:
    add_new_field(importlib.import_module("typed_gguf.runtime.ctypes_binding"))
    cli: Any = importlib.import_module("typed_gguf.cli")
    session: Any = importlib.import_module("typed_gguf.engine.session")
    prepared = handle = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if handle is None:
                prepared = cli.prepare_decision(request)
                handle = session.open_model(prepared.model_path, fit_plan=prepared.plan).__enter__()
            answer = cli.decide_on_handle(prepared, request, handle)["answers"]["q"]
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
