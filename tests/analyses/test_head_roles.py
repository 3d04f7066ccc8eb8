"""Roles of heads: by the formulas on random models, and those of models whose heads are known."""

from importlib import import_module

import pytest
import torch
from architectures import ARCHITECTURES, assert_close, build, build_new, covering
from declared import Call, Command, Declared, Made, Symmetric, Without, example, odd, small

import interp
from analyses import head_roles
from analyses.head_roles import ROWS
from analyses.methods.heads.repetition import repeated_rows
from interp import NO_NORM, AttentionConfig, Config, StackConfig, Transformer, run
from interp.errors import InvalidInput, InvalidTokens
from interp.zoo.access import trained_tokens

SINGLE = [name for name, config in ARCHITECTURES.items() if len(config.stacks) == 1]
VOCABULARY = torch.arange(13)


def score_of(heads, role, name):
    row = heads.to_frame().query("role == @role and name == @name").iloc[0]
    return row["score"], row["control"]


def test_rows_are_run_in_parts_of_any_size(monkeypatch):
    """Which heads write nothing depends on all of them."""
    model = build_new("gpt2")
    with torch.no_grad():
        model.blocks[0].attn.W_O[1].zero_()
    settings = {"tokens": VOCABULARY.tolist(), "half": 4, "rows": 7}
    whole = head_roles(model, **settings)
    monkeypatch.setattr(import_module("analyses.head_roles"), "ROWS", 3)
    steps = []
    in_parts = head_roles(model, **settings, progress=lambda *at: steps.append(at))
    assert steps == [(done, 3 + len(model.blocks)) for done in (1, 2, 3, 5)]  # without copying
    for role, scores in whole.score.items():
        assert_close(in_parts.score[role], scores)
        assert_close(in_parts.control[role], whole.control[role])
    assert torch.equal(in_parts.silent, whole.silent)
    assert whole.silent[0, 1]
    assert whole.silent.sum() == 1


# ---- the formulas -------------------------------------------------------------------------------


def keys_of(role, i, half, first):
    """The keys of a query by the definition of its role; ``first`` is that of the random tokens."""
    if role.endswith("-sink"):
        return [0] if i > 1 else []
    copies = [i - n * half for n in range(-9, 9) if n]
    offsets = {"previous-token": -1, "next-token": 1}
    if role == "duplicate-token":
        keys = copies
    elif role == "induction":
        keys = [j + 1 for j in copies if first <= j < i]
    else:
        keys = [i + offsets.get(role, int(role.split()[-1]) if " " in role else 0)]
    return [j for j in keys if j >= max(first, 1)] if i >= max(first, 1) else []


@pytest.mark.parametrize("name", covering(SINGLE))
@pytest.mark.parametrize(("half", "repeats"), [(6, 2), (4, 3)])
def test_scores_are_mean_attention_on_the_cells_of_a_role(name, half, repeats):
    """Against loops over queries and keys; the control of repetition is on unrepeated rows."""
    model = build(name)
    heads = head_roles(model, half=half, repeats=repeats, rows=2, tokens=range(13))
    drawn = repeated_rows(model, VOCABULARY, half=half, repeats=repeats, rows=2)
    n = half * repeats
    for layer in range(len(model.blocks)):
        pattern, other = (
            run(model, batch, record="pattern").cache["pattern", layer]
            for batch in (drawn.repeated, drawn.unrepeated)
        )
        seen = pattern[0].amax(0) > 0
        for role, scores in heads.score.items():
            cells = [
                [j for j in keys_of(role, i, half, 0) if 0 <= j < n and seen[i, j]]
                for i in range(n)
            ]
            queries = [i for i in range(n) if cells[i]]
            if not queries:
                assert scores[layer].isnan().all(), role
                continue
            expected = torch.stack([pattern[:, :, i, cells[i]].sum(-1) for i in queries]).mean(0).T
            assert_close(scores[layer], expected, what=role)
            if role in ("induction", "duplicate-token"):
                control = torch.stack([other[:, :, i, cells[i]].sum(-1) for i in queries])
                assert_close(heads.control[role][layer], control.mean(0).T, what=role)
            else:
                equal = sum(len(cells[i]) / int(seen[i].sum()) for i in queries) / len(queries)
                assert heads.control[role][layer].sub(equal).abs().max() < 1e-12
    assert not heads.to_frame().isna().drop(columns=["low", "high"]).any(axis=None)


def test_rows_are_distinct_tokens_and_their_repetition():
    model = interp.load("python-2l")
    drawn = repeated_rows(model, torch.tensor(trained_tokens(model)), half=20, rows=4, repeats=3)
    repeated, unrepeated = drawn.repeated.ids, drawn.unrepeated.ids
    assert repeated.shape == unrepeated.shape == (4, 61)
    assert (repeated[:, 0] == 0).all()
    assert torch.equal(repeated[:, 1:21], repeated[:, 21:41])
    assert torch.equal(repeated[:, 1:21], unrepeated[:, 1:21])
    assert all(len(set(row.tolist())) == 61 for row in unrepeated)
    assert torch.equal(repeated[:, drawn.again], repeated[:, 21:])
    assert set(unrepeated[:, 1:].flatten().tolist()) <= set(trained_tokens(model))


def test_random_tokens_are_those_of_the_card_or_all_but_the_special():
    assert trained_tokens(interp.load("python-2l@0")) == interp.card("python-2l").trained_tokens
    assert trained_tokens(build("gpt2")) == tuple(range(13))
    assert 0 not in trained_tokens(Transformer(interp.load("induction-by-hand").config))


def copying_model(sign):
    """S = ± a projector and W_U = W_Eᵀ: eigenvalues of W_E S W_U are ± those of a Gram matrix."""
    attention = AttentionConfig(2, 4, bias_q=False, bias_k=False, bias_v=False, bias_o=False)
    config = Config(12, 40, 16, decoder=StackConfig(1, attention, None, NO_NORM), tied=True)
    model = Transformer(config).double()
    with torch.no_grad():
        model.blocks[0].attn.W_V[0] = torch.eye(12, 4)
        model.blocks[0].attn.W_O[0] = sign * torch.eye(4, 12)
    return model


def test_a_head_that_moves_a_token_to_its_own_logit_copies():
    heads = head_roles(copying_model(1), rows=5)
    assert heads.score["copying"][0, 0].sub(1).abs().max() < 1e-9
    assert heads.control["copying"][0, 0].max() < 0.9
    assert "copying" in heads.roles()["L0H0"]


def test_a_head_that_moves_it_to_the_opposite_does_not():
    heads = head_roles(copying_model(-1), rows=5)
    assert heads.score["copying"][0, 0].add(1).abs().max() < 1e-9
    assert "copying" not in heads.roles()["L0H0"]


def copying_with(change):
    """The copying scores of a random model whose W_U [vocab d_model] is changed."""
    model = untied_model()
    with torch.no_grad():
        model.unembed.weight += change
    return head_roles(model, rows=5).score["copying"]


def untied_model():
    attention = AttentionConfig(2, 4, bias_q=False, bias_k=False, bias_v=False, bias_o=False)
    torch.manual_seed(0)
    return Transformer(Config(12, 40, 16, decoder=StackConfig(2, attention, None))).double()


def test_a_vector_added_to_every_column_of_W_U_changes_no_copying_score():
    constant, other = torch.randn(12, dtype=torch.float64), torch.randn(40, 12).double()
    scores = copying_with(0.0)
    assert_close(copying_with(10 * constant), scores, 1e-9)
    assert (copying_with(other) - scores).abs().amax(-1).min() > 0.01


@pytest.mark.parametrize("weight", ["W_V", "W_O"])
def test_a_head_that_writes_nothing_is_silent(weight):
    model = build_new("llama")
    with torch.no_grad():
        getattr(model.blocks[1].attn, weight)[1].zero_()
    heads = head_roles(model, rows=5)
    expected = torch.zeros(2, 4, dtype=torch.bool)
    expected[1, [2, 3] if weight == "W_V" else [1]] = True  # two heads share a value head
    assert torch.equal(heads.silent, expected)
    for layer, head in expected.nonzero().tolist():
        assert heads.roles()[f"L{layer}H{head}"] == ("silent",)
    assert not any(score.isnan().any() for score in heads.score.values())
    assert "silent " in heads.summary()


def test_in_half_precision_only_heads_that_write_nothing_are_silent():
    heads = head_roles(build("llama", dtype=torch.bfloat16), rows=5)
    assert not heads.silent.any()
    assert all(score.dtype == torch.float32 for score in heads.score.values())


def test_a_head_that_attends_evenly_has_no_role():
    """Zero Q: score = control for every role by offset."""
    model = build_new("gpt2")
    with torch.no_grad():
        model.blocks[0].attn.W_Q[1].zero_()
        model.blocks[0].attn.b_Q[1].zero_()
    heads = head_roles(model, rows=5)
    for role, scores in heads.score.items():
        assert_close(scores[0, 1], heads.control[role][0, 1], what=role)
    assert heads.roles()["L0H1"] == ()


def test_a_window_that_hides_the_keys_of_a_role_leaves_it_out():
    """Layer 0 of gemma2 sees three tokens back; half is 6."""
    heads = head_roles(build("gemma2"), rows=5)
    rows = heads.to_frame().query("role == 'induction'")
    assert set(rows["layer"]) == {1}
    assert not heads.to_frame().isna().any(axis=None)


def test_an_encoder_has_next_token_heads_and_no_induction():
    heads = head_roles(build("bert"), rows=5)
    assert "next-token" in heads.score
    assert "induction" not in heads.score
    assert "attention to next tokens predicts none" in heads.summary()
    assert "next-token" not in head_roles(build("gpt2"), rows=5).score


def test_fewer_than_five_rows_name_no_head():
    heads = head_roles(interp.load("induction-by-hand"), rows=4)
    attention = heads.to_frame().query("role != 'copying'")
    assert not attention["has_role"].any()
    assert "fewer than 5 rows: no intervals, so no role of attention" in heads.summary()


# ---- models whose heads are known ---------------------------------------------------------------


def test_induction_by_hand_is_two_heads():
    roles = head_roles(interp.load("induction-by-hand"), rows=8).roles()
    assert roles["L0H0"] == ("previous-token",)
    assert set(roles["L1H0"]) >= {"induction", "copying"}
    others = {name: of_head for name, of_head in roles.items() if name not in ("L0H0", "L1H0")}
    assert set(others.values()) == {("silent",)}


def test_progress_counts_runs_and_layers_of_copying():
    steps = []
    settings = {"half": 4, "rows": ROWS + 1}
    head_roles(interp.load("python-2l"), **settings, progress=lambda *at: steps.append(at))
    assert sorted({*steps}) == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_the_roles_of_python_2l():
    heads = head_roles(interp.load("python-2l"))
    expected = {
        ("previous-token", "L0H5"): 0.961,
        ("induction", "L1H0"): 0.785,
        ("induction", "L1H5"): 0.687,
        ("induction", "L1H2"): 0.544,
    }
    for (role, name), value in expected.items():
        score, control = score_of(heads, role, name)
        assert score == pytest.approx(value, abs=0.02), name
        assert control <= 0.035, name  # of previous tokens, what uniform attention has
        assert heads.roles()[name][0] == role
    assert score_of(heads, "induction", "L0H5")[0] < 0.01
    first = heads.summary().split("\n")[0]
    assert first.startswith("python-2l: of 16 heads on 2 × 60 random tokens, L0H5 (previous-token ")
    assert "L1H0 (induction " in first
    assert "copying" not in first
    assert "sink" not in first
    assert "bos-sink" in heads.score


def test_without_bos_the_sink_is_the_first_position():
    heads = head_roles(build("gpt2"), rows=5)
    assert "first-position-sink" in heads.score
    assert "bos-sink" not in heads.score


def test_copying_after_the_first_mlp_reads_what_it_adds_to_embeddings():
    """In layer 0, which reads embeddings alone, nothing changes; other roles never change."""
    model = interp.load("python-4l")
    plain, after = (
        head_roles(model, rows=2, half=8, first_mlp=behind_mlp) for behind_mlp in (False, True)
    )
    assert torch.equal(plain.score["copying"][0], after.score["copying"][0])
    assert (plain.score["copying"][1:] - after.score["copying"][1:]).abs().amin(0).max() > 0.01
    assert torch.equal(plain.score["induction"], after.score["induction"])
    with pytest.raises(InvalidInput, match="no MLP"):
        head_roles(interp.load("python-2l"), rows=2, first_mlp=True)


def test_the_roles_of_python_4l():
    heads = head_roles(interp.load("python-4l"), rows=6)
    assert score_of(heads, "previous-token", "L2H5")[0] == pytest.approx(0.997, abs=0.002)
    assert heads.roles()["L2H5"] == ("previous-token",)
    assert score_of(heads, "induction", "L3H1")[0] == pytest.approx(0.8356, abs=0.02)


@pytest.mark.parametrize("seed", [0, 1])
def test_before_training_no_head_has_a_role(seed):
    heads = head_roles(interp.load("python-2l@0"), rows=8, seed=seed)
    assert not any(heads.roles().values())
    assert heads.summary().split("\n")[0].startswith("python-2l@0: none of 16 heads stands out")


# ---- what it refuses ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "match"),
    [("dates", "models of pairs"), ("addition-mod-113", "half=1 is the most")],
)
def test_models_that_it_refuses(name, match):
    with pytest.raises(InvalidInput, match=match):
        head_roles(interp.load(name))


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"repeats": 1}, "repeats=1 must be an integer of at least 2"),
        ({"rows": 0}, "rows=0 must be an integer of at least 1"),
        ({"half": 9}, "half=6 is the most"),
        ({"tokens": [1, 2, 3]}, "there are 3 of them"),
    ],
)
def test_settings_that_it_refuses(settings, match):
    with pytest.raises(InvalidInput, match=match):
        head_roles(build("gpt2"), **settings)


def test_tokens_outside_the_vocabulary():
    with pytest.raises(InvalidTokens, match="outside the vocabulary"):
        head_roles(build("gpt2"), tokens=range(1, 14), half=6)


def test_copying_is_not_measured_of_few_tokens():
    heads = head_roles(build("gpt2"), rows=5)
    assert "copying" not in heads.score
    assert "copying: not measured, for it needs 32 tokens or more" in heads.summary()


# ---- declared for the tests of all analyses -------------------------------------------------


DECLARED = Declared(
    analysis=head_roles,
    made=Made(lambda: head_roles(example.model(), rows=5)),
    call=Call(
        (small.MODEL,),
        {},
        {
            "tokens": (odd.TEXT, odd.BELOW, odd.BROKEN, odd.LISTED, odd.NESTED, True),
            "half": (odd.TEXT, odd.BELOW, 0, odd.BROKEN, odd.LISTED, 99, True),
            "repeats": (*odd.COUNT, 1),
            "first_mlp": odd.SWITCH,
            **odd.SAMPLED,
        },
    ),
    command=Command(
        "roles",
        ("--sequences", "8"),
        "roles",
        "stand out most",
        "half=None sequences=32 repeats=2 first_mlp=False",
    ),
    of_each_prompt=Without("it draws its own prompts"),
    of_each_pair=Without("it draws its own prompts"),
    symmetric=Symmetric(
        {"": lambda case: head_roles(case.model, rows=5, half=4)}, draws_tokens=True
    ),
)
