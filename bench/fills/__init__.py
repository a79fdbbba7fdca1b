"""Compare structured answers with those of an older version and of llama-server."""
