"""A census of heads: planted heads of known kinds, the cards of bundled models, and definitions."""

from dataclasses import replace
from string import ascii_lowercase, ascii_uppercase

import pytest
import tokenizers
import torch
from architectures import assert_close, build
from declared import Call, Command, Declared, Made, Symmetric, Without, example, odd, small
from tokenizers import models, pre_tokenizers

import interp
from analyses import compare, head_census, head_roles, training_history
from analyses.head_census import function_vectors
from interp import NO_NORM, AttentionConfig, Config, MLPConfig, StackConfig, Transformer, edits
from interp.errors import InvalidInput

LETTERS = [*ascii_lowercase, *ascii_uppercase]
WEIGHTS = ["own token", "succession"]
N = 128


def score_of(census, role, name="L0H0"):
    row = census.to_frame().query("role == @role and name == @name").iloc[0]
    return row["score"], row["control"], row["has_role"]


def planted(S):
    """One head with S = W_V W_O on one-hot embeddings, so that S[source, output] are its logits."""
    attention = AttentionConfig(1, N, bias_q=False, bias_k=False, bias_v=False, bias_o=False)
    model = Transformer(Config(N, N, 16, decoder=StackConfig(1, attention, None, NO_NORM)))
    vocabulary = {text: number for number, text in enumerate(LETTERS)}
    vocabulary |= {f"<{number}>": number for number in range(len(LETTERS), N)}
    backend = tokenizers.Tokenizer(models.WordLevel(vocabulary))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    model.tokenizer = interp.Tokenizer(backend)
    with torch.no_grad():
        model.stacks[0].weight_e.copy_(torch.eye(N))
        model.unembed.weight.copy_(torch.eye(N))
        model.blocks[0].attn.W_V[0] = S
        model.blocks[0].attn.W_O[0] = torch.eye(N)
    return model


def successors(step):
    """Each letter to the one ``step`` further in its case."""
    S = torch.zeros(N, N)
    for start in (0, 26):
        for n in range(26):
            S[start + n, start + (n + step) % 26] = 1.0
    return S


# ---- planted heads ------------------------------------------------------------------------------


def test_a_head_that_maps_letters_to_their_successors_is_a_successor():
    census = head_census(planted(successors(1)), families=WEIGHTS)
    assert score_of(census, "successor") == (1, 0, True)
    assert census.score["successor"].shape == (1, 1, 50)  # z and Z have none
    assert census.roles() == {"L0H0": ("successor",)}


@pytest.mark.parametrize("step", [-1, 2])
def test_a_head_that_maps_letters_elsewhere_is_none(step):
    """Its control is that of a map drawn at random: one of 24 others."""
    score, control, has_role = score_of(
        head_census(planted(successors(step)), families=WEIGHTS), "successor"
    )
    assert score == 0
    assert control == pytest.approx(1 / 24)
    assert not has_role


def test_a_head_that_lowers_the_token_it_attends_to_suppresses_copies():
    census = head_census(planted(-torch.eye(N)), families=WEIGHTS)
    assert score_of(census, "copy-suppression") == (1, 0, True)
    assert score_of(census, "token-copying") == (0, 0, False)
    assert census.roles() == {"L0H0": ("copy-suppression",)}


def test_a_head_that_raises_it_copies():
    census = head_census(planted(torch.eye(N)), families=WEIGHTS)
    assert score_of(census, "token-copying") == (1, 0, True)
    assert score_of(census, "copy-suppression") == (0, 0, False)


def test_a_head_that_suppresses_some_tokens():
    """The share of the drawn sources whose own token it lowers."""
    S = torch.zeros(N, N)
    S[: N // 2, : N // 2] = -torch.eye(N // 2)
    census = head_census(planted(S), families=["own token"])
    assert census.score["copy-suppression"].mean() == pytest.approx(0.5)
    assert not census.control["copy-suppression"].any()


def test_a_head_that_lowers_the_same_tokens_whatever_it_attends_to_has_no_kind():
    """The control has them too."""
    S = torch.zeros(N, N)
    S[:, :10] = -1.0
    census = head_census(planted(S), families=WEIGHTS)
    score, control, has_role = score_of(census, "copy-suppression")
    assert score == pytest.approx(10 / N)
    assert control == pytest.approx(score)
    assert not has_role


# ---- models whose heads are known -----------------------------------------------------------


def test_induction_by_hand_is_two_heads_of_which_one_retrieves():
    """On random tokens an induction head attends to each token that it is about to copy."""
    census = head_census(interp.load("induction-by-hand"), rows=6)
    assert score_of(census, "retrieval", "L1H0") == (1, 0, True)
    assert score_of(census, "induction", "L1H0")[2]
    assert census.roles()["L0H0"] == ("previous-token",)
    assert not any(of_head for name, of_head in census.roles().items() if name not in KNOWN)
    assert "the model predicts 100 %" in census.summary()
    assert "own token: not measured, for ten logits are no small part of 62" in census.summary()
    assert "two names: not measured, for ' Alice' is not a single token" in census.summary()


KNOWN = ("L0H0", "L1H0")


def test_the_census_of_python_2l_finds_what_its_card_states():
    census = head_census(interp.load("python-2l"))
    mechanism, roles = interp.card("python-2l").mechanism, census.roles()
    assert "L0H5 attends to the previous token, L1H0 to the token after" in mechanism
    assert roles["L0H5"][0] == "previous-token"
    assert {"induction", "retrieval"} <= set(roles["L1H0"])
    assert not {"induction", "retrieval"} & set(roles["L0H5"])
    assert census.headline().startswith("python-2l: 8 of 16 heads are of ")


def test_the_census_of_python_4l_finds_what_its_card_states():
    roles = head_census(interp.load("python-4l"), families=["repeated tokens"], rows=6).roles()
    assert roles["L2H5"][0] == "previous-token"
    assert roles["L3H1"][0] == "induction"


@pytest.mark.parametrize("seed", [0, 1])
def test_before_training_no_head_is_of_a_kind(seed):
    census = head_census(interp.load("python-2l@0"), seed=seed)
    assert not any(census.roles().values())
    assert census.headline() == "python-2l@0: none of 16 heads is of 14 kinds"


def test_roles_on_repeated_tokens_are_those_of_head_roles():
    model = interp.load("python-4l")
    census = head_census(model, families=["repeated tokens"], rows=5, seed=3)
    roles = head_roles(model, rows=5, seed=3, first_mlp=True)
    assert census.score.keys() == roles.score.keys()
    for role, score in roles.score.items():
        assert torch.equal(census.score[role], score)
        assert torch.equal(census.control[role], roles.control[role])


@pytest.mark.slow
def test_steps_of_a_training_have_the_same_rows():
    """A film: what a step can't show yet has the score 0, not no row."""

    def census(model):
        return head_census(model, families=["retrieval"], rows=5)

    rows = compare("python-2l@0", "python-2l", analysis=census).to_frame().set_index("name")
    assert rows["difference"]["L1H0"] > 0.7
    assert abs(rows["difference"]["L0H5"]) < 0.1
    checkpoints = interp.history("python-2l")
    film = training_history("python-2l", checkpoints, score=census).checkpoint_scores
    at = dict(film.changes)["L1H0"]
    assert at[0] == rows["a"]["L1H0"] == 0
    assert at[-1] == pytest.approx(rows["b"]["L1H0"])


# ---- definitions ----------------------------------------------------------------------------


def words_model():
    """A random model that reads each word of the tasks and pairs as a token."""
    texts = [*function_vectors.TASKS.values()]
    words = sorted({" " + word for text in texts for word in text.split()})
    names = [" " + prompt.target.strip() for prompt in interp.read_prompts("ioi")]
    pieces = [*"Q:A\n", " Q", *words, *names, *(f"<{n}>" for n in range(20))]
    vocabulary = {text: number for number, text in enumerate(dict.fromkeys(pieces))}
    backend = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="<0>"))
    backend.pre_tokenizer = pre_tokenizers.Split(
        tokenizers.Regex(r" \w+|\w|\n|:"), "isolated", invert=False
    )
    torch.manual_seed(0)
    config = Config(
        12, len(vocabulary), 64, decoder=StackConfig(2, AttentionConfig(2, 6), MLPConfig(16))
    )
    model = Transformer(config).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape).double())
    model.tokenizer = interp.Tokenizer(backend)
    return model


def test_function_vectors_are_effects_of_mean_outputs_at_the_last_token():
    """Head by head and prompt by prompt, with hooks in place of a sweep."""
    model = words_model()
    census = head_census(model, families=["function vectors"])
    tasks = [
        [*zip(words.split()[::2], words.split()[1::2], strict=True)]
        for words in function_vectors.TASKS.values()
    ]
    few, shuffled, others = (
        function_vectors.prompts_of(tasks, 0, kind) for kind in ("few-shot", "shuffled", "others")
    )
    for number, task in enumerate(tasks):
        for query in range(4):
            row = 4 * number + query
            answer = model.to_single_token(" " + task[query][1])
            assert f" {task[query][1]}\n" not in few[row]
            for texts, scores in ((few, census.score), (others, census.control)):
                same = [4 * number + other for other in range(4) if other != query]
                z = [interp.run(model, texts[other], record="z").cache for other in same]
                for layer, head in ((0, 1), (1, 0)):
                    mean = torch.stack([cache["z", layer][0, -1, head] for cache in z]).mean(0)
                    edit = edits.replace("z", mean, layer=layer, head=head, pos=-1)
                    plain, edited = (
                        interp.run(model, shuffled[row], edits=made)
                        .logits[0, -1]
                        .softmax(-1)[answer]
                        for made in ([], [edit])
                    )
                    measured = scores["function-vector"][layer, head, row].double()
                    assert_close(measured, edited - plain, 1e-6)


def test_a_function_vector_is_the_sum_of_mean_outputs_added_to_questions():
    """All four heads of the model: the sum of what attention adds, without its bias."""
    model = words_model()
    census = head_census(model, families=["function vectors"])
    tasks = [
        [*zip(words.split()[::2], words.split()[1::2], strict=True)]
        for words in function_vectors.TASKS.values()
    ]
    few = function_vectors.prompts_of(tasks, 0, "few-shot")
    for row in (0, 5, 14):
        (number, query), pairs = divmod(row, 4), tasks[row // 4]
        caches = [
            interp.run(model, few[4 * number + other], record="result").cache
            for other in range(4)
            if other != query
        ]
        vector = sum(cache["result", layer][0, -1].sum(0) for cache in caches for layer in (0, 1))
        edit = edits.add("resid_post", vector / 3, layer=0, pos=-1)
        answer = model.to_single_token(" " + pairs[query][1])
        run = interp.run(model, f"Q: {pairs[query][0]}\nA:", edits=[edit])
        expected = run.logits[0, -1].softmax(-1)[answer]
        assert_close(census.evoked["function vector"][row].double(), expected, 1e-6)
    assert census.to_evoked_frame()["quantity"].tolist() == [*census.evoked]
    assert "probability of the answer to a question: without examples" in census.summary()


def with_layers(model, *layers):
    """A model of some layers of another, with its embedding, final norm and unembedding."""
    decoder = replace(model.config.decoder, n_layers=len(layers))
    fewer = Transformer(replace(model.config, decoder=decoder), tokenizer=model.tokenizer)
    whole, weights = model.state_dict(), {}
    for name in fewer.state_dict():
        parts = name.split(".")
        if parts[:2] == ["decoder", "blocks"]:
            parts[2] = str(layers[int(parts[2])])
        weights[name] = whole[".".join(parts)]
    fewer.load_state_dict(weights)
    return fewer


@pytest.mark.real
def test_the_census_of_smollm2_separates_heads_that_attend_to_names():
    """Which direct attribution of the difference alone mixes up; and their weights agree.

    Own tokens depend on the weights of the layer itself, the embedding, and the first MLP.
    """
    model = interp.load("smollm2-135m")
    pairs = interp.read_prompts("ioi")[:16]
    census = head_census(model, families=["two names"], pairs=pairs, effects=True)
    roles = census.roles()
    assert "subject-suppression" in roles["L23H3"]
    assert "name-mover" in roles["L23H0"]
    assert "negative-mover" in roles["L24H4"]
    effects = census.to_effect_frame().set_index(["role", "name"])["effect"]
    assert effects["subject-suppression", "L23H3"] < -2
    assert effects["negative-mover", "L24H4"] > 0.7

    of_weights = head_census(with_layers(model, 0, 23, 24), families=["own token"]).roles()
    assert of_weights["L1H3"] == ("copy-suppression",)
    assert of_weights["L1H0"] == ("token-copying",)
    assert of_weights["L2H4"] == ("copy-suppression",)
    assert not any(of_weights[f"L0H{head}"] for head in range(model.n_heads))


def test_examples_have_right_answers_in_few_shot_prompts_and_wrong_ones_in_shuffled():
    pairs = [*zip("abcdefgh", "ABCDEFGH", strict=True)]
    for kind, right in (("few-shot", 5), ("shuffled", 0), ("others", 0)):
        for text in function_vectors.prompts_of([pairs], 1, kind):
            lines = [line.split() for line in text.split("\n") if line]
            examples = [
                (question[1], answer[1])
                for question, answer in zip(lines[:-2:2], lines[1:-2:2], strict=True)
            ]
            assert len(examples) == 5
            assert sum(answer == question.upper() for question, answer in examples) == right


def test_kinds_of_two_names_are_attention_and_direct_effects():
    """Against the pattern, and against W_U applied to what a head writes."""
    model, pairs = words_model(), interp.read_prompts("ioi")[:6]
    census = head_census(model, families=["two names"], pairs=pairs)
    batch = model.batch([pair.text for pair in pairs])
    cache = interp.run(model, batch, record="all").cache
    for row, pair in enumerate(pairs):
        io, s = (model.to_single_token(name) for name in (pair.target, pair.distractor))
        first, second = (batch.ids[row] == s).nonzero()[:, 0].tolist()
        last = int(batch.is_real[row].sum()) - 1
        for layer in range(2):
            pattern = cache["pattern", layer][row]
            attended = pattern[:, second, first], pattern[:, last, second]
            for kind, expected in zip(
                ("duplicate-name", "subject-inhibition"), attended, strict=True
            ):
                assert_close(census.score[kind][layer, :, row].double(), expected, 1e-6)
            scale = cache["final_scale"][row, last]
            written = cache["result", layer][row, last]
            gain = model.stacks[0].final_norm.gain
            centred = written - written.mean(-1, keepdim=True)
            logits = (centred * gain / scale) @ model.W_U
            assert_close(census.score["name-mover"][layer, :, row].double(), logits[:, io], 1e-5)
            assert_close(
                census.score["subject-suppression"][layer, :, row].double(), -logits[:, s], 1e-5
            )
    assert torch.equal(census.score["negative-mover"], -census.score["name-mover"])


def test_effects_are_mean_ablations_on_the_prompts_of_a_kind():
    model = interp.load("induction-by-hand")
    census = head_census(model, families=["retrieval"], rows=5, effects=True)
    (effect,) = census.to_effect_frame().to_dict("records")
    assert (effect["role"], effect["name"], effect["n"]) == ("retrieval", "L1H0", 5)
    assert effect["effect"] == pytest.approx(-1, abs=0.05)  # the one head that copies
    assert effect["metric"] == "probability of the last token of the needle"
    assert "ablated −0.9" in census.summary()
    assert not head_census(model, families=["retrieval"], rows=5).effects


# ---- what it refuses ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "settings", "match"),
    [
        ("t5", {}, "two"),
        ("gpt2", {"families": []}, "families"),
        ("gpt2", {"families": "succession"}, "families"),
        ("gpt2", {"families": ["sinks"]}, "families"),
        ("gpt2", {"pairs": []}, "pairs"),
        ("gpt2", {"families": ["succession"]}, "shows no kind of head"),
    ],
)
def test_settings_that_it_refuses(name, settings, match):
    with pytest.raises(InvalidInput, match=match):
        head_census(build(name), **settings)


# ---- declared for the tests of all analyses -------------------------------------------------


DECLARED = Declared(
    analysis=head_census,
    made=Made(lambda: head_census(example.model(), rows=5, effects=True)),
    call=Call(
        (small.MODEL,),
        {},
        {
            "families": (odd.TEXT, odd.BELOW, odd.BROKEN, odd.LISTED, [], {}),
            "pairs": (odd.TEXT, odd.BELOW, odd.BROKEN, odd.LISTED, [], {}),
            "effects": odd.SWITCH,
            **odd.SAMPLED,
        },
    ),
    command=Command(
        "census",
        ("--sequences", "6", "--family", "repeated tokens", "--family", "own token"),
        "census",
        "heads are of 10 kinds",
        "family=None sequences=16 effects=False",
        ("kinds.csv", "kinds.parquet"),
    ),
    of_each_prompt=Without("it draws its own prompts"),
    of_each_pair=Without("it draws its own prompts"),
    symmetric=Symmetric({"": lambda case: head_census(case.model, rows=5)}, draws_tokens=True),
)
