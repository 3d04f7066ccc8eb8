"""A small random model in float32 with prompts for it, on which every call is fast."""

import torch

from interp import AttentionConfig, Config, MLPConfig, StackConfig, Transformer, metrics

D_VOCAB = 13
CONFIG = Config(12, D_VOCAB, 16, decoder=StackConfig(2, AttentionConfig(3, 4), MLPConfig(10)))
with torch.random.fork_rng([]):  # what other tests draw does not depend on it
    torch.manual_seed(0)
    MODEL = Transformer(CONFIG)
CLEAN = torch.arange(12).view(3, 4)
CORRUPT = (CLEAN + 1) % D_VOCAB
PAIR = (MODEL, CLEAN, CORRUPT)
LABELLED, LABELS = CLEAN[[0, 1, 2, 0]], ["x", "y", "x", "y"]
METRIC = {"metric": metrics.logit_diff(1, 2)}
