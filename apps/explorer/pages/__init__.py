"""The pages of the explorer, one per module: their questions, views and reactions to clicks."""
