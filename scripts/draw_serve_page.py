#!/usr/bin/env python3
"""Take the screenshots in docs/serve.md: the page of `eliza-ffi serve`, light and dark.

Needs playwright and a Chromium: the system's or playwright's own.

    $ python scripts/draw_serve_page.py
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "images"
WIDTH, HEIGHT = 1240, 1000


def main() -> int:
    parser = argparse.ArgumentParser(description="Take screenshots of the page of eliza-ffi serve.")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="output folder")
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    with served() as url:
        draw(url, "light", folder / "serve-light.png")
        draw(url, "dark", folder / "serve-dark.png")
    return 0


@contextmanager
def served() -> Iterator[str]:
    """Run a server with the embedded model; yield its URL."""
    command = [sys.executable, "-m", "eliza_ffi", "serve", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def draw(url: str, scheme: Literal["light", "dark"], file: Path) -> None:
    """Ask the page's example questions, and save a screenshot of the answers."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=scheme)
        page.goto(url)
        page.get_by_role("button", name="Ask", exact=True).click()
        page.locator(".answer").first.wait_for()
        page.evaluate("window.scrollTo(0, 0)")
        page.screenshot(path=file)
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
