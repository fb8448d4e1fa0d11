"""Fovea inside models of other libraries."""
