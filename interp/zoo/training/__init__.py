"""How the bundled models were made: recipes, data, training, evaluation."""
