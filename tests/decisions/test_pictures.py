"""Figures drawn with matplotlib."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from eliza_ffi.decisions.pictures import Picture, plain
from eliza_ffi.errors import NotSupportedError


def test_the_legend_contains_each_label_once(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = Picture(1, 2, (4.0, 3.0), sharey=True)
    for axis in picture.axes.flat:
        axis.plot([1, 2], [3, 4], label="ours")
        axis.plot([1, 2], [4, 3])
        plain(axis)
    picture.save(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    (legend,) = picture.axes[0][0].figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["ours"]


def test_the_error_without_matplotlib_names_the_extra_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(NotSupportedError, match="plot"):
        Picture(1, 1, (1.0, 1.0))
