"""The pages of the explorer, one a module: what each asks, shows and does at a click."""
