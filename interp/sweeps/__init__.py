"""Many edits of the same prompts: one baseline forward, and of each edited one only the rest."""
