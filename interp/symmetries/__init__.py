"""Orders and bases that a model's function does not depend on: of tokens, heads, neurons, ids."""
