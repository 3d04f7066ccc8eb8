"""What is known of single heads: their measured roles, and the entries of the model's card."""

from analyses import HeadRoles
from analyses.results import fixed
from apps.defaults import card_of
from apps.explorer.offered import source_of
from apps.explorer.pages.measured import table_of
from apps.explorer.store import stored
from apps.explorer.view import Head
from interp.loading import AT_STEP


@stored
def roles(result: HeadRoles) -> dict[str, str]:
    """The roles of each head with their scores and controls, strongest first."""
    frame = table_of(result)
    texts: dict[str, list[str]] = {name: [] for name in frame["name"].unique()}
    with_role = frame[frame["has_role"]].sort_values("difference", ascending=False, kind="stable")
    for row in with_role.to_dict("records"):
        text = f"{row['role']} {fixed(row['score'], 2)} (control {fixed(row['control'], 2)})"
        texts[row["name"]].append(text)
    for layer, head in result.silent.nonzero().tolist():
        texts[str(Head(layer, head))] = ["silent: it writes nothing"]
    none = f"no role on {result.repeats} × {result.half} random tokens"
    return {name: ", ".join(roles) or none for name, roles in texts.items()}


def card_labels(model: str, attention: str | None) -> dict[str, str]:
    """What the model's card says about heads: its circuit, and figures whose value is a head.

    Args:
        model: the name of the model; a checkpoint has the card of the trained model.
        attention: the attention of an encoder–decoder; ``None`` for other models.
    """
    card = card_of(source_of(model))
    if card is None:
        return {}
    labels = dict.fromkeys(card.circuit.heads, "in the circuit") if card.circuit else {}
    for figure, value in card.figures.items():
        of_this = attention is None or f"{attention}-attention" in figure
        if of_this and Head.of(str(value)) is not None:
            labels[str(value)] = figure.removeprefix(f"{attention}-attention ")
    after = " (after training)" if AT_STEP.fullmatch(model) else ""
    return {head: f"{label}{after}" for head, label in labels.items()}
