"""What the documentation is built with: ``make docs``."""
