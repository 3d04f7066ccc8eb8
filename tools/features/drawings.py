"""Trials of CircuitsVis, which draws what other libraries compute."""

import torch

from tools.features.trials import Lacks, Library, imports_alone


class CircuitsVis(Library):
    """CircuitsVis."""

    package = "circuitsvis"

    def drawing(self) -> bool:
        """``attention_patterns``."""
        return "<script" in self._page()

    def offline_drawing(self) -> bool:
        """Whether the page names another host."""
        if "https://" in self._page():
            raise Lacks("its script comes from unpkg.com")
        return True

    def alone(self) -> bool:
        """In a process in which transformers can't be imported."""
        return imports_alone("circuitsvis")

    def _page(self) -> str:
        from circuitsvis.attention import attention_patterns

        return str(attention_patterns(["a", "b"], torch.ones(1, 2, 2)))
