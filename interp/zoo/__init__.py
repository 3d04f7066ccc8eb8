"""The bundled models.

access.py     the card and the history of a model, by name or folder
card.py       a model's card: figures, limits, circuit if known; card.json and README.md
circuit.py    a circuit as data: heads, MLPs, edges
history.py    losses and figures of a training run; history.json
cards/        cards of models in other packages
models/       a folder per model: config.json, weights, tokenizer.json, card, history; SHA256SUMS
prompts/      prompt sets: a JSON Lines file each, or a template
"""

from interp.zoo.access import CARDS, card, card_folder, history, trained_tokens
from interp.zoo.card import FILE, Card, read_card
from interp.zoo.circuit import Circuit, LiveEdges
from interp.zoo.history import History

__all__ = [
    "CARDS",
    "FILE",
    "Card",
    "Circuit",
    "History",
    "LiveEdges",
    "card",
    "card_folder",
    "history",
    "read_card",
    "trained_tokens",
]
