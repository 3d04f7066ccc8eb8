"""Sweeps that the tests of executors compare, and functions that end a worker."""

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from architectures import ARCHITECTURES, build, padded, tokens_of

import interp
from interp import edits, metrics
from interp.model import as_network

LITTLE = 60_000
"""Bytes for a few edited forwards: a sweep then has many jobs and groups."""
ONE_AT_A_TIME = 30_000
OF_DIVERGENCE = ("gemma2", "t5")
"""Of these, executors measure the divergence from the forward without edits."""
MODEL = build("gpt2")
TOKENS = tokens_of("gpt2", batch=3, pos=5)[0]
METRIC = metrics.logit_diff((1, 2, 3), 0)
HEADS = [edits.zero("z", layer=layer, head=head) for layer in range(2) for head in range(3)]


def pids(pool) -> list[int]:
    """The processes of all workers, once each is ready."""
    pool.prepare(MODEL, every=True)
    return [state.facts.pid for state in pool._started.states.values() if state.facts is not None]


def norm_of(case: int):
    """Whether logits are those of a case: by their norm, which is compared within rounding."""
    edited = interp.run(MODEL, TOKENS, edits=[HEADS[case]]).logits
    assert edited is not None
    norm = edited.norm()
    return lambda logits: bool((logits.norm() - norm).abs() < 1e-9)


def swept(name: str):
    """Arguments of a sweep of an architecture, with prompts of several lengths."""
    model = build(name)
    if name not in ARCHITECTURES or len(model.stacks) == 1:
        (tokens,) = tokens_of(name, batch=5, pos=6)
        tokens = padded([tokens[0], tokens[1][:4], tokens[2], tokens[3][:3], tokens[4]], "left")
        metric = metrics.logit_diff((1, 2, 3, 0, 1), 4)
    else:
        tokens, metric = tuple(tokens_of(name, batch=5, pos=6)), metrics.loss()
    generator = torch.Generator().manual_seed(1)
    made = []
    inputs = tokens if isinstance(tokens, tuple) else (tokens,)
    for stack, ids in zip(as_network(model).stacks, inputs, strict=True):
        which: dict[str, Any] = {} if len(model.stacks) == 1 else {"stack": stack.name}
        for layer in range(len(stack.blocks)):
            kinds = model.config.stacks[stack.name].layer_kinds
            heads = min(kind.attention.n_heads for kind in kinds)
            made += [edits.zero("z", layer=layer, head=head, **which) for head in range(heads)]
            values = torch.randn(*ids.shape, model.config.d_model, generator=generator).double()
            made += [edits.replace("resid_post", values, layer=layer, **which)]
    return model, tokens, made, metric


def ends_worker_at(case_of, folder: Path, times: int = 1):
    """A metric that kills its process when ``case_of(logits)``, at most so many times."""
    driver = os.getpid()

    def metric(logits, batch):
        killed = len(list(folder.iterdir()))
        if os.getpid() != driver and killed < times and case_of(logits):
            (folder / str(killed)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return logits.double().square().mean((1, 2))

    return metric


def end_within(pids: Sequence[int], seconds: float = 20, least: int | None = None) -> bool:
    """Whether at least so many of the processes (all by default) end within so many seconds."""
    deadline = time.monotonic() + seconds
    while (ended := sum(map(is_gone, pids))) < (len(pids) if least is None else least):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return ended > 0


def is_gone(pid: int) -> bool:
    """Whether a process has ended, or is only waited for."""
    try:
        return " Z " in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
