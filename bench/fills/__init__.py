"""Structured answers beside an older version of this package, and beside llama-server."""
