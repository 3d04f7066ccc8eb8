"""Position schemes of attention: rotary, ALiBi, relative bias, none."""
