"""What objects print: short, true of them, and escaped where it is HTML."""

from dataclasses import replace
from html.parser import HTMLParser

import pytest
import torch
from architectures import ARCHITECTURES, HEADLESS, PAIRS, VARIED, build, build_new, tokens_of
from tables import each

import interp
from interp import LowRank, Transformer, edits, run, sweep
from interp.config import parts
from interp.config import stack as stacks
from interp.io.table import Table

TOKENS = tokens_of("gpt2")
NAMES = vars(interp) | vars(parts) | vars(stacks) | {"inf": float("inf")}


class Tags(HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.text = set(), []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)

    def handle_data(self, data):
        self.text.append(data)


def printable(config):
    """Every object with a repr of its own, whose names and texts are foreign."""
    model = build_new("gpt2").requires_grad_(requires_grad=False)
    model.config = config
    done = run(model, *TOKENS, record="all", edits=[edits.zero("z", layer=0, head=1)])
    table = sweep(model, *TOKENS, [edits.zero("z", layer=0, head=1)], interp.metrics.logit(1))
    product = LowRank(torch.ones(3, 2), torch.ones(2, 5))
    top = model.top(TOKENS[0][:1], 3, answer=2)
    return [model, config, done, done.cache, table, product, top]


def test_each_prints_few_short_lines():
    for value in printable(build("gpt2").config):
        assert len(repr(value).splitlines()) <= 30
        assert max(map(len, repr(value).splitlines())) <= 500
        assert type(value).__name__ in repr(value) or "probable" in repr(value)


def test_what_is_printed_as_html_is_escaped():
    script = "</td><script>alert(1)</script><img src=x onerror=alert(1)>"
    config = replace(build("gpt2").config, name=script)
    for value in printable(config):
        page = Tags(value._repr_html_())
        assert page.tags <= {"table", "tr", "th", "td", "p", "code"}
    assert sum(script in text for text in Tags(config._repr_html_()).text) == 2


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_config_prints_the_call_that_builds_it(name):
    config = ARCHITECTURES[name]
    assert eval(repr(config), NAMES) == config
    assert len(repr(config)) < 1000


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_model_prints_its_sizes(name):
    model = build(name)
    text = repr(model)
    assert f"{sum(w.numel() for w in model.parameters()):,} parameters, float64 on cpu" in text
    for stack, config in model.config.stacks.items():
        assert f"{stack}" in text
        assert f"{config.n_layers} layer" in text
        assert f"{config.attention.n_heads} heads of {config.attention.d_head}" in text
    assert len(text.splitlines()) <= 6


def test_every_module_is_still_listed_where_that_is_asked_for():
    model = build("gpt2")
    assert "(blocks): ModuleList" in torch.nn.Module.__repr__(model)
    assert "(blocks): ModuleList" in repr(model.decoder)


def test_a_model_without_logits_is_printed_as_such():
    assert "no logits" in repr(Transformer(HEADLESS))


@pytest.mark.parametrize("name", [*VARIED, *PAIRS])
@pytest.mark.parametrize("stop", [None, 1])
def test_a_cache_lists_the_shape_that_each_tensor_has(name, stop):
    """Of derived ones without deriving them."""
    model, tokens = build(name), tokens_of(name)
    cache = run(model, *tokens, record="all", stop_at_layer=stop).cache
    rows = cache.description().rows
    assert [row[0] for row in rows] == [str(place) for place in cache]
    for place, (_, shape, storage, _) in zip(cache, rows, strict=True):
        assert shape == str(list(cache[place].shape)), place
        assert storage == ("stored" if place in cache.stored else "derived")


def test_listing_a_cache_derives_nothing():
    model = build_new("gpt2")
    cache = run(model, *TOKENS, record="all").cache
    with torch.no_grad():
        model.unembed.weight.add_(1)  # what is derived would now be refused
    assert "derived" in repr(cache)


@each(("n", "text"), [(0, "0 B"), (999, "999 B"), (1024, "1.02 kB"), (2_500_000_000, "2.5 GB")])
def test_bytes_are_printed_with_their_unit(n, text):
    assert interp.cache.shapes.in_bytes(n) == text


def test_a_long_table_ends_with_how_much_is_left_out():
    table = Table("numbers", ("n",), [(n,) for n in range(30)], most=4)
    assert table.to_text().splitlines()[1:] == ["  n", "  0", "  1", "  2", "  3", "  … 26 more"]
    assert "26 more" in table.to_html()


def test_an_edit_prints_its_place_and_selection():
    edit = edits.scale("z", 2.0, layer=1, head=[0, 2], pos=-1)
    assert str(edit) == 'scale("z", 1, pos=-1, head=(0, 2))'
