"""Does a head raise, or lower, the logit of the token that it attends to?

    copy-suppression    the source's own token is among the ten lowest of its OV logits
    token-copying       … among the ten highest

A head that attends to an earlier token and lowers its logit suppresses copies of what the model
would otherwise predict (McDougall et al. 2023, "Copy Suppression": in GPT-2, L10H7 does so for 85 %
of tokens). The control has the column of another source in place of its own: a head that lowers
some tokens whatever it attends to scores the same there.
"""

import torch

from analyses.head_census.kinds import Case, Family, Kind, Measured, NotShown
from analyses.head_census.ov_logits import ov_logits

EXTREME = 10
"""Number of logits that count as the lowest, or the highest."""
FEWEST_TOKENS = 10 * EXTREME
"""Number of tokens below which ten of them are no small part."""
GROUPS, SIZE = 8, 64
"""Number of samples, and the most sources of each."""
PAPER = 'McDougall et al. 2023, "Copy Suppression"'
SUPPRESSION = Kind(
    "copy-suppression", "share of tokens that are among the ten lowest of their OV logits", PAPER
)
COPYING = Kind(
    "token-copying", "share of tokens that are among the ten highest of their OV logits", PAPER
)


def measure(case: Case) -> list[Measured]:
    """The share of sources whose own token is at an end of the head's logits."""
    outputs = torch.tensor(sorted(case.trained), device=case.model.device)
    if len(outputs) < FEWEST_TOKENS:
        raise NotShown(f"ten logits are no small part of {len(outputs)} tokens")
    sources = case.drawn_tokens(GROUPS * SIZE)
    sources = sources[: len(sources) // GROUPS * GROUPS]
    column = torch.searchsorted(outputs, sources)
    layers, heads = case.sizes
    shares = torch.zeros(2, 2, layers, heads, GROUPS)  # end, own or another's
    for layer, head, circuit in ov_logits(case, sources, outputs):
        groups = circuit.left.chunk(GROUPS), column.chunk(GROUPS)
        for group, (values, targets) in enumerate(zip(*groups, strict=True)):
            logits = values @ circuit.right
            # The first beyond the ten at each end, so that ties count against a token.
            lowest, highest = (
                logits.topk(EXTREME + 1, largest=largest).values[:, -1] for largest in (False, True)
            )
            for number, columns in enumerate((targets, targets.roll(1))):
                of = logits.gather(1, columns[:, None])[:, 0]
                for end, is_at_end in enumerate((of < lowest, of > highest)):
                    shares[end, number, layer, head, group] = is_at_end.float().mean()
    return [
        Measured(kind, score=score, control=other)
        for kind, (score, other) in zip((SUPPRESSION, COPYING), shares, strict=True)
    ]


FAMILY = Family("own token", measure)
