"""Choices in eliza-ffi and in other libraries: rounds, cells and tables."""
