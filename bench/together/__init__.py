"""Many streams at once in eliza-ffi, a batch loop and llama-server: cells and tables."""
