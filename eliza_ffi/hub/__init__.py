"""Models by name: files in the caches of Hugging Face and llama.cpp, and downloads."""

from __future__ import annotations

from .caches import CachedModel, cached_models
from .find import check_exists, find_model, name_for_workers
from .names import HubName, hub_path, read_name

__all__ = [
    "CachedModel",
    "HubName",
    "cached_models",
    "check_exists",
    "find_model",
    "hub_path",
    "name_for_workers",
    "read_name",
]
