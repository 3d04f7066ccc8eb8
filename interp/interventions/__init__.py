"""Ablation, activation patching and steering: which components are edited, and with what values."""
