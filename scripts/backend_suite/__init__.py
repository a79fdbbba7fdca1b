"""The backend equality suite: the same choices, whatever computes them."""
