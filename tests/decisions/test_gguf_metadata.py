"""Reading the metadata of GGUF files, including damaged files."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import gguf
import pytest
from gguf import GGUFValueType
from hypothesis import given
from hypothesis import strategies as st

from eliza_ffi._resources import default_model_path
from eliza_ffi.decisions.models import gguf_metadata
from eliza_ffi.decisions.models.gguf_metadata import read_metadata
from eliza_ffi.errors import ModelError

SCALARS: dict[GGUFValueType, Any] = {
    **{GGUFValueType[f"UINT{bits}"]: 2**bits - 1 for bits in (8, 16, 32, 64)},
    **{GGUFValueType[f"INT{bits}"]: -(2 ** (bits - 1)) for bits in (8, 16, 32, 64)},
    GGUFValueType.FLOAT32: 0.5,
    GGUFValueType.FLOAT64: 1e300,
    GGUFValueType.BOOL: True,
    GGUFValueType.STRING: "Größe",
}


def everything(name: str) -> bool:
    return True


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def entry(name: str | bytes, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def file_of(*entries: bytes, version: int = 3, count: int | None = None) -> bytes:
    n = len(entries) if count is None else count
    return b"GGUF" + struct.pack("<IQQ", version, 0, n) + b"".join(entries)


def array(kind: int, count: int, items: bytes) -> bytes:
    return struct.pack("<IQ", kind, count) + items


WHOLE = file_of(
    entry("general.architecture", 8, text("llama")),
    entry("tokens", 9, array(8, 3, text("a") + text("") + text("long token"))),
    entry("scores", 9, array(6, 3, struct.pack("<3f", 1, 2, 3))),
    entry("llama.decision.type", 8, text("lev")),
    entry("llama.decision.temperature.noul", 6, struct.pack("<f", 1.5)),
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "model.gguf"


def test_values_of_all_types_are_read_and_arrays_are_skipped(file: Path) -> None:
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_array("before", ["some", "texts", ""])
    for kind, value in SCALARS.items():
        writer.add_key_value(f"a.{kind.name}", value, kind)
        writer.add_array(f"a.{kind.name}.several", [1, 2, 3])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    read = read_metadata(file, everything)
    assert read.pop("general.architecture") == "llama"
    assert read == {f"a.{kind.name}": value for kind, value in SCALARS.items()}
    assert type(read["a.BOOL"]) is bool


def test_a_truncated_file_is_rejected_at_any_length(file: Path) -> None:
    for end in range(len(WHOLE)):
        file.write_bytes(WHOLE[:end])
        with pytest.raises(ModelError, match="is not a GGUF file|the file ends there"):
            read_metadata(file, everything)


@given(st.integers(0, len(WHOLE) - 1), st.binary(min_size=1, max_size=9))
def test_overwritten_bytes_raise_nothing_but_model_error(
    tmp_path_factory: pytest.TempPathFactory, at: int, put: bytes
) -> None:
    file = tmp_path_factory.getbasetemp() / "overwritten.gguf"
    file.write_bytes(WHOLE[:at] + put + WHOLE[at + len(put) :])
    try:
        read = read_metadata(file, everything)
    except ModelError as error:
        assert str(file) in str(error)
    else:
        assert all(isinstance(value, str | int | float | bool) for value in read.values())


HUGE = struct.pack("<Q", 2**64 - 1)


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (file_of(version=1), "expected version 2 or 3, got 1"),
        (file_of(version=0x03000000), "got 50331648"),
        (file_of(count=2**63), "at most 65536 entries, got 9223372036854775808"),
        (file_of(HUGE), "a string of at most .* bytes, got 18446744073709551615"),
        (file_of(entry("a", 8, HUGE)), "a string of at most .* bytes, got 18446744073709551615"),
        (file_of(entry("a", 8, text(b"x" * (2**20 + 1)))), "at most 1048576 bytes, got 1048577"),
        (file_of(entry("a", 8, text(b"\xff"))), "not valid UTF-8"),
        (file_of(entry(b"\xff", 8, text("x"))), "not valid UTF-8"),
        (file_of(entry("a", 13, b"\0" * 8)), "unknown value type 13"),
        (file_of(entry("a", 9, array(9, 1, array(4, 0, b"")))), "unknown value type 9"),
        (file_of(entry("a", 9, array(4, 2**63, b""))), "the file ends there"),
        (file_of(entry("a", 9, array(8, 2**62, b""))), "the file ends there"),
        (file_of(entry("a", 9, array(8, 2, HUGE + b"\0" * 8))), "the file ends there"),
        (file_of(entry("a", 9, array(8, 1, HUGE))), "the file ends there"),
        (file_of(*2 * [entry("a", 7, b"\1")]), "a occurs twice"),
    ],
)
def test_the_error_of_a_damaged_file_has_the_position_and_reason(
    file: Path, damaged: bytes, message: str
) -> None:
    file.write_bytes(damaged)
    with pytest.raises(ModelError, match=rf"model\.gguf is damaged at byte \d+: .*{message}"):
        read_metadata(file, everything)


def test_only_requested_entries_are_read(file: Path) -> None:
    read = read_metadata(default_model_path(), lambda name: name == "general.architecture")
    assert read == {"general.architecture": "llama"}
    for version in (2, 3):
        file.write_bytes(WHOLE[:4] + struct.pack("<I", version) + WHOLE[8:])
        assert read_metadata(file, everything)["llama.decision.type"] == "lev"
    long = entry("a", 8, text(b"\xff" * 2**21))  # too long and not UTF-8, but skipped
    file.write_bytes(file_of(long, entry("b", 7, b"\0")))
    assert read_metadata(file, lambda name: name == "b") == {"b": False}


def test_the_size_of_metadata_is_limited(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_metadata, "MAX_METADATA", 150)
    file.write_bytes(WHOLE)
    assert len(WHOLE) > 150
    with pytest.raises(ModelError, match="larger than 150 bytes"):
        read_metadata(file, everything)


def test_missing_and_empty_files_are_rejected(file: Path) -> None:
    for path in (file, file.parent, "\0"):
        with pytest.raises(ModelError, match="cannot read"):
            read_metadata(path, everything)
    file.touch()
    with pytest.raises(ModelError, match="is not a GGUF file"):
        read_metadata(file, everything)
