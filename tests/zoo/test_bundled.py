"""Every bundled model is whole: a recipe, a card, weights that fit the house, prompts it reads."""

import json
import shutil

import pytest
from architectures import covering
from tables import each

import analyses
import interp
from interp.config import Config
from interp.errors import ModelLoadError
from interp.loading import MODEL_FOLDER
from interp.loading.checksums import SUMS, write_sums
from interp.prompts import PROMPT_FOLDER as PROMPTS
from interp.prompts.prompts import bundled_prompts, read_prompts
from interp.zoo.card import read_card
from interp.zoo.history import read_history
from training.recipes import RECIPES

NAMES = interp.bundled()
by_name = pytest.mark.parametrize("name", NAMES)
MOST_BYTES = 40_000_000


def test_every_recipe_has_a_model_and_every_model_a_recipe():
    assert sorted(RECIPES) == NAMES


def test_all_weights_together_are_small():
    assert sum(path.stat().st_size for path in MODEL_FOLDER.rglob("*.safetensors")) <= MOST_BYTES


@by_name
def test_a_card_is_complete(name):
    card = interp.card(name)
    assert card == read_card(MODEL_FOLDER / name)
    assert card.name == name
    texts = (card.summary, card.mechanism, card.data, card.recipe, card.limits)
    assert all(text and "nan" not in text.lower().split() for text in texts)
    assert card.figures["parameters"] == sum(p.numel() for p in interp.load(name).parameters())
    assert (MODEL_FOLDER / name / "README.md").read_text() == card.to_markdown()


@by_name
def test_what_ablations_measure_can_be_measured(name):
    model = interp.load(name)
    if model.config.decoder is None:
        assert interp.card(name).metric != "loss"


@by_name
def test_it_runs_in_float32_under_its_own_name(name):
    model = interp.load(name)
    assert (model.config.name, str(model.dtype)) == (name, "torch.float32")


@pytest.mark.parametrize("name", covering(NAMES, set(NAMES) - {"python-4l", "python-mlm", "dates"}))
def test_identities_hold(name):
    broken = [identity for identity in analyses.verify(interp.load(name)) if not identity.holds]
    assert not broken


@by_name
def test_it_reads_its_prompts(name):
    model, card = interp.load(name), interp.card(name)
    prompts = read_prompts(card.prompts)
    model.to_tokens([prompt.text for prompt in prompts])
    if card.metric == "logit-diff":
        for prompt in prompts:
            target, distractor = (
                model.to_single_token(text or "") for text in (prompt.target, prompt.distractor)
            )
            assert target != distractor


def test_every_bundled_set_of_prompts_is_written_for_a_model():
    from training.recipes import python_4l  # noqa: PLC0415

    cards = [interp.card(name) for name in NAMES]
    used = {card.prompts for card in cards} | {card.pairs for card in cards if card.pairs}
    of_english = {path.stem for path in PROMPTS.glob("*.toml")}
    assert sorted(used | set(python_4l.PROMPTS) | of_english) == bundled_prompts()


@pytest.mark.parametrize("name", bundled_prompts())
def test_no_prompt_stands_twice_in_a_set(name):
    pairs = [(prompt.text, prompt.corrupt) for prompt in read_prompts(name)]
    assert len(set(pairs)) == len(pairs) >= 24


# Missing or damaged files.


def test_a_missing_history_or_card_is_an_error(tmp_path):
    with pytest.raises(ModelLoadError, match=r"no history\.json: the model was not trained"):
        interp.history("induction-by-hand")
    with pytest.raises(ModelLoadError, match=r"no card\.json: this model has no card"):
        interp.card(tmp_path)


@pytest.mark.parametrize("wrong", ["python-9l", "x" * 5000, "nowhere@3"])
def test_the_card_and_history_of_no_model_are_refused(wrong):
    for read in (interp.card, interp.history):
        with pytest.raises(ModelLoadError, match=r"neither a bundled model .*python-2l.* nor a"):
            read(wrong)


def test_a_step_has_the_card_of_its_model():
    assert interp.card("python-2l@400") == interp.card("python-2l")
    assert interp.history("python-2l@400") == interp.history("python-2l")


def test_a_card_is_written_in_utf_8_whatever_the_machine_writes_in(tmp_path, monkeypatch):
    monkeypatch.setattr("io.text_encoding", lambda encoding, *_: encoding or "ascii")
    card = interp.card("dates")
    assert not card.to_markdown().isascii()
    card.write(tmp_path)
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == card.to_markdown()


@each("damage", ["", "{}", "[]", '{"measured": 3}', '{"measured": {"x": {}}}'])
def test_a_damaged_history_is_an_error(tmp_path, damage):
    (tmp_path / "history.json").write_text(damage)
    with pytest.raises(ModelLoadError, match=r"history\.json can't be read"):
        read_history(tmp_path)


@each("damage", ["", "[]", '{"name": "x"}', '{"circuit": {"heads": []}}'])
def test_a_damaged_card_is_an_error(tmp_path, damage):
    (tmp_path / "card.json").write_text(damage)
    with pytest.raises(ModelLoadError, match=r"card\.json can't be read"):
        read_card(tmp_path)


@pytest.mark.parametrize("name", ["rasp-reverse", "dates"])
def test_a_card_under_the_field_names_of_older_versions_is_read(tmp_path, name):
    fields = json.loads((MODEL_FOLDER / name / "card.json").read_text())
    fields["truth"] = fields.pop("circuit")
    fields["circuit"] = fields.pop("mechanism")
    (tmp_path / "card.json").write_text(json.dumps(fields))
    assert read_card(tmp_path) == interp.card(name)


def test_configurations_are_of_this_version():
    for name in NAMES:
        text = (MODEL_FOLDER / name / "config.json").read_text()
        assert Config.from_json(text).to_json() == text


# The list of the weights.


def test_all_weights_are_listed(tmp_path):
    listed = MODEL_FOLDER / SUMS
    folder = shutil.copytree(MODEL_FOLDER, tmp_path / "models")
    write_sums(folder)
    assert (folder / SUMS).read_text() == listed.read_text()
    assert len(listed.read_text().splitlines()) == len(list(MODEL_FOLDER.rglob("*.safetensors")))


@pytest.mark.parametrize("name", ["rasp-reverse", "python-2l@400"])
def test_bundled_weights_that_were_changed_are_refused(name, tmp_path, monkeypatch):
    folder = shutil.copytree(MODEL_FOLDER, tmp_path / "models")
    monkeypatch.setattr("interp.loading.MODEL_FOLDER", folder)
    interp.load(name)
    model, _, step = name.partition("@")
    file = folder / model / (f"steps/{int(step):06d}.safetensors" if step else "model.safetensors")
    content = bytearray(file.read_bytes())
    content[-2] ^= 1
    file.write_bytes(content)
    with pytest.raises(ModelLoadError, match=rf"{file.name} is not the file that .*{SUMS} lists"):
        interp.load(name)
    assert interp.load(folder / model)  # as a user's own
    (folder / SUMS).unlink()
    with pytest.raises(ModelLoadError, match=SUMS):
        interp.load(name)


# What a card may say.


def card_with(tmp_path, **fields):
    content = json.loads((MODEL_FOLDER / "dates" / "card.json").read_text()) | fields
    (tmp_path / "card.json").write_text(json.dumps(content))
    return tmp_path


@pytest.mark.parametrize(
    "prompts", ["/etc/passwd", "../prompts/dates", "dates.jsonl", "", "\0", "no-such-set"]
)
def test_a_card_names_bundled_prompts_alone(prompts, tmp_path):
    assert interp.card(card_with(tmp_path)).prompts == "dates"
    with pytest.raises(ModelLoadError, match="it must name a bundled set"):
        interp.card(card_with(tmp_path, prompts=prompts))
    if prompts:
        with pytest.raises(ModelLoadError, match="it must name a bundled set"):
            interp.card(card_with(tmp_path, pairs=prompts))


@each(
    ("fields", "message"),
    [
        ({"figures": {"a": True}}, r"card\.figures\['a'\] should be of type float or int or str"),
        ({"figures": {"a": [1]}}, r"card\.figures\['a'\]"),
        ({"figures": 3}, r"card\.figures should be an object"),
        ({"summary": None}, r"card\.summary should be of type str"),
        ({"metric": "accuracy"}, "must be one of loss, logit-diff"),
        (
            {"circuit": {"heads": ["L0H0"], "mlps": [], "edges": [["a"]]}},
            r"edges\[0\] should have 2",
        ),
        ({"trained_tokens": [1, "2"]}, r"card\.trained_tokens\[1\] should be of type int"),
        ({"more": 1}, "card has no field 'more'"),
        ({"version": 2}, "card has version 2.*pip install --upgrade interp"),
        ({"version": "1"}, r"card\.version should be an integer"),
        ({"version": 0}, r"card\.version should be an integer"),
    ],
)
def test_a_card_of_wrong_types_or_of_a_newer_version_is_refused(fields, message, tmp_path):
    with pytest.raises(ModelLoadError, match=rf"card\.json can't be read: .*{message}"):
        read_card(card_with(tmp_path, **fields))


@each(
    ("fields", "message"),
    [
        ({"losses": [1.0, "x"]}, r"history\.losses\[1\] should be of type float"),
        ({"losses": [None]}, r"history\.losses\[0\]"),
        ({"measured": {"x": {}}}, r"history\.measured\['x'\]: the name should be an integer"),
        ({"measured": {"1": {"a": "b"}}}, r"history\.measured\['1'\]\['a'\]"),
        ({"checkpoints": [1.5]}, r"history\.checkpoints\[0\] should be of type int"),
        ({"version": 2}, "history has version 2"),
    ],
)
def test_a_history_of_wrong_types_or_of_a_newer_version_is_refused(fields, message, tmp_path):
    content = json.loads((MODEL_FOLDER / "dates" / "history.json").read_text()) | fields
    (tmp_path / "history.json").write_text(json.dumps(content))
    with pytest.raises(ModelLoadError, match=rf"history\.json can't be read: .*{message}"):
        read_history(tmp_path)


def test_a_configuration_of_a_newer_version_is_refused(tmp_path):
    folder = shutil.copytree(MODEL_FOLDER / "rasp-reverse", tmp_path / "model")
    content = json.loads((folder / "config.json").read_text())
    assert content["version"] == 1
    (folder / "config.json").write_text(json.dumps(content | {"version": 2}))
    with pytest.raises(ModelLoadError, match=r"version 2 .*pip install --upgrade interp"):
        interp.load(folder)
    del content["version"]  # as before there were versions
    (folder / "config.json").write_text(json.dumps(content))
    assert interp.load(folder)
