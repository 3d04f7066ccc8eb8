"""How attention depends on positions: rotary, ALiBi, relative bias, none."""
