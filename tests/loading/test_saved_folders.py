"""Folders that ``save_folder`` wrote: round trip, errors, dtypes, training steps."""

import pytest
import torch
from safetensors.torch import load_file, save_file

import interp
from interp.errors import ModelLoadError
from interp.loading import save_folder
from interp.saved import save_step


@pytest.fixture(scope="module")
def by_hand():
    return interp.load("induction-by-hand")


class TestFolder:
    @pytest.fixture
    def folder(self, tmp_path, by_hand):
        save_folder(by_hand, tmp_path / "model")
        return tmp_path / "model"

    def test_round_trip(self, folder, by_hand):
        again = interp.load(folder)
        tokens = torch.randint(63, (2, 9))
        assert torch.equal(again(tokens), by_hand(tokens))
        assert again.config == by_hand.config
        assert again.to_labels(tokens[0]) == by_hand.to_labels(tokens[0])

    def test_no_temporary_file_is_left(self, folder):
        names = {path.name for path in folder.iterdir()}
        assert names == {"config.json", "manifest.json", "model.safetensors", "tokenizer.json"}

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda w: w.pop("unembed.weight"), "unembed.weight is missing"),
            (lambda w: w.update(more=torch.ones(2)), "more belongs to no part"),
            (lambda w: w.update({"unembed.weight": torch.ones(3)}), "config asks for"),
            (lambda w: w["unembed.weight"].fill_(torch.inf), "not finite"),
        ],
    )
    def test_wrong_weights_are_named(self, folder, change, message):
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors")
        with pytest.raises(ModelLoadError, match=message):
            interp.load(folder)

    def test_truncated_and_missing_files_are_named(self, folder):
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-100])
        with pytest.raises(ModelLoadError, match="valid safetensors"):
            interp.load(folder)
        path.unlink()
        with pytest.raises(ModelLoadError, match="missing"):
            interp.load(folder)

    def test_an_empty_config_is_refused(self, folder):
        (folder / "config.json").write_text("{}")
        with pytest.raises(ModelLoadError, match="does not describe a model"):
            interp.load(folder)

    def test_an_unknown_name_is_refused_with_the_bundled_ones(self):
        with pytest.raises(ModelLoadError, match="induction-by-hand, python-2l"):
            interp.load("gpt-17")


class TestStoredInHalf:
    """A model stored in half precision computes in the dtype that it was saved from."""

    @pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16])
    def test_it_computes_in_the_dtype_that_it_was_saved_from(self, tmp_path, by_hand, stored):
        save_folder(by_hand, tmp_path, stored)
        assert load_file(tmp_path / "model.safetensors")["unembed.weight"].dtype == stored
        assert interp.load(tmp_path).dtype == torch.float32
        assert interp.load(tmp_path, dtype=stored).dtype == stored

    def test_a_model_in_half_precision_stays_in_it(self, tmp_path, by_hand):
        save_folder(interp.load("induction-by-hand", dtype=torch.bfloat16), tmp_path)
        assert interp.load(tmp_path).dtype == torch.bfloat16


class TestSteps:
    """Weights of training steps are stored beside the final ones."""

    @pytest.fixture
    def folder(self, tmp_path, by_hand):
        save_folder(by_hand, tmp_path / "model")
        other = interp.load("induction-by-hand")
        with torch.no_grad():
            other.W_U.zero_()
        save_step(other, tmp_path / "model", 400, torch.float16)
        return tmp_path / "model"

    def test_a_step_is_part_of_the_name(self, folder, by_hand):
        early = interp.load(f"{folder}@400")
        assert (early.config.name, early.dtype) == ("induction-by-hand@400", torch.float32)
        assert torch.equal(early.W_E, by_hand.W_E)
        assert not early.W_U.any()
        assert interp.load(folder).W_U.any()

    def test_an_unknown_step_is_refused_with_the_known_ones(self, folder):
        with pytest.raises(ModelLoadError, match=r"no weights of step 7; .* steps: 400"):
            interp.load(f"{folder}@7")
        with pytest.raises(ModelLoadError, match="steps: none"):
            interp.load("induction-by-hand@7")

    def test_a_damaged_step_is_named(self, folder):
        path = folder / "steps" / "000400.safetensors"
        path.write_bytes(path.read_bytes()[:-100])
        with pytest.raises(ModelLoadError, match=r"000400\.safetensors is not a valid"):
            interp.load(f"{folder}@400")

    def test_a_foreign_folder_has_no_steps(self, tmp_path):
        (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
        with pytest.raises(ModelLoadError, match="no weights of step 3"):
            interp.load(f"{tmp_path}@3")

    def test_an_existing_folder_takes_precedence_over_a_step(self, folder, by_hand):
        save_folder(by_hand, folder.parent / "model@400")
        assert interp.load(folder.parent / "model@400").W_U.any()

    def test_a_name_that_is_too_long_for_a_file(self):
        with pytest.raises(ModelLoadError, match="can't be read"):
            interp.load("x" * 300 + "@3")

    def test_a_folder_whose_own_name_has_an_at_sign(self, tmp_path, by_hand):
        save_folder(by_hand, tmp_path / "mine@3")
        assert torch.equal(interp.load(tmp_path / "mine@3").W_U, by_hand.W_U)
