"""Real shared libraries of earlier versions, built from the C source below.

They speak the text surface alone. Their vocabulary is bytes: token 65 is "A". Whatever the prompt,
they generate "Grüße" one byte a token, so that a character is cut in two at the border of two
pulls, as the earlier libraries did. They write down the calls they receive.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import cffi
import pytest

SOURCE = r"""
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef struct { int32_t max_tokens; } config;  /* the first of 80 bytes is all that is read */
typedef struct { int position, max_tokens, cancelled, full; } stream;

static char calls[4096];
static void called(const char * name) { strcat(strcat(calls, *calls ? " " : ""), name); }

static const char text[] = "Gr\xC3\xBC\xC3\x9F" "e";

EXPORT const char * older_calls(void) { return calls; }
EXPORT void older_forget(void) { calls[0] = 0; }

EXPORT const char * eliza_inference_abi_version(void) { return ABI_VERSION; }
EXPORT void eliza_inference_free_string(char * string) { free(string); }

EXPORT void * eliza_inference_create(const char * bundle_dir, char ** err) {
    if (strstr(bundle_dir, "missing")) {
        *err = strdup("no model there");
        return NULL;
    }
    return malloc(1);
}
EXPORT void eliza_inference_destroy(void * ctx) { free(ctx); }

#ifndef WITHOUT_OPEN
EXPORT void * eliza_inference_llm_stream_open(void * ctx, const config * cfg, char ** err) {
    (void)ctx; (void)err;
    called("open");
    stream * s = calloc(1, sizeof *s);
    s->max_tokens = cfg->max_tokens;
    return s;
}
#endif

EXPORT int eliza_inference_llm_stream_prefill(stream * s, const int32_t * tokens, size_t n,
                                              char ** err) {
    (void)s;
    called("prefill");
    if (n > 0 && tokens[0] == 0) {
        *err = strdup("token 0 is not for prompts");
        return -2;
    }
    if (n > 0 && tokens[0] == 9) {
        *err = strdup("the disk is on fire");
        return -4;
    }
    return 0;
}

static int pull(stream * s, int32_t * token) {
    const unsigned char byte = (unsigned char)text[s->position];
    if (byte == 0 || (s->max_tokens > 0 && s->position >= s->max_tokens)) return 0;
    s->position++;
    *token = byte;
    return 1;
}

#ifdef WITH_NEXT
EXPORT int eliza_inference_llm_stream_next(stream * s, int32_t * tokens_out, size_t tokens_cap,
        size_t * num_tokens_out, char * text_out, size_t text_cap, int32_t * drafted_out,
        int32_t * accepted_out, char ** err) {
    (void)tokens_cap; (void)text_cap; (void)err;
    called("next");
#ifdef WITH_STATS
    if (s->position == 2) {
        s->full = 1;
        *err = strdup("kein Platz mehr");
        return -4;
    }
#endif
    *drafted_out = *accepted_out = 0;
    *num_tokens_out = (size_t)pull(s, tokens_out);
    text_out[0] = *num_tokens_out ? (char)tokens_out[0] : 0;
    text_out[1] = 0;
    return *num_tokens_out ? 0 : 1;
}
#endif

#ifdef WITH_STATS  /* and with room for two tokens */
typedef struct {
    int64_t counts[16];
    int32_t n_past, n_vocab, finish_reason, trie_active;
} stats;

EXPORT int eliza_inference_llm_stream_stats(stream * s, stats * out, size_t size) {
    memset(out, 0, size < sizeof *out ? size : sizeof *out);
    out->counts[0] = 7;
    out->finish_reason = s->full ? 4 : 0;
    return 0;
}
#endif

#ifdef WITH_GENERATE
EXPORT int eliza_inference_llm_stream_generate(stream * s, int32_t max_tokens,
        int (*on_token)(int32_t, const char *, void *), void * user, char ** err) {
    (void)max_tokens; (void)err;
    called("generate");
    int32_t token;
    while (!s->cancelled && pull(s, &token)) {
        char piece[2] = {(char)token, 0};
        if (on_token(token, piece, user)) return -7;
    }
    return s->cancelled ? -7 : 0;
}
#endif

#ifdef WITH_VOID_TRIE  /* the first libraries with a trie reported nothing */
EXPORT void eliza_inference_set_token_trie(stream * s, const char * json, size_t len, int mode) {
    (void)s; (void)json; (void)len; (void)mode;
    called("set");
    errno_like_noise();
}
EXPORT void eliza_inference_clear_token_trie(stream * s) { (void)s; called("clear"); }
#endif

EXPORT int eliza_inference_llm_stream_cancel(stream * s) {
    called("cancel");
    s->cancelled = 1;
    return 0;
}
EXPORT void eliza_inference_llm_stream_close(stream * s) { called("close"); free(s); }
"""

# A function that leaves -2 where a return value would be looked for.
NOISE = "static int minus_two(void) { return -2; }\n#define errno_like_noise() minus_two()\n"

TEXT = "Grüße"


def build_older_library(folder: Path, *defines: str, abi_version: str = "11") -> Path:
    """Compile a libelizainference.so into a folder of its own and return its path."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.fail("these tests build a library: they need a C compiler called cc")
    folder.mkdir(parents=True)
    source = folder / "older.c"
    source.write_text(NOISE + SOURCE, encoding="utf-8")
    library = folder / "libelizainference.so"
    subprocess.run(
        [
            compiler,
            *("-shared", "-fPIC", "-O0", "-fvisibility=hidden", "-Wall", "-Wno-unused-function"),
            f'-DABI_VERSION="{abi_version}"',
            *(f"-D{name}" for name in defines),
            *("-o", str(library), str(source)),
        ],
        check=True,
    )
    return library


class OlderCalls:
    """Reads what an older library has written down."""

    def __init__(self, library: Path) -> None:
        self._ffi: Any = cffi.FFI()
        self._ffi.cdef("const char * older_calls(void); void older_forget(void);")
        self._lib: Any = self._ffi.dlopen(str(library))
        self.forget()

    def forget(self) -> None:
        """Begin with an empty page."""
        self._lib.older_forget()

    def __call__(self) -> list[str]:
        return str(self._ffi.string(self._lib.older_calls()), "utf-8").split()
