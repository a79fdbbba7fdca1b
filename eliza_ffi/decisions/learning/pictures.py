"""PNG figures, drawn with matplotlib if it is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...errors import NotSupportedError

__all__ = ["Picture", "load_matplotlib", "plain"]


def load_matplotlib() -> Any:
    """Import and return ``matplotlib.figure``.

    Raises
    ------
    NotSupportedError
        If matplotlib is not installed.
    """
    try:
        import matplotlib.figure
    except ImportError:
        raise NotSupportedError("a plot needs matplotlib: pip install 'eliza-ffi[plot]'") from None
    return matplotlib.figure


class Picture:
    """Draw a grid of axes with one legend below it.

    Parameters
    ----------
    size
        Width and height in inches.
    sharing
        The arguments ``sharex`` and ``sharey`` of matplotlib's ``subplots``.

    Attributes
    ----------
    axes : ndarray
        Shape ``[rows, columns]``.

    Raises
    ------
    NotSupportedError
        If matplotlib is not installed.
    """

    def __init__(
        self, rows: int, columns: int, size: tuple[float, float], **sharing: bool | str
    ) -> None:
        self._figure = load_matplotlib().Figure(figsize=size)
        self._height = size[1]
        self.axes: Any = self._figure.subplots(rows, columns, squeeze=False, **sharing)

    def save(self, file: Path, legend_columns: int = 4) -> None:
        """Write the PNG. The legend contains each label once."""
        shown: dict[str, Any] = {}
        for axis in self.axes.flat:
            for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
                shown.setdefault(label, handle)
        self._figure.legend(
            list(shown.values()),
            list(shown),
            loc="lower center",
            ncols=legend_columns,
            frameon=False,
            fontsize="small",
        )
        self._figure.tight_layout(rect=(0.0, 0.45 / self._height, 1.0, 1.0))
        self._figure.savefig(file, format="png", dpi=120)


def plain(axis: Any, grid: str = "both") -> None:
    """Give an axis a pale grid, and remove its top and right borders."""
    axis.grid(True, axis=grid, alpha=0.25)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
