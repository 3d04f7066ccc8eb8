"""Trials of CircuitsVis, which draws what other libraries compute."""

import subprocess
import sys

import torch

from benchmarks.features.trials import Lacks, Library


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
        code = "import sys; sys.modules['transformers'] = None; import circuitsvis"
        return not subprocess.run(
            [sys.executable, "-c", code], check=False, capture_output=True
        ).returncode

    def _page(self) -> str:
        from circuitsvis.attention import attention_patterns

        return str(attention_patterns(["a", "b"], torch.ones(1, 2, 2)))
