"""What libraries of this name need that are older than ours, or not ours at all."""

from __future__ import annotations
