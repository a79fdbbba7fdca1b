"""Many streams at once, in eliza-ffi and in llama-server."""
