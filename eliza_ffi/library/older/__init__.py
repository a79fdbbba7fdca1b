"""What older versions of the library, and other libraries of its name, need from this package."""

from __future__ import annotations
