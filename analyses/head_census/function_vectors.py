"""Does a head carry what the task is, from examples of it to where the answer is predicted?

    few-shot     Q: x1 A: y1 … Q: xk A: yk Q: x A:          answer y
    shuffled     the same with the answers of the examples permuted
    score        P(y | shuffled, the head's z at the last token replaced by its mean over few-shot)
                 − P(y | shuffled)
    control      the same with its mean over other shuffled prompts

(Todd et al. 2023, "Function Vectors in Large Language Models": the causal indirect effect.) A mean
is taken over the prompts of the same task that ask for another x, so it can't carry the answer
itself. Every prompt is a sample. Every head is measured: two cases of a sweep, of which only the
last token is computed, from the layer of the head on.

Whether the task is evoked without examples is asked of the sum of the ten heads with the largest
effects: their mean outputs z W_O are added to the stream after a third of the layers, at the last
token of prompts without examples. The control is the same sum from shuffled prompts.
"""

from collections.abc import Iterator, Sequence
from random import Random

import torch
from jaxtyping import Float, Int
from torch import Tensor

from analyses.head_census.kinds import Case, Family, Kind, Measured, NotShown, Task
from interp import edits, run, sweep
from interp.metrics import at_position, prob
from interp.model import Batch

CAPITALS = (
    "France Paris Germany Berlin Italy Rome Spain Madrid Japan Tokyo China Beijing Egypt Cairo "
    "Greece Athens Russia Moscow Poland Warsaw Austria Vienna Sweden Stockholm"
)
ANTONYMS = (
    "hot cold big small up down left right good bad old new day night open closed high low "
    "true false black white first last"
)
PLURALS = (
    "cat cats dog dogs car cars tree trees book books house houses hand hands bird birds "
    "star stars river rivers king kings ship ships"
)
PAST = (
    "go went see saw take took come came make made give gave run ran write wrote eat ate "
    "know knew find found think thought"
)
TASKS = {"capital": CAPITALS, "antonym": ANTONYMS, "plural": PLURALS, "past": PAST}
SHOTS, QUERIES = 5, 4
"""Number of examples in a prompt, and of prompts of a task."""
HEADS, DEPTH = 10, 3
"""Number of heads whose outputs are summed; they are added after one in so many of the layers."""
FORM = "Q: {}\nA:"
FUNCTION_VECTOR = Kind(
    "function-vector",
    "what its mean output over few-shot prompts adds to the probability of the answer, where "
    "examples have wrong answers",
    'Todd et al. 2023, "Function Vectors"',
    "probability",
    0.01,
)
Pairs = Sequence[tuple[str, str]]


def measure(case: Case) -> list[Measured]:
    """The causal indirect effect of each head's mean output, by prompt."""
    model = case.model
    if not case.continues_texts:
        raise NotShown("this model does not continue texts")
    tasks = [pairs for pairs in _tasks(case) if len(pairs) > SHOTS + 1]
    if not tasks:
        raise NotShown("its tokenizer splits the words of every task into several tokens")
    few, shuffled, others = (
        prompts_of(tasks, case.seed, kind) for kind in ("few-shot", "shuffled", "others")
    )
    answers = [" " + pairs[query][1] for pairs in tasks for query in range(QUERIES)]
    metric = prob(list(map(model.to_single_token, answers)), -1)
    if max(len(case.encoded(text)) for text in (*few, *shuffled, *others)) >= model.config.n_ctx:
        raise NotShown(f"a context of {model.config.n_ctx} tokens has no room for {SHOTS} examples")
    batches = [model.batch(texts) for texts in (few, shuffled, others)]
    layers, heads = case.sizes
    means = torch.stack([_means(case, batch) for batch in (batches[0], batches[2])])
    cases = [
        edits.mean("z", means[kind, layer, :, head], layer=layer, head=head, pos=-1)
        for kind in range(2)
        for layer in range(layers)
        for head in range(heads)
    ]
    table = sweep(
        model, batches[1], cases, metric=metric, progress=lambda at, of: case.done(at / of)
    )
    score, control = (table.values - table.baseline).float().unflatten(0, (2, layers, heads))
    best = (score - control).mean(-1).flatten().topk(min(HEADS, layers * heads)).indices
    outputs = _outputs(case, means, best)
    questions = model.batch(
        [FORM.format(pairs[query][0]) for pairs in tasks for query in range(QUERIES)]
    )
    place = ("resid_post", (layers - 1) // DEPTH)
    added = sweep(
        model, questions, [edits.add(place, vector, pos=-1) for vector in outputs], metric=metric
    )
    with_vector, with_control = added.values.float()
    case.evoked.update(
        {"without examples": added.baseline.float(), "function vector": with_vector}
        | {"control": with_control}
    )
    task = Task(batches[0], metric, "probability of the answer on few-shot prompts")
    return [Measured(FUNCTION_VECTOR, score, control, task=task)]


def _tasks(case: Case) -> Iterator[Pairs]:
    """The pairs of each task whose words are single tokens."""
    for words in TASKS.values():
        pairs = zip(words.split()[::2], words.split()[1::2], strict=True)
        yield [pair for pair in pairs if None not in [case.token_of(" " + word) for word in pair]]


def prompts_of(tasks: Sequence[Pairs], seed: int, kind: str) -> list[str]:
    """The prompts of each task that ask for its first pairs.

    Args:
        tasks: the pairs of each task.
        seed: seed of the examples.
        kind: ``few-shot``, or another word for prompts whose examples have permuted answers.
    """
    return [
        _prompt(pairs, query, Random(f"{seed} {number} {query} {kind}"), kind)
        for number, pairs in enumerate(tasks)
        for query in range(QUERIES)
    ]


def _prompt(pairs: Pairs, query: int, random: Random, kind: str) -> str:
    """A prompt that asks for a pair after examples, whose answers are permuted if not few-shot."""
    examples = random.sample([pair for n, pair in enumerate(pairs) if n != query], SHOTS)
    answers = [answer for _, answer in examples]
    shift = 0 if kind == "few-shot" else random.randrange(1, SHOTS)
    answers = answers[shift:] + answers[:shift]
    texts = (
        f"{FORM.format(question)} {answer}\n\n"
        for (question, _), answer in zip(examples, answers, strict=True)
    )
    return "".join(texts) + FORM.format(pairs[query][0])


@torch.no_grad()
def _means(case: Case, batch: Batch) -> Float[Tensor, "layer prompt head d_head"]:
    """The mean z of each head at the last token, over the other prompts of the same task."""
    layers = range(case.sizes[0])
    cache = run(case.model, batch, record="z", stop_at_layer=len(layers)).cache
    last = torch.stack([at_position(cache["z", layer], batch, -1) for layer in layers])
    by_task = last.unflatten(1, (-1, QUERIES))
    others = (by_task.sum(2, keepdim=True) - by_task) / (QUERIES - 1)
    return others.flatten(1, 2)


@torch.no_grad()
def _outputs(
    case: Case, means: Float[Tensor, "kind layer prompt head d_head"], best: Int[Tensor, " chosen"]
) -> Float[Tensor, "kind prompt d_model"]:
    """The sum of the mean outputs of some heads, numbered over all layers."""
    heads, blocks = case.sizes[1], case.model.blocks
    places = [divmod(number, heads) for number in best.tolist()]
    outputs = [means[:, layer, :, head] @ blocks[layer].attn.W_O[head] for layer, head in places]
    return torch.stack(outputs).sum(0)


FAMILY = Family("function vectors", measure)
