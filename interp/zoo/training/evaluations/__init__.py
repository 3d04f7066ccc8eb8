"""What shows that a bundled model holds what its card claims? One kind of proof a file."""
