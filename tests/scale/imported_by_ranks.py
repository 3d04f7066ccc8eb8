"""What programs for ranks import, so that a process forked from one that has this need not."""

from declared import declarations

import apps.cli  # noqa: F401 - for the processes that are forked
import interp.tensor_parallel  # noqa: F401 - likewise

declarations()
