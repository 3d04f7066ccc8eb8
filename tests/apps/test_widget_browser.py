"""The widget in a browser: a page opened as a file, without a network."""

import json
from functools import cache
from pathlib import Path

import pytest
import torch

from analyses.results import Bars, Heatmap, Network, Node
from analyses.results.payload import encoded
from apps.report.page import page as html_page
from apps.widget.pictures import view_of

pytestmark = pytest.mark.browser
EVIL = "<img src=x onerror=alert(1)>"
END = "</script><script>alert(2)</script>"
TOKENS = ["<|bos|>", "a", EVIL, END, "a", "b", "a"]
N = len(TOKENS)


def patterns():
    """Four heads: each query attends to itself, to the token before, to BOS, or evenly."""
    itself = torch.eye(N)
    before = torch.eye(N).roll(1, 0).tril()
    before[0, 0] = 1
    first = torch.zeros(N, N)
    first[:, 0] = 1
    even = torch.ones(N, N).tril()
    stacked = torch.stack([itself, before, first, even / even.sum(-1, keepdim=True)])
    return (255 * stacked).round().to(torch.uint8).reshape(2, 2, N, N)


def heads_view():
    values = torch.tensor([[0.5, -1.25], [2.0, float("nan")]])
    score = {
        "id": "ablation",
        "name": "ablation effect",
        "unit": "nats",
        "values": encoded(values),
        "scale": {"kind": "diverging", "low": -2.0, "high": 2.0},
        "n": 8,
    }
    return {
        "kind": "heads",
        "id": "heads",
        "title": f"Heads on {EVIL}",
        "tokens": TOKENS,
        "bos": True,
        "causal": True,
        "patterns": encoded(patterns()),
        "scores": [score],
        "roles": {"L0H1": f"previous token {END}"},
    }


@cache
def views():
    table = torch.tensor([[1.0, -2.0, float("nan")], [0.25, 0.0, 3.0]])
    drawings = {
        "map": Heatmap(
            table,
            title="Effect",
            rows=["0", "1"],
            columns=["0", "1", "2"],
            axes=("layer", "head"),
            unit="nats",
            diverging=True,
        ),
        "bars": Bars(
            table[1], table[1] - 1, table[1] + 1, title="Bars", labels=TOKENS[1:4], unit="nats"
        ),
        "graph": Network(
            [Node(EVIL, 0.0, 0.0), Node("L0H1", 1.0, 1.0, END), Node("logits", 0.0, 2.0)],
            {(0, 1): 2.0, (1, 2): -1.0},
            title="Graph",
            unit="nats",
        ),
    }
    drawn = [view_of(drawing, id) for id, drawing in drawings.items()]
    strip = {
        "kind": "tokens",
        "id": "tokens",
        "title": "Surprisal",
        "tokens": TOKENS,
        "ids": list(range(N)),
        "values": encoded(torch.arange(N, dtype=torch.float32)),
        "scale": {"kind": "sequential", "low": 0.0, "high": 6.0},
        "unit": "nats",
        "bos": True,
        "pick": "position",
    }
    table_view = {
        "kind": "table",
        "id": "table",
        "title": "Components",
        "columns": [{"title": "name"}, {"title": "effect", "unit": "nats", "align": "right"}],
        "rows": [[EVIL, 1.0], [END, -2.0], ["L0H1", None]],
        "pick": "row",
    }
    return [heads_view(), *drawn, strip, table_view]


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    payload = {"views": views(), "meta": {"model": EVIL, "n": 8, "version": "interp 0"}}
    file = tmp_path_factory.mktemp("widget") / "page.html"
    file.write_text(
        html_page(
            "analysis.html",
            {"figures": payload},
            model="made-up",
            kind="Widget",
            question="What is drawn?",
            conclusion=END,
            prompts=(),
            facts={},
            columns=[],
            rows=[],
            left_out=0,
            summary="",
            method=(),
            several=True,
        )
    )
    return file


@pytest.fixture
def opened(file, chromium):
    """Opens the page; at the end, nothing was printed, requested from a network or run."""
    events: list[str] = []
    contexts = []

    def open_page(width=1280, scheme="light"):
        context = chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, accept_downloads=True
        )
        contexts.append(context)
        context.route("http*://**", lambda route: (events.append(route.request.url), route.abort()))
        page = context.new_page()
        page.on("console", lambda message: events.append(message.text))
        page.on("pageerror", lambda error: events.append(str(error)))
        page.on("dialog", lambda dialog: (events.append(dialog.message), dialog.dismiss()))
        page.goto(file.as_uri())
        for view in views():
            page.wait_for_selector(f"[data-view={view['id']}][data-ready]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not events


def view(page, id):
    return page.locator(f"[data-view={id}]")


def read_aloud(page):
    return page.locator("[role=status]").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_is_drawn_on_a_page_of_any_width(opened, scheme):
    for width in (1280, 400):
        page = opened(width, scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        paper = page.evaluate("getComputedStyle(document.querySelector('.w-root')).backgroundColor")
        assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
        blank = page.evaluate(
            """() => [...document.querySelectorAll('.w-stage canvas:first-child')].filter((own) => {
              const {data} = own.getContext('2d').getImageData(0, 0, own.width, own.height);
              return !data.some((x) => x);
            }).length"""
        )
        assert blank == 0
        assert page.locator("img").count() == 0
        assert view(page, "heads").locator(".w-token").nth(2).inner_text() == EVIL


def test_the_keyboard_alone_moves_the_cell_and_hears_its_value(opened):
    page = opened()
    large = view(page, "heads").locator(".w-right .w-plot")
    for _ in range(12):
        if large.evaluate("own => own === document.activeElement"):
            break
        page.keyboard.press("Tab")
    page.keyboard.press("ArrowUp")  # from the key that the last query attends to most: itself
    assert read_aloud(page) == "L0H0, query 5 'b', key 6 'a': hidden"
    page.keyboard.press("}")
    page.keyboard.press("ArrowLeft")
    assert read_aloud(page) == "L0H1, query 5 'b', key 5 'b': attention 0"
    page.keyboard.press("ArrowLeft")
    assert view(page, "heads").get_attribute("data-head") == "0,1"
    assert view(page, "heads").get_attribute("data-selected") == "5,4"
    assert view(page, "heads").get_attribute("data-value") == "1"
    assert read_aloud(page) == "L0H1, query 5 'b', key 4 'a': attention 1"
    page.keyboard.press("]")
    assert view(page, "heads").get_attribute("data-head") == "1,1"
    assert read_aloud(page) == "L1H1"
    page.keyboard.press("/")
    page.keyboard.type("b")
    page.keyboard.press("Escape")
    page.keyboard.press("t")
    assert view(page, "heads").locator("caption").count() == 2
    page.keyboard.press("?")
    assert page.locator("[role=dialog]").is_visible()
    page.keyboard.press("Escape")
    assert large.evaluate("own => own === document.activeElement")


def test_what_is_pointed_at_tints_the_tokens_at_once(opened):
    page = opened()
    strip = view(page, "heads").locator(".w-below .w-token")
    tint = "own => getComputedStyle(own).backgroundColor"
    before = strip.nth(N - 1).evaluate(tint)
    thumbnails = view(page, "heads").locator(".w-all .w-over")
    thumbnails.hover(position={"x": 40, "y": 150})  # L1H0, which attends to BOS
    page.wait_for_function("document.querySelector('[data-view=heads]').dataset.head === '1,0'")
    assert strip.nth(N - 1).evaluate(tint) != before
    assert page.locator(".w-tip").inner_text().startswith("L1H0")
    page.mouse.move(0, 0)
    page.wait_for_function("document.querySelector('[data-view=heads]').dataset.head === '0,0'")
    assert strip.nth(N - 1).evaluate(tint) == before


def test_the_head_under_the_pointer_is_shown_in_every_pane_and_every_view(opened):
    """From the ranking to the pattern and to another view's map, and from that map back."""
    page = opened()
    heads = view(page, "heads")
    first = heads.locator("[role=option]").first
    assert first.inner_text().split() == ["1", "L1H0", "+2"]
    over = view(page, "map").locator(".w-over")
    drawn = "own => own.toDataURL()"
    before = over.evaluate(drawn)
    first.hover()
    page.wait_for_function("document.querySelector('[data-view=heads]').dataset.head === '1,0'")
    for title in ("w-right", "w-evidence"):
        assert heads.locator(f".{title} .w-head-name").inner_text() == "L1H0"
    assert "rank 1 of 3" in heads.locator(".w-chosen-score").inner_text()
    assert over.evaluate(drawn) != before
    page.mouse.move(0, 0)
    page.wait_for_function("document.querySelector('[data-view=heads]').dataset.head === '0,0'")
    assert over.evaluate(drawn) == before
    over.scroll_into_view_if_needed()
    over.hover(position={"x": 130, "y": 50})
    page.wait_for_function("document.querySelector('[data-view=heads]').dataset.head === '0,1'")
    assert "w-hovered" in heads.locator("[role=option]", has_text="L0H1").get_attribute("class")


def test_the_ranking_is_a_list_for_the_keyboard(opened):
    page = opened()
    ranked = view(page, "heads").locator("[role=listbox]")
    ranked.focus()
    chosen = ranked.locator("[aria-selected=true]")
    assert chosen.inner_text().split()[:2] == ["3", "L0H0"]
    page.keyboard.press("ArrowUp")
    assert chosen.inner_text().split()[:2] == ["2", "L0H1"]
    assert ranked.get_attribute("aria-activedescendant") == chosen.get_attribute("id")
    assert read_aloud(page).startswith("L0H1")
    for _ in range(3):
        page.keyboard.press("ArrowUp")
    assert view(page, "heads").get_attribute("data-head") == "1,0"
    # The head without a score is not ranked.
    assert ranked.locator("[role=option]").count() == 3


def test_heads_are_collected_by_shift_click(opened):
    page = opened()
    thumbnails = view(page, "heads").locator(".w-all .w-over")
    for y in (40, 150):
        thumbnails.click(position={"x": 40, "y": y}, modifiers=["Shift"])
    chips = view(page, "heads").locator(".w-chip")
    assert chips.all_inner_texts() == ["L0H0 ×", "L1H0 ×"]
    chips.first.click()
    assert view(page, "heads").locator(".w-chip").all_inner_texts() == ["L1H0 ×"]
    view(page, "heads").get_by_text("clear", exact=True).click()
    assert chips.count() == 0


def test_a_hidden_bos_has_no_colour_and_no_number(opened):
    page = opened()
    view(page, "heads").get_by_text("hide BOS").click()
    strip = view(page, "heads").locator(".w-below .w-token")
    assert "w-none" in strip.nth(0).get_attribute("class")
    assert "w-none" not in strip.nth(1).get_attribute("class")


def test_a_table_is_sorted_by_its_titles(opened):
    page = opened()
    rows = view(page, "table").locator("tbody tr td:first-child")
    assert rows.all_inner_texts() == [EVIL, END, "L0H1"]
    view(page, "table").get_by_text("effect (nats)").click()
    view(page, "table").get_by_text("effect (nats)").click()
    assert rows.all_inner_texts() == [END, EVIL, "L0H1"]


def test_the_table_and_the_files_of_a_view_have_its_numbers(opened, tmp_path):
    page = opened()
    drawn_map = view(page, "map")
    drawn_map.hover()
    drawn_map.get_by_role("button", name="table").click()
    assert drawn_map.locator("tbody tr").first.locator("td").all_inner_texts() == ["1", "−2", ""]
    with page.expect_download() as saved:
        drawn_map.get_by_role("button", name="CSV").first.click()
    assert saved.value.suggested_filename == "map-img-src-x-onerror-alert-1.csv"
    saved.value.save_as(tmp_path / "map.csv")
    text = (tmp_path / "map.csv").read_bytes().decode()
    assert text == "layer \\ head,0,1,2\r\n0,1,-2,\r\n1,0.25,0,3\r\n"
    with page.expect_download() as saved:
        drawn_map.get_by_role("button", name="PNG").click()
    saved.value.save_as(tmp_path / "map.png")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


def test_it_is_printed_with_nothing_split(opened, tmp_path):
    page = opened(scheme="dark")
    page.evaluate("addEventListener('beforeprint', () => { window.printed = true; })")
    page.evaluate(
        """() => addEventListener('afterprint', () => {
          window.again = document.querySelector('.w-root').hasAttribute('data-print');
        })"""
    )
    data = page.pdf(path=tmp_path / "page.pdf", format="A4", print_background=True)
    assert data.startswith(b"%PDF")
    assert page.evaluate("[window.printed, window.again]") == [True, False]
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 718, "height": 1000})  # A4 between its margins
    for drawing in views():
        style = view(page, drawing["id"]).evaluate(
            "e => [getComputedStyle(e).breakInside, e.getBoundingClientRect().height]"
        )
        assert style[0] == "avoid"
        assert style[1] < 1000, drawing["id"]


def test_equal_views_are_not_drawn_again(opened):
    """As Streamlit mounts them at each rerun: what is equal stays, with its focus."""
    page = opened()
    payload = json.dumps({"views": views()})
    page.evaluate(
        """(text) => {
          const box = document.createElement('div');
          document.body.prepend(box);
          window.mounted = mountViews(box, JSON.parse(text), { report: () => {} });
          window.first = [...box.querySelectorAll('[data-view]')];
          first[0].querySelector('.w-right .w-plot').focus();
          const next = JSON.parse(text);
          next.views[1].title = 'Another';
          mounted.update(next);
          window.next = [...box.querySelectorAll('[data-view]')];
        }""",
        payload,
    )
    is_same = page.evaluate("next.map((element, n) => element === first[n])")
    assert is_same == [True, False, True, True, True, True]
    assert page.evaluate("first[0].contains(document.activeElement)")
    assert page.evaluate("next[1].dataset.title") == "Another"


def evaluated_in_a_box(page, body):
    """What a function body returns: ``box`` is a new element, ``data`` has one view of heads."""
    start = "const box = document.createElement('div'); document.body.prepend(box);"
    function = f"(text) => {{ {start} const data = JSON.parse(text); {body} }}"
    return page.evaluate(function, json.dumps({"views": views()[:1]}))


def test_the_map_shows_the_first_score_until_one_is_chosen(opened):
    """Statistics may arrive before the ablation, which is the first score; a choice stays."""
    page = opened()
    seen = evaluated_in_a_box(
        page,
        """
          const [ablation] = data.views[0].scores;
          const others = ['entropy', 'previous'].map((id) => ({ ...ablation, id, name: id }));
          const scores = [ablation, ...others];
          const showing = (...shown) => ({ ...data, views: [{ ...data.views[0], scores: shown }] });
          const views = mountViews(box, showing(...others), { report: () => {} });
          const list = () => box.querySelector('[aria-label="score shown on the map"]');
          const seen = [list().value];
          views.update(showing(...scores));
          seen.push(list().value);
          list().value = 'previous';
          list().dispatchEvent(new Event('change'));
          views.update(showing(...scores.slice().reverse()));
          views.update(showing(...scores));
          seen.push(list().value);
          return seen;
        """,
    )
    assert seen == ["entropy", "ablation", "previous"]


def test_a_selection_of_the_server_holds_and_an_echo_does_not(opened):
    page = opened()
    heads = evaluated_in_a_box(
        page,
        """
          const views = mountViews(box, data, { report: () => {} });
          const own = box.querySelector('[data-view=heads]');
          const seen = [];
          const given = (head) => {
            const selection = { head, heads: [], query: null, key: null, position: null };
            views.update({ ...data, selection });
            seen.push(own.dataset.head);
          };
          const press = (key) => own.querySelector('.w-plot').dispatchEvent(
            new KeyboardEvent('keydown', { key, bubbles: true }));
          given([1, 0]);
          press(']'); press('['); press('}');  // [1, 0] stays, [0, 0], [0, 1]
          given([0, 0]);                       // an echo of the second: the third stays
          given([1, 1]);                       // news
          given([1, 1]);
          return seen;
        """,
    )
    assert heads == ["1,0", "0,1", "1,1", "1,1"]
