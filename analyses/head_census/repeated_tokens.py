"""The roles of :func:`analyses.head_roles`, as kinds of the census.

The same rows, scores and controls; copying is measured behind the first MLP, if there is one.
"""

import torch

from analyses.head_census.kinds import Case, Family, Kind, Measured, NotShown, Task
from analyses.head_roles import BACKGROUND, COPYING, has_roles, head_roles
from analyses.methods.heads import repeated_rows

STATISTICS = {
    "previous-token": "attention to the previous token",
    "next-token": "attention to the next token",
    "bos-sink": "attention to BOS",
    "first-position-sink": "attention to the first position",
    "induction": "attention to the token after an earlier copy of the current one",
    "duplicate-token": "attention to an earlier copy of the current token",
    COPYING: "Σλ / Σ|λ| of W_E S W_U",
}
OLSSON = 'Olsson et al. 2022, "In-context Learning and Induction Heads"'
REFERENCES = {
    "bos-sink": 'Xiao et al. 2023, "Efficient Streaming Language Models with Attention Sinks"',
    "first-position-sink": 'Xiao et al. 2023, "Efficient Streaming Language Models with Sinks"',
    "duplicate-token": 'Wang et al. 2022, "Interpretability in the Wild"',
    COPYING: 'Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"',
}


def measure(case: Case) -> list[Measured]:
    """Attention on repeated random tokens, and copying."""
    if not has_roles(case.model):
        raise NotShown(
            "this model reads no tokens, or has too few or too short a context to repeat them"
        )
    roles = head_roles(
        case.model,
        rows=case.rows,
        seed=case.seed,
        first_mlp=case.has_first_mlp and case.sizes[0] > 1,
        progress=lambda at, of: case.done(at / of),
    )
    case.notes.extend(roles.notes)
    return [
        Measured(
            _kind(role),
            score.float(),
            roles.control[role].float(),
            task=_task(case) if role not in BACKGROUND else None,
            silent=roles.silent,
        )
        for role, score in roles.score.items()
    ]


def _kind(role: str) -> Kind:
    statistic = STATISTICS.get(role, f"attention to the token at {role}")
    unit = "−1 to 1" if role == COPYING else "0 to 1"
    return Kind(role, statistic, REFERENCES.get(role, OLSSON), unit)


def _task(case: Case) -> Task | None:
    """The loss on the rows of :func:`analyses.head_roles`."""
    if not case.predicts_next:
        return None
    ids = torch.tensor(sorted(case.trained))
    rows = repeated_rows(case.model, ids, rows=case.rows, seed=case.seed)
    return Task(rows.repeated, "loss", "loss on repeated tokens (nats)")


FAMILY = Family("repeated tokens", measure)
