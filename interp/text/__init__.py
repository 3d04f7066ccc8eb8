"""Text: tokenizer, bytes and labels of tokens, prompt files."""
