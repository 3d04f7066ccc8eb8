"""The bundled models: what is told of each, and the recipes that made them."""
