"""The bundled dictionaries: whole, of their model, and as good as their page has it."""

import json
from hashlib import sha256

import pytest
import torch

import interp
from analyses import check_dictionaries
from interp import dictionaries
from interp.dictionaries import BUNDLED
from tools.dictionary_figures import held_out_texts

NAMES = dictionaries.bundled()


def test_files_are_those_of_their_manifests():
    assert len(NAMES) == 5
    for name in NAMES:
        manifest = json.loads((BUNDLED / name / "manifest.json").read_text())
        for file, digest in manifest["files"].items():
            assert sha256((BUNDLED / name / file).read_bytes()).hexdigest() == digest


@pytest.mark.slow
def test_they_explain_about_what_their_page_has():
    """Of held-out text: more of the loss than a decoder with permuted rows, and with about 32."""
    model = interp.load("python-4l")
    loaded = [dictionaries.load(name) for name in NAMES]
    texts = held_out_texts()[:8]
    frame = check_dictionaries(interp.with_dictionaries(model, loaded), texts).to_frame()
    assert float(frame["recovered"].min()) > 0.7
    assert float(frame["fvu"].max()) < 0.4
    assert frame["l0"].between(20, 50).all()
    generator = torch.Generator().manual_seed(0)
    rows = torch.randperm(loaded[0].n_features, generator=generator)
    mixed = [d.with_tensors({**d.tensors(), "w_dec": d.w_dec[rows]}) for d in loaded]
    control = check_dictionaries(interp.with_dictionaries(model, mixed), texts).to_frame()
    assert float(control["fvu"].min()) > 1
    assert (control["recovered"] < frame["recovered"]).all()
