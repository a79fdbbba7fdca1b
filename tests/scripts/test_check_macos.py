"""The check of libraries for macOS reads exports and load commands, and names every problem."""

from __future__ import annotations

import struct
from pathlib import Path

import check_macos
import pytest
from check_macos import Library, main, problems_of, read_library
from checkout import ROOT

from eliza_ffi.library.loading import declared_functions

HEADERS = ROOT / "native" / "include" / "eliza"
DECLARED = {
    name
    for header in HEADERS.glob("*.h")
    for name in declared_functions(header.read_text(encoding="utf-8"))
}
EXPORTS = b"\x00\x02_a\0\x09b\0\x0d\x02\x00\x10\x00\x02\x00\x20\x00"
"""A trie with _a and b: its root, which has two children, and the two children."""


def good(**changes: object) -> Library:
    library = Library("arm64", 6, "@rpath/libelizainference.dylib", is_signed=True)
    library.needed = ["/usr/lib/libSystem.B.dylib"]
    library.exports = set(DECLARED)
    for name, value in changes.items():
        setattr(library, name, value)
    return library


def command(number: int, *words: int, text: bytes = b"") -> bytes:
    text += b"\0" * (-len(text) % 8)
    return struct.pack(f"<{2 + len(words)}I", number, 8 + 4 * len(words) + len(text), *words) + text


def mach_o() -> bytes:
    """Return a library without code: the header, the load commands, and the exports."""
    name = command(0xD, 24, 0, 0, 0, text=b"@rpath/x.dylib\0")
    needed = command(0xC, 24, 0, 0, 0, text=b"/usr/lib/libSystem.B.dylib\0")
    version = command(0x32, 1, 11 << 16, 11 << 16, 0)
    signature = command(0x1D, 0, 0)
    size = 32 + len(name + needed + version + signature) + 16
    exports = command(0x80000033, size, len(EXPORTS))
    commands = [name, needed, version, signature, exports]
    head = struct.pack("<8I", 0xFEEDFACF, 0x0100000C, 0, 6, len(commands), size - 32, 0, 0)
    return head + b"".join(commands) + EXPORTS


def test_load_commands_and_exports_are_read() -> None:
    library = read_library(mach_o())
    assert (library.processor, library.kind, library.name) == ("arm64", 6, "@rpath/x.dylib")
    assert library.needed == ["/usr/lib/libSystem.B.dylib"]
    assert (library.oldest_macos, library.is_signed) == ("11.0", True)
    assert library.exports == {"a", "b"}


def test_a_good_library_has_no_problems() -> None:
    assert problems_of(good()) == []
    assert problems_of(good(exports=DECLARED | {"_Znwm", "_ZdlPv"})) == []


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"kind": 2}, "expected file type 6, a library; got 2"),
        ({"name": "x.dylib"}, "expected a name that begins with @rpath/, got 'x.dylib'"),
        ({"needed": ["/usr/lib/libz.dylib"]}, "needs /usr/lib/libz.dylib"),
        ({"is_signed": False}, "has no signature"),
        (
            {"exports": DECLARED - {"eliza_inference_create"}},
            "does not export eliza_inference_create",
        ),
        ({"exports": DECLARED | {"llama_decode"}}, "exports other names: llama_decode"),
    ],
)
def test_every_problem_is_named(changes: dict[str, object], problem: str) -> None:
    assert problems_of(good(**changes)) == [problem]


def test_only_arm64_needs_a_signature() -> None:
    assert problems_of(good(processor="x86_64", is_signed=False)) == []


def test_another_file_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "library"
    file.write_bytes(b"\x7fELF" * 20)
    assert main([str(file)]) == 1
    assert capsys.readouterr().err == f"{file}: expected a 64-bit Mach-O file\n"


def test_exports_are_listed_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_macos, "problems_of", lambda _: [])
    file = tmp_path / "library"
    file.write_bytes(mach_o())
    assert main([str(file)]) == 0
    assert capsys.readouterr().out.endswith("linked and checked, not run\n")
    assert main(["--exports", str(file)]) == 0
    assert capsys.readouterr().out.endswith("linked and checked, not run\n    a\n    b\n")
