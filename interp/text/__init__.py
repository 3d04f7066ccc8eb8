"""Tokenizers, bytes and labels of tokens, and prompt files."""
