"""Keeps what lasts as long as the server out of garbage collections.

Streamlit collects garbage after each run of its script, several times a second while a job is
polled. No other thread runs meanwhile, so it should not visit modules and tokenizers.
"""

import gc
import sys


def freeze_lasting_objects() -> None:
    """Leave all objects that exist now out of later collections."""
    global _n_modules  # noqa: PLW0603 - of the process, as the frozen objects are
    _n_modules = len(sys.modules)
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def freeze_imported() -> None:
    """The same, if modules were imported since: pages and analyses are when first asked for."""
    if len(sys.modules) != _n_modules:
        freeze_lasting_objects()


_n_modules = 0
"""Number of modules when objects were last frozen."""
