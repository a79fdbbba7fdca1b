"""The server under load: what is held, what is refused, and whether the answers stay the same."""
