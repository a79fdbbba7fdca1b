"""Token masks in eliza-ffi, llguidance and xgrammar: constraints, adapters, cells and tables."""
