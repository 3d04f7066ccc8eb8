"""Engines that two or more analyses use."""
