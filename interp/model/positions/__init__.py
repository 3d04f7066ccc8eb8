"""Position schemes of attention: rotary, ALiBi, relative bias (of tokens, of patches), none."""
