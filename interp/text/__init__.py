"""Text and tokens: tokenizer, the bytes of a token, prompt files."""
