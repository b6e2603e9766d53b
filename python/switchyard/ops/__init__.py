"""The operators, a module each."""
