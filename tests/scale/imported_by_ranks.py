"""What programs for ranks import, so that a process forked from one that has this need not."""

import torch
from declared import declarations
from torch import distributed

import apps.cli
import interp.tensor_parallel

torch.set_num_threads(1)
declarations()
__all__ = ["apps", "distributed", "interp"]
