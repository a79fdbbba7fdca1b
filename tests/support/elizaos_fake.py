"""Build libraries from ``elizaos_fake.c`` that export only given functions."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import cffi
import pytest

from eliza_ffi.library.binding import CffiBinding
from eliza_ffi.library.loading import PREFIX, REQUIRED_SYMBOLS, Library, library_file_name
from eliza_ffi.library.protocol import StreamConfig

SOURCE = Path(__file__).with_name("elizaos_fake.c")
FUNCTIONS = frozenset(re.findall(r"^EXPORT\((\w+)\)", SOURCE.read_text(), flags=re.MULTILINE))

REQUIRED = frozenset(symbol.removeprefix(PREFIX) for symbol in REQUIRED_SYMBOLS)
STREAM = REQUIRED | {"llm_stream_supported"}
GENERATE = frozenset(("llm_stream_generate",))
TRIE = frozenset(("token_trie_supported", "set_token_trie", "clear_token_trie"))

# The whole output of the engine, one token per byte.
TEXT = "Grüße " * 3
BYTES = tuple(TEXT.encode())

# The first token of the prompt selects how the engine behaves; see enum manner in elizaos_fake.c.
PLAIN, REFUSE, FAIL, ENDLESS = range(1, 5)
ELIZAOS = STREAM | {
    *("embed", "embed_supported", "detokenize", "free_tokens", "llm_eot_score"),
    *("llm_eot_supported", "llm_kv_quant_supported", "llm_mtp_supported"),
    *("llm_stream_restore_slot", "llm_stream_save_slot", "set_verifier_callback", "tokenize"),
    *("tokenize_supported", "vision_supported"),
}
"""The text functions that elizaOS's library exports."""


@functools.cache
def build_fake(folder: Path, functions: frozenset[str], defines: tuple[str, ...] = ()) -> Path:
    """Compile a library that exports these functions, and return its path."""
    assert functions <= FUNCTIONS, functions - FUNCTIONS
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.fail("these tests build a library and need a C compiler named cc")
    own_folder = folder / str(len(list(folder.iterdir())))
    own_folder.mkdir()
    library = own_folder / library_file_name()
    visibility = {name: "default" if name in functions else "hidden" for name in FUNCTIONS}
    subprocess.run(
        [
            compiler,
            *("-shared", "-fPIC", "-O1", "-g", "-pthread", "-Wall", "-Wextra", "-Werror"),
            *(f'-DEXPORT_{n}=__attribute__((visibility("{v}")))' for n, v in visibility.items()),
            *(f"-D{name}" for name in defines),
            *("-o", str(library), str(SOURCE)),
        ],
        check=True,
    )
    return library


class Fake:
    """A fake library and its record of the calls."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ffi: Any = cffi.FFI()
        self._ffi.cdef(
            "const char * fake_calls(void); const char * fake_harm(void); int fake_sampled(void);"
            "int fake_stuck(void); int fake_limit(void); int fake_config(unsigned char *);"
            "void fake_forget(void);"
        )
        self._lib: Any = self._ffi.dlopen(str(path))
        self._lib.fake_forget()

    @property
    def calls(self) -> list[str]:
        """The names of all calls since this object was created, in order."""
        return str(self._ffi.string(self._lib.fake_calls()), "utf-8").split()

    @property
    def harm(self) -> str:
        """Calls that would have crashed a library that does not check them."""
        return str(self._ffi.string(self._lib.fake_harm()), "utf-8")

    @property
    def sampled(self) -> int:
        """The number of tokens sampled."""
        return int(self._lib.fake_sampled())

    @property
    def stuck(self) -> int:
        """The number of tokens whose computation started and ends only when it is cancelled."""
        return int(self._lib.fake_stuck())

    @property
    def limit(self) -> int:
        """The max_tokens of the last ``generate``."""
        return int(self._lib.fake_limit())

    @property
    def config(self) -> bytes:
        """The last stream's configuration."""
        out = self._ffi.new("unsigned char[]", 88)
        return bytes(self._ffi.buffer(out, self._lib.fake_config(out)))


class Fakes:
    """Builds fake libraries, each of them only once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, functions: Iterable[str], *defines: str) -> Fake:
        return Fake(build_fake(self._folder, frozenset(functions), defines))


OPEN: list[tuple[Fake, CffiBinding, Any]] = []
"""The contexts of the current test."""


def bound(fake: Fake) -> tuple[CffiBinding, Any]:
    """Return a binding of a fake library and a context, which is added to `OPEN`."""
    binding = CffiBinding(Library(fake.path))
    ctx = binding.create("any")
    OPEN.append((fake, binding, ctx))
    return binding, ctx


def opened(fake: Fake, prompt: int = 1, **config: Any) -> tuple[CffiBinding, Any, Any]:
    """Return a binding of a fake library, a context, and a stream with a prompt of one token."""
    binding, ctx = bound(fake)
    stream = binding.open(ctx, StreamConfig(**config))
    binding.prefill(stream, [prompt])
    return binding, ctx, stream
