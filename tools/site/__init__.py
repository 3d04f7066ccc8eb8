"""Tools that build the documentation: ``make docs``."""
