"""Programs for the developers: pages of the documentation, fuzzing, fault injection, GPU runs."""
