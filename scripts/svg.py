"""Draw SVG pictures that suit light and dark pages."""

from __future__ import annotations

from collections.abc import Sequence

STYLE = """
  text {{ font: 15px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328; }}
  .small {{ font-size: 13px; fill: #59636e; }}
  .name {{ font-weight: 600; }}
  .pass {{ fill: #eaeef2; }}
{light}
  @media (prefers-color-scheme: dark) {{
    text {{ fill: #f0f6fc; }}
    .small {{ fill: #9ea7b3; }}
{dark}
  }}
"""


def text(x: float, y: float, content: object, style: str = "", anchor: str = "middle") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" class="{style}">{content}</text>'


def rect(x: float, y: float, width: float, height: float, style: str) -> str:
    place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
    return f'<rect {place} rx="5" class="{style}"/>'


def dot(x: float, y: float, radius: int, style: str) -> str:
    return f'<circle cx="{x:g}" cy="{y:g}" r="{radius}" class="{style}"/>'


def legend(y: int, items: Sequence[tuple[str, str, int]]) -> tuple[list[str], int]:
    """Return a row of boxes with words, and where the last box begins.

    Parameters
    ----------
    items
        For each box its style, its words, and the distance to the next box.
    """
    parts: list[str] = []
    x = last = 16
    for style, words, width in items:
        parts += [rect(x, y, 18, 18, style), text(x + 26, y + 14, words, "small", "start")]
        last, x = x, x + width
    return parts, last


def svg(width: int, height: int, title: str, words: str, style: str, parts: Sequence[str]) -> str:
    """Return a picture with a title, a description and a style."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
    header = [f"<title>{title}</title>", f"<desc>{words}</desc>", f"<style>{style}</style>"]
    return "\n".join([head, *header, *parts, "</svg>"])
