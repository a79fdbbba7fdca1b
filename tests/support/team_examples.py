"""Labelled messages for two teams, whose words tell the teams apart."""

from __future__ import annotations

BILLING = ["I was charged twice", "Refund my money", "The invoice is wrong", "My card was declined"]
TECHNICAL = ["The app crashes", "Error on startup", "I cannot log in", "The screen is blank"]
EXAMPLES = [
    (f"{text}{end}", team)
    for end in (".", "!", " today.", " again.", " since May.", " - please help.")
    for team, texts in (("billing", BILLING), ("technical", TECHNICAL))
    for text in texts
]
