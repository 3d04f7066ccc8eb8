"""The pages of a scan of heads: opened from files in a browser, and written by the command."""

import base64
import json
import re
from functools import cache

import pytest
import torch
from architectures import assert_close

import interp
from analyses import HeadScan, scan_heads
from apps.commands import partial_run
from apps.report import Report, write_head_site

pytestmark = pytest.mark.browser
TEXTS = [prompt.text for prompt in interp.read_prompts("repeated")]
MAX_BYTES = 200_000
EVIL = "<img src=x onerror=alert(1)></script>"


@cache
def scanned() -> HeadScan:
    return scan_heads(interp.load("python-2l"), TEXTS, shuffled=1, effects=True)


def written(scan: HeadScan, folder):
    folder.mkdir(parents=True, exist_ok=True)
    write_head_site(Report(scan, (), {"command": f"interp heads {EVIL}"}), folder)
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return written(scanned(), tmp_path_factory.mktemp("site"))


@pytest.fixture
def opened(chromium):
    """Opens pages; at the end, nothing was printed, requested from a network or run."""
    events: list[str] = []
    contexts = []

    def open_page(file, width=1100, scheme="light"):
        context = chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme
        )
        contexts.append(context)
        context.route("http*://**", lambda route: (events.append(route.request.url), route.abort()))
        page = context.new_page()
        page.on("console", lambda message: events.append(message.text))
        page.on("pageerror", lambda error: events.append(str(error)))
        page.on("dialog", lambda dialog: (events.append(dialog.message), dialog.dismiss()))
        page.on("requestfailed", lambda request: events.append(request.url))
        page.goto(file.as_uri())
        page.wait_for_selector("[data-view][data-ready]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not events


def payload(page: str) -> dict:
    text = re.search(r'<script type="application/json" id="views-\w+">(.*?)</script>', page)
    assert text
    return json.loads(text[1])


def view(page, id):
    return page.locator(f"[data-view={id}]")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("file", ["index.html", "heads/L0H5.html"])
def test_pages_open_from_files_at_any_width(site, opened, file, scheme):
    for width in (1100, 400):
        page = opened(site / file, width, scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        paper = page.evaluate("getComputedStyle(document.querySelector('.w-root')).backgroundColor")
        assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
        assert page.locator("[data-view]:not([data-ready])").count() == 0


def test_every_head_has_a_page_within_the_bound_and_every_link_leads_to_a_file(site):
    names = {f"{name}.html" for name in scanned().names}
    assert {file.name for file in (site / "heads").iterdir()} == names
    for file in [site / "index.html", *(site / "heads").iterdir()]:
        text = file.read_text()
        assert file.parent == site or len(text.encode()) <= MAX_BYTES
        assert EVIL not in text
        targets = re.findall(r'(?:href|src)="([^"]+)"', text)
        assert targets
        for target in targets:
            assert (file.parent / target).resolve().is_file(), (file.name, target)


def test_a_token_shows_the_keys_that_the_scan_stored(site, opened):
    """Of every query of the first text; and the queries that look at it, by the same cells."""
    scan = scanned()
    unit = scan.names.index("L0H5")
    page = opened(site / "heads" / "L0H5.html")
    text = view(page, "texts").locator(".w-text").first
    number = int(text.get_attribute("data-text"))
    query, key, weight = scan.sequences.cells(unit, number)
    tokens = text.locator(".w-token")
    labels = scan.sequences.query_labels[""][number]
    assert tokens.all_inner_texts() == [*labels]
    for n in range(0, len(labels), 5):
        tokens.nth(n).hover()
        read = "own => own.map((token) => [token.dataset.to ?? null, token.dataset.from ?? null])"
        marked = tokens.evaluate_all(read)
        for column, (at, others) in enumerate(((query, key), (key, query))):
            chosen = at == n
            expected = dict(zip(others[chosen].tolist(), weight[chosen].tolist(), strict=True))
            values = {p: float(row[column]) for p, row in enumerate(marked) if row[column]}
            assert {*values} == {*expected}
            for position, value in values.items():
                assert abs(value - expected[position]) <= 1 / 510 + 1e-6
    assert page.locator(".w-tip").inner_text().startswith(f"position {n} ")


def test_a_pin_stays_until_it_is_clicked_again_or_escaped(site, opened):
    page = opened(site / "heads" / "L0H5.html")
    tokens = view(page, "texts").locator(".w-text").first.locator(".w-token")
    marked = "own => own.filter((token) => token.dataset.to).length"
    tokens.nth(7).click()
    pinned = tokens.evaluate_all(marked)
    tokens.nth(6).hover()
    assert tokens.evaluate_all(marked) == pinned > 0
    assert "looks at it" in page.locator(".w-tip").inner_text()
    tokens.nth(7).click()
    page.mouse.move(0, 0)
    assert tokens.evaluate_all(marked) == 0
    tokens.nth(7).click()
    page.mouse.move(0, 0)
    view(page, "texts").locator(".w-texts").focus()
    page.keyboard.press("Escape")
    assert tokens.evaluate_all(marked) == 0


def test_the_keyboard_moves_over_tokens_and_texts_and_pins(site, opened):
    page = opened(site / "heads" / "L0H5.html")
    texts = view(page, "texts")
    texts.locator(".w-texts").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    first, second = (texts.locator(".w-text").nth(n).get_attribute("data-text") for n in (0, 1))
    assert texts.get_attribute("data-selected") == f"{first},2"
    assert page.locator("[role=status]").inner_text().startswith("Pinned: position 2 ")
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert texts.get_attribute("data-selected") == f"{second},0"
    page.keyboard.press("t")
    assert texts.locator("caption").count() == 1


def test_another_statistic_has_other_texts(site, opened):
    page = opened(site / "heads" / "L0H5.html")
    texts, scan = view(page, "texts"), scanned()
    frame = scan.to_sequence_frame()
    frame = frame[frame["name"].eq("L0H5")]
    for statistic in ("entropy", "previous"):
        texts.locator("select").select_option(statistic)
        sources = texts.locator(".w-text-heading bdi").all_inner_texts()
        assert sources == frame[frame["statistic"].eq(statistic)]["source"].tolist()


def test_a_page_has_the_numbers_of_its_head(site):
    scan = scanned()
    at = scan.statistics.index("previous")
    for unit, name in enumerate(scan.names):
        views = payload((site / "heads" / f"{name}.html").read_text())["views"]
        by_id = {each["id"]: each for each in views}
        rows = {row[0]: row for row in by_id["statistics"]["rows"]}
        row = rows["previous (0 to 1)"]
        assert row[1] == pytest.approx(float(scan.mean[0, unit, at]))
        assert row[4].endswith(f" of {len(scan.names)}")
        assert {"effects", "distances", "tokens", "texts"} <= {*by_id}


def test_a_click_on_a_point_opens_the_page_of_the_head(site, opened):
    page = opened(site / "index.html")
    plot = view(page, "scan").locator(".w-plane .w-plot")
    plot.focus()
    for key in ("ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    unit = int(view(page, "scan").get_attribute("data-selected").split(",")[1])
    over = view(page, "scan").locator(".w-plane .w-over")
    box = over.bounding_box()
    name = scanned().names[unit]
    place = None
    for x in range(60, int(box["width"]), 6):
        for y in range(26, int(box["height"]) - 60, 12):
            page.mouse.move(box["x"] + x, box["y"] + y)
            if page.locator(".w-tip strong").all_inner_texts() == [name]:
                place = x, y
                break
        if place:
            break
    assert place
    assert f"of {len(scanned().names)} by effect" in page.locator(".w-tip").inner_text()
    over.click(position={"x": place[0], "y": place[1]})
    page.wait_for_url(f"**/heads/{name}.html")
    page.wait_for_selector("[data-view=texts][data-ready]")
    assert page.locator("h1").inner_text() == name


def test_the_finder_ranks_heads_and_opens_them_by_name(site, opened):
    scan = scanned()
    page = opened(site / "index.html")
    finder = view(page, "scan").locator(".w-finder")
    view(page, "scan").get_by_label("ranked by").select_option("previous")
    order = scan.of("previous").argsort(descending=True).tolist()
    names = finder.locator("[role=option] span:nth-child(2)").all_inner_texts()
    assert names == [scan.names[n] for n in order]
    finder.locator("input").fill("l1h3")
    assert finder.locator("[role=option]").count() == 1
    page.keyboard.press("ArrowDown")
    rank = 1 + order.index(scan.names.index("L1H3"))
    assert f"rank {rank} of 16" in page.locator("[role=status]").inner_text()
    page.keyboard.press("Enter")
    page.wait_for_url("**/heads/L1H3.html")
    page.get_by_role("link", name="L1H4 →").click()
    page.wait_for_url("**/heads/L1H4.html")
    page.wait_for_selector("[data-view=texts][data-ready]")


def test_the_axes_are_the_statistics_of_the_scan(site):
    scan = scanned()
    (index,) = payload((site / "index.html").read_text())["views"]
    values = torch.frombuffer(
        bytearray(base64.b64decode(index["values"]["data"])), dtype=torch.float32
    ).view(index["values"]["shape"])
    for n, axis in enumerate(index["axes"]):
        for w, weighting in enumerate(index["weightings"]):
            expected = scan.of(axis["name"], weighting)
            assert_close(values[w, n].double().nan_to_num(-9), expected.nan_to_num(-9), 1e-4)


def test_another_scan_has_other_pages(site, tmp_path):
    scan = scan_heads(interp.load("python-2l"), TEXTS[:12], shuffled=1)
    other = written(scan, tmp_path / "other")
    for name in ("index.html", "heads/L0H5.html", "texts.js"):
        assert (other / name).read_bytes() != (site / name).read_bytes()
    same = written(scanned(), tmp_path / "same")
    for file in site.rglob("*.*"):
        assert file.read_bytes() == (same / file.relative_to(site)).read_bytes()


def test_pages_of_many_long_texts_are_within_the_bound(tmp_path):
    """120 texts of 128 random tokens, at most of which some head looks at 8 keys."""
    model = interp.load("python-2l")
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(5, model.d_vocab, (120, 128), generator=generator)
    scan = scan_heads(model, rows, shuffled=40, sample=100)
    folder = written(scan, tmp_path / "long")
    sizes = [file.stat().st_size for file in (folder / "heads").iterdir()]
    assert 0.9 * MAX_BYTES < max(sizes) <= MAX_BYTES
    assert "left out for the size of the page" in (folder / "heads" / "L1H0.html").read_text()


def test_pages_of_a_cancelled_scan_say_so(tmp_path, opened):
    calls = []
    scan = scan_heads(
        interp.load("python-2l"),
        TEXTS,
        shuffled=1,
        rows=6,
        cancelled=lambda: len(calls) > 0 or bool(calls.append(0)),
    )
    assert scan.partial is not None
    folder = written(scan, tmp_path / "site")
    page = opened(folder / "index.html")
    assert f"stopped before its end: these are the numbers of {scan.n_texts} texts" in (
        page.inner_text("main")
    )
    page = opened(folder / "heads" / "L0H5.html")
    assert "cancelled before texts were drawn" in view(page, "texts").inner_text()
    assert not (folder / "texts.js").exists()


# ---- the command ---------------------------------------------------------------------------------

HEADS = ["heads", "--model", "rasp-duplicates", "--rows", "2", "--shuffled", "1"]


def test_the_command_writes_the_pages_and_refuses_a_folder_with_other_files(command, tmp_path):
    site = tmp_path / "site"
    headvis = tmp_path / "headvis"
    words = [*HEADS, "--out", tmp_path / "out", "--site", site, "--headvis", headvis]
    done = command(*words)
    assert done.exit_code == 0, done.output
    assert f"Site: {site / 'index.html'}" in done.stdout.replace("\n", "")
    assert (site / "heads" / "L0H0.html").is_file()
    assert HeadScan.from_headvis(headvis).names[0] == "L0H0"
    ran = json.loads((tmp_path / "out" / "run.json").read_text())["command"]
    assert "--site" not in ran
    assert "--headvis" not in ran
    assert command(*words).exit_code == 0
    (site / "mine.txt").write_text("mine")
    refused = command(*words)
    assert refused.exit_code == 2
    assert "mine.txt" in refused.stderr
    inside = command(*HEADS, "--site", tmp_path / "out" / "site", "--headvis", tmp_path / "out")
    assert inside.exit_code == 2
    assert "separate folders" in inside.stderr


def test_an_interrupted_command_writes_what_it_has(command, tmp_path, monkeypatch):
    asked = []

    class Interrupting(partial_run.Slice):
        def __call__(self) -> bool:
            super().__call__()
            asked.append(None)
            if len(asked) == 2:
                raise KeyboardInterrupt
            return False

    words = [*HEADS, "--out", tmp_path / "out", "--site", tmp_path / "site"]
    with monkeypatch.context() as patched:
        patched.setattr(partial_run, "Slice", Interrupting)
        stopped = command(*words)
    assert stopped.exit_code == 130
    page = (tmp_path / "site" / "index.html").read_text()
    assert "The scan was stopped before its end" in page
    resumed = command(*words, "--resume")
    assert resumed.exit_code == 0, resumed.output
    page = (tmp_path / "site" / "index.html").read_text()
    assert "The scan was stopped before its end" not in page
