"""Masks: which tokens a constraint allows, here and in other libraries."""
