"""Typed decisions: questions about an input, answered with probabilities."""
