#!/usr/bin/env python3
"""Take the pictures of the server's page that the documentation shows.

    $ python scripts/take_page_pictures.py

A server with SmolLM2 answers the questions below. Chromium and playwright (the extra ``dev``) take
``docs/images/serve-light.png`` and ``serve-dark.png``.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from fetch_real_models import fetch
from playwright.sync_api import ViewportSize, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "images"
SIZE: ViewportSize = {"width": 1180, "height": 640}

INPUT = "I ordered a lamp in May. It works well. But I was charged twice! I want my money back."
QUESTIONS = {
    "team": {
        "type": "choice",
        "instructions": "Which team should read this?",
        "choices": [
            {"value": "billing", "description": "payments, invoices, refunds"},
            {"value": "delivery", "description": "parcels"},
            {"value": "login", "description": "passwords and accounts"},
        ],
    },
    "wish": {
        "type": "choice",
        "instructions": "What does the writer want?",
        "choices": [
            {"value": "refund", "description": "to get money back"},
            {"value": "information", "description": "an answer to a question"},
            {"value": "cancellation", "description": "to end a subscription"},
        ],
    },
}


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "tickets.json")
        file.write_text(json.dumps(QUESTIONS), encoding="utf-8")
        command = [sys.executable, "-m", "eliza_ffi", "serve", "--port", "0"]
        command += ["--model", str(fetch("smollm2")), "--questions", str(file)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                lines = iter(server.stdout.readline, "")
                address = next(
                    found[0] for line in lines if (found := re.findall(r"http://\S+", line))
                )
                take(address.rstrip("/"))
            finally:
                server.terminate()
    return 0


def take(address: str) -> None:
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport=SIZE, color_scheme=scheme)
            page.goto(address)
            page.locator("#set").select_option("tickets")
            page.locator("#input").fill(INPUT)
            page.locator("#explain").check()
            page.get_by_role("button", name="Ask", exact=True).click()
            page.locator("#ask[aria-disabled=false]").wait_for()
            page.screenshot(path=PICTURES / f"serve-{scheme}.png")
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
