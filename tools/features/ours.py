"""Trials of interp."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import torch

import interp
from analyses import attention_patterns
from apps import widget
from interp import edits
from tools.features.trials import (
    PADDED,
    TOKENS,
    Library,
    close,
    huggingface,
    is_pattern,
    mamba,
    refuses,
)

HEAD = edits.zero("z", layer=0, head=1)


class Ours(Library):
    """interp."""

    package = "interp"

    @cached_property
    def model(self) -> interp.Transformer:
        """The GPT-2 of ``transformers``, loaded."""
        return interp.load(huggingface())

    def pattern(self) -> bool:
        """``cache["pattern"]``."""
        return is_pattern(interp.run(self.model, self.tokens, record="all").cache["pattern", 0])

    def fused(self) -> bool:
        """The kernel that never forms the matrix in the forward."""
        run = interp.run(self.model, self.tokens, record="all", kernel="fused")
        return is_pattern(run.cache["pattern", 0])

    def zero(self) -> bool:
        """``edits.zero``."""
        edited = interp.run(self.model, self.tokens, edits=[HEAD], record="z")
        return bool((edited.cache["z", 0][:, :, 1] == 0).all())

    def edge(self) -> bool:
        """``edits.edge``."""
        lost = edits.edge("L0H0", "L1MLP", 0.0)
        changed = interp.run(self.model, self.tokens, edits=[lost]).require_logits()
        return not close(changed, self.model(self.tokens))

    def many(self) -> bool:
        """``interp.sweep``."""
        heads = [edits.zero("z", layer=n, head=h) for n in range(2) for h in range(2)]
        values = interp.sweep(self.model, self.tokens, heads, interp.metrics.logit(1)).values
        return values.shape == (4, 1)

    def misspelt(self) -> bool:
        """An edit, and a record, of a place that is none."""
        run = interp.run
        return refuses(lambda: run(self.model, self.tokens, record="patern")) and refuses(
            lambda: run(self.model, self.tokens, edits=[edits.zero("zz", layer=0)])
        )

    def left_padding(self) -> bool:
        """Padding is ``interp.PAD``."""
        padded = [interp.PAD if i < 3 else token for i, token in enumerate(PADDED)]
        alone = self.model([PADDED[3:]])
        return close(self.model([padded])[:, 3:], alone)

    def after_error(self) -> bool:
        """A function that raises."""
        before = self.model(self.tokens)
        failing = edits.apply("z", lambda z, hook: z * (1 / 0), layer=0)
        return refuses(lambda: interp.run(self.model, self.tokens, edits=[failing])) and close(
            self.model(self.tokens), before
        )

    def safe_cache(self) -> bool:
        """Each read is a tensor of its own."""
        cache = interp.run(self.model, self.tokens, record="all").cache
        before = cache["z", 0].clone()
        cache["z", 0].zero_()
        return close(cache["z", 0], before)

    def threads(self) -> bool:
        """Each of two threads zeroes another head, a hundred times."""
        heads = [[edits.zero("z", layer=0, head=head)] for head in range(2)]
        alone = [interp.run(self.model, self.tokens, edits=head).require_logits() for head in heads]

        def often(which: int) -> bool:
            runs = (interp.run(self.model, self.tokens, edits=heads[which]) for _ in range(100))
            return all(close(run.require_logits(), alone[which]) for run in runs)

        with ThreadPoolExecutor(2) as pool:
            return all(pool.map(often, range(2)))

    def json(self) -> bool:
        """``to_dict`` and ``from_dict``."""
        return edits.from_dict(json.loads(json.dumps(HEAD.to_dict()))) == HEAD

    def steering(self) -> bool:
        """``keep_graph``."""
        vector = torch.zeros(16, requires_grad=True)
        added = edits.apply("resid_pre", lambda x, hook: x + vector, layer=1)
        run = interp.run(self.model, self.tokens, edits=[added], keep_graph=True)
        run.require_logits()[0, -1, 3].backward()
        return vector.grad is not None and bool(vector.grad.abs().sum() > 0)

    def generation(self) -> bool:
        """``generate(edits=)``."""
        far = edits.add("resid_post", torch.linspace(9, -9, 16), layer=1)
        plain = self.model.generate(self.tokens, max_new_tokens=4)
        return not torch.equal(
            plain, self.model.generate(self.tokens, max_new_tokens=4, edits=[far])
        )

    def mamba(self) -> bool:
        """Families are Transformers."""
        return interp.load(mamba()) is not None

    def drawing(self) -> bool:
        """The figure of ``attention_patterns``."""
        return any(attention_patterns(self.model, TOKENS[0]).figure().select_traces())

    def offline_drawing(self) -> bool:
        """The script that draws in reports and explorer."""
        return "https://" not in widget.bundle("report")

    def alone(self) -> bool:
        """In a process in which transformers can't be imported."""
        code = (
            "import sys; sys.modules['transformers'] = None\n"
            "import interp; interp.load('rasp-reverse')('abc')"
        )
        return not subprocess.run([sys.executable, "-c", code], check=False).returncode

    def known_circuits(self) -> bool:
        """``interp.card``."""
        return interp.card("rasp-reverse").circuit is not None
