"""Support older versions of the library, and other libraries of the same name."""

from __future__ import annotations
