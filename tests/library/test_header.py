"""The package reads the C header completely, and its classes match the header's structs."""

from __future__ import annotations

import dataclasses

import pycparser  # type: ignore[import-untyped]

from eliza_ffi import _resources
from eliza_ffi.library.loading import (
    REQUIRED_SYMBOLS,
    cdef_from_header,
    declared_functions,
    header_ffi,
)
from eliza_ffi.library.protocol import StreamConfig, StreamStats

HEADER = _resources.header_text()


def test_declared_functions_finds_the_same_functions_as_a_c_parser() -> None:
    prelude = (
        "typedef int int32_t; typedef unsigned uint32_t; typedef long int64_t;"
        " typedef unsigned long uint64_t;"
        " typedef unsigned char uint8_t;"
        " typedef unsigned long size_t;\n"
    )
    tree = pycparser.CParser().parse(prelude + cdef_from_header(HEADER))
    parsed = [
        item.name
        for item in tree.ext
        if isinstance(item, pycparser.c_ast.Decl)
        and isinstance(item.type, pycparser.c_ast.FuncDecl)
    ]
    assert list(declared_functions(HEADER)) == parsed
    assert (
        len(parsed)
        == len(set(parsed))
        == HEADER.count("ELIZA_API ") - HEADER.count("#define ELIZA_API ")
    )


def test_declarations_after_a_cplusplus_block_are_kept() -> None:
    header = '#ifdef __cplusplus\nextern "C" {\n#endif\nELIZA_API int f(void); /* x */\n'
    assert cdef_from_header(header) == "int f(void); \n"


def test_required_symbols_are_declared() -> None:
    assert set(REQUIRED_SYMBOLS) <= set(declared_functions(HEADER))


def test_the_config_and_stats_classes_have_the_fields_of_the_structs() -> None:
    ffi, _ = header_ffi()
    for struct, python_class in (
        ("eliza_llm_stream_config_t", StreamConfig),
        ("eliza_llm_stream_stats_t", StreamStats),
    ):
        in_c = [name for name, _ in ffi.typeof(struct).fields]
        assert [field.name for field in dataclasses.fields(python_class)] == in_c
