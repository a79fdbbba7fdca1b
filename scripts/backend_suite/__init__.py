"""The backend equality suite: every backend and strategy must make the same choices."""
