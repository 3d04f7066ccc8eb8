"""Values of settings that mean nothing."""

import torch

from declared.small import D_VOCAB

TEXT, BELOW, BROKEN, LISTED, NOTHING, NESTED = "a", -1, 1.5, [0, 99], None, [[0, "a"]]
COUNT = (TEXT, BELOW, 0, BROKEN, LISTED, NOTHING, True)
"""What is no number from 1 on."""
SEED = (TEXT, BROKEN, 2**64, LISTED, NOTHING, True)
CHOICE = (TEXT, BELOW, BROKEN, LISTED, {})
"""What is none of a few names."""
SWITCH = ("no", 1, NOTHING)
SOMETHING = (TEXT, BELOW, BROKEN, LISTED, {})
"""What is no result, lens or number of bytes."""
TOKEN = (TEXT, BELOW, BROKEN, D_VOCAB, LISTED, True, {})
TOKENS = (TEXT, BELOW, BROKEN, D_VOCAB, LISTED, [], True, {})
"""What is no list of tokens."""
OFFSET = (TEXT, BROKEN, LISTED, NOTHING, True, 10**30)
"""What is no number of positions."""
NUMBERS = (TEXT, BELOW, BROKEN, [], [TEXT], [BROKEN], [99], [True], [1, 1])
"""What is no list of different indices."""
INDEX = (TEXT, 99, -99, BROKEN, LISTED, NOTHING, True)
"""What is the index of no layer and no head."""
LABELS = (TEXT, BELOW, NOTHING, [], ["x"], ["x"] * 4, ["x", "x", "x", "y"], [NOTHING] * 4)
"""What is no label of two classes for each of four prompts."""
POINTS = (*CHOICE, NOTHING, [], [TEXT], "pattern", [3])
POSITION = (TEXT, BROKEN, LISTED, NOTHING, True, 99)
MEMORY = (TEXT, BELOW, LISTED)
SWEPT = {"memory": MEMORY, "resume": SOMETHING}
"""Settings of analyses with a sweep."""
SAMPLED = {"seed": SEED, "rows": COUNT}
"""Settings of analyses that draw prompts."""
PROMPTS = (NOTHING, [], torch.empty(0, 4, dtype=torch.long), torch.empty(3, 0, dtype=torch.long))
"""What holds no prompt, or prompts without a token; ``None`` first."""
