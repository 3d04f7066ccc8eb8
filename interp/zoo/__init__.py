"""The bundled models: weights, cards, and the recipes that made them."""
