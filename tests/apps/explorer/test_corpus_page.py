"""The page Corpus: texts, the estimate before a long scan, all heads in a plane, and a ranking."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from answered import loaded, numbers, opened
from streamlit.testing.v1 import AppTest

from analyses import HeadScan, estimate_scan_heads, scan_heads
from apps.explorer import jobs as jobs_module
from apps.explorer.choices import with_valid_choices
from apps.explorer.clicks import checked
from apps.explorer.jobs import Jobs
from apps.explorer.page import clicked
from apps.explorer.pages.corpus import CORPUS, PATTERN
from apps.explorer.pages.corpus import scan as scan_module
from apps.explorer.pages.corpus.measures import SIZE, measure, measures_of
from apps.explorer.pages.corpus.placed import RANKING, SCATTER
from apps.explorer.pages.corpus.scan import EFFECTS, ESTIMATE, SCAN, Scan, request_of, so_far
from apps.explorer.pages.corpus.texts import ALL_SETS, PASTED, sets_of, texts_of
from apps.explorer.store import Store
from apps.explorer.view import MAX_TEXT, OMITTED, Head, View, from_address
from apps.serve import APP
from interp.errors import InvalidInput
from interp.loading import bundled

NAME = "induction-by-hand"
PASTED_TEXTS = "abcab\nxyzxy\n\nkqkqk\nbb"


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    """The jobs of the page, without answers of other tests."""
    made = Jobs(loaded, Store(2**28))
    monkeypatch.setattr(scan_module, "JOBS", made)
    yield made
    made.close()


def page_view(name: str = NAME, **fields: object) -> View:
    return opened(CORPUS, name, **fields)


def names_asked(view: View) -> list[str]:
    return [ask.name for ask in CORPUS.asks(view, loaded(view.model)) if ask.name != PATTERN]


def answered(jobs: Jobs, view: View) -> dict[str, object]:
    """The answers to all questions of the page, which are asked until there are no others."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        asked = CORPUS.asks(view, loaded(view.model))
        polled = {ask.name: jobs.poll(ask.question) for ask in asked}
        assert not any(job.error for job in polled.values())
        if all(job.complete for job in polled.values()) and ESTIMATE not in polled:
            return {name: job.result for name, job in polled.items()}
        if ESTIMATE in polled and polled[ESTIMATE].complete and len(names_asked(view)) == 0:
            return {}
        time.sleep(0.01)
    raise TimeoutError


def drawn(jobs: Jobs, view: View) -> dict[str, dict]:
    views = CORPUS.views(view, loaded(view.model), answered(jobs, view))
    return {each["id"]: each for each in views}


# ---- numbers ---------------------------------------------------------------------------------


def test_the_points_of_the_plane_are_the_numbers_of_the_scan(jobs):
    view = page_view("python-2l", corpus="repeated", most=6, down="entropy", across="previous")
    scatter = drawn(jobs, view)[SCATTER]
    texts = texts_of(view, loaded("python-2l"))
    scan = scan_heads(loaded("python-2l"), texts, rows=64)
    assert scatter["labels"] == [*scan.names]
    for axis, statistic in (("x", "previous"), ("y", "entropy")):
        expected = scan.of(statistic).double()
        values = torch.tensor(numbers(scatter[axis]).copy()).double()
        torch.testing.assert_close(values, expected, rtol=1e-5, atol=1e-6)
    assert scatter["axes"] == ["previous", "entropy"]
    assert [scatter["groups"][n] for n in scatter["group"]] == [
        name.partition("H")[0] for name in scan.names
    ]


def test_a_rank_counts_the_heads_with_larger_values(jobs):
    view = page_view("python-2l", corpus="repeated", most=6)
    scan = answered(jobs, view)[SCAN]
    assert isinstance(scan, HeadScan)
    ranked = measure(scan, "induction − control (value-weighted)")
    statistic = scan.statistics.index("induction")
    difference = (scan.mean - scan.control)[1, :, statistic]
    for n, name in enumerate(scan.names):
        larger = int((difference > difference[n]).sum())
        assert ranked.rank(name) == f"{larger + 1} of {len(scan.names)}"
    assert ranked.rank("L9H9") == ""


def test_the_ranking_has_the_control_beside_each_value_and_names_the_rank_of_the_head(jobs):
    view = page_view("python-2l", corpus="repeated", most=6, head=Head(1, 2))
    results = answered(jobs, view)
    ranking = {each["id"]: each for each in CORPUS.views(view, loaded("python-2l"), results)}[
        RANKING
    ]
    ranked = measure(results[SCAN], "induction")
    assert [row[0] for row in ranking["rows"]] == ranked.rows["name"].tolist()
    assert [float(row[3]) for row in ranking["rows"]] == pytest.approx(
        ranked.rows["control"].tolist(), abs=5e-3
    )
    assert ranked.rank("L1H2") in ranking["note"]


def test_measures_are_plain_weighted_and_their_differences_and_effects_if_these_are_measured(jobs):
    view = page_view("python-2l", corpus="repeated", most=6, effects=True)
    results = answered(jobs, replace(view, scanned=request_of(view)))
    plain, effects = measures_of(results[SCAN]), measures_of(results[EFFECTS])
    assert {"previous", "previous − control", "previous (value-weighted)"} <= {*plain}
    assert SIZE not in plain
    scan = results[EFFECTS]
    sizes = measure(scan, SIZE).rows.set_index("name")["value"]
    expected = scan.class_effects.effect.abs().mean(-1)
    assert [sizes[name] for name in scan.names] == pytest.approx(expected.tolist(), rel=1e-5)
    assert any(name.startswith("effect on ") for name in effects)


# ---- clicks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("where", [SCATTER, RANKING])
def test_a_click_chooses_the_head_on_all_pages(jobs, where):
    view = page_view("python-2l", corpus="repeated", most=6, head=Head(0, 0))
    views = drawn(jobs, view)
    kinds = {SCATTER: "point", RANKING: "row"}
    pick = {"view": where, "pick": kinds[where], "row": 0, "column": 3, "name": "L1H4", "id": "a-1"}
    chosen, notes = clicked(CORPUS, view, checked(pick, [*views.values()]))
    assert chosen == replace(view, head=Head(1, 4))
    assert not notes
    place = drawn(jobs, chosen)[SCATTER]
    assert place["labels"][place["at"][1]] == "L1H4"


def test_a_head_of_another_attention_is_chosen_with_it(jobs):
    view = page_view("dates", most=6, attention="decoder")
    pick = {"view": SCATTER, "pick": "point", "row": 0, "column": 0, "name": "encoder.L0H1"}
    chosen, _ = clicked(CORPUS, view, pick)
    assert (chosen.attention, chosen.head) == ("encoder", Head(0, 1))


# ---- the estimate, cancelling, the store -------------------------------------------------------


def test_a_long_scan_is_estimated_first_and_starts_when_it_is_requested(jobs, monkeypatch):
    monkeypatch.setattr(scan_module, "SHORT", 0.0)
    view = page_view()
    assert names_asked(view) == [ESTIMATE]
    assert answered(jobs, view) == {}
    assert names_asked(view) == []
    (waiting,) = CORPUS.views(view, loaded(NAME), {})
    assert "press Start" in waiting["reason"]
    requested = replace(view, scanned=request_of(view))
    assert names_asked(requested) == [SCAN]
    assert isinstance(answered(jobs, requested)[SCAN], HeadScan)


@pytest.mark.parametrize(
    "change", [{"most": 5}, {"offsets": 2}, {"corpus": PASTED, "pasted": "ab"}]
)
def test_a_request_is_of_one_scan_alone(change):
    view = page_view()
    assert request_of(replace(view, **change)) != request_of(view)


def test_a_short_scan_starts_by_itself_after_its_estimate(jobs):
    view = page_view()
    assert names_asked(view) == [ESTIMATE]
    assert isinstance(answered(jobs, view)[SCAN], HeadScan)


def test_the_code_of_the_estimate_prints_it_and_that_of_the_scan_ends_with_its_table():
    scan = Scan.of(page_view(), loaded(NAME))
    assert scan.estimate.code().endswith("\nprint(result)")
    assert scan.plain.code().endswith("\nresult.to_frame()")


def test_a_second_visit_computes_nothing_again(jobs):
    view = page_view()
    first = answered(jobs, view)[SCAN]
    assert names_asked(view) == [SCAN]
    assert answered(jobs, replace(view, head=Head(1, 2), down="entropy"))[SCAN] is first
    assert jobs.kept == 0


def test_a_cancelled_scan_shows_the_texts_that_it_has_read(jobs, monkeypatch):
    monkeypatch.setattr(jobs_module, "FIRST_SLICE", 0.0)
    monkeypatch.setattr(jobs_module, "LONGEST_SLICE", 0.0)
    monkeypatch.setattr(scan_module, "MOST_ROWS", 1)
    view = page_view("python-2l", corpus="repeated", most=24)
    view = replace(view, scanned=request_of(view))
    scan = Scan.of(view, loaded("python-2l"))
    deadline = time.monotonic() + 60
    while so_far(scan) is None:
        assert time.monotonic() < deadline
        jobs.poll(scan.plain)
        time.sleep(0.001)
    jobs.cancel(scan.plain)
    while (job := jobs.poll(scan.plain, cancelled=True)).running:
        time.sleep(0.001)
    assert 0 < job.result.n_texts < 24
    views = CORPUS.views(view, loaded("python-2l"), {SCAN: job.result})
    assert f"on {job.result.n_texts} text" in views[0]["title"]
    assert len(views[0]["labels"]) == 16


def test_what_would_not_fit_the_memory_is_refused_with_what_to_do(jobs):
    view = page_view()
    estimated = estimate_scan_heads(loaded(NAME), texts_of(view, loaded(NAME)))
    jobs.store.put(Scan.of(view, loaded(NAME)).estimate, estimated)
    jobs.store.max_bytes = estimated.nbytes - 1
    (refused,) = [ask for ask in CORPUS.asks(view, loaded(NAME)) if ask.name == SCAN]
    assert "--memory" in str(refused.question)


# ---- texts and the address ---------------------------------------------------------------------


@pytest.mark.parametrize("name", bundled())
def test_the_sets_of_a_model_are_texts_that_it_can_read(name):
    model = loaded(name)
    for chosen in sets_of(name):
        if chosen != PASTED:
            texts = texts_of(page_view(name, corpus=chosen, most=4), model)
            assert len(texts[0] if isinstance(texts, tuple) else texts) == 4
            model.batches(texts)


def test_all_sets_are_mixed_and_cut_at_the_number_of_texts():
    view = page_view("python-4l", corpus=ALL_SETS, most=6)
    _, *singles, _ = sets_of("python-4l")
    each = [texts_of(replace(view, corpus=name, most=3), loaded("python-4l")) for name in singles]
    assert texts_of(view, loaded("python-4l")) == [
        text for row in zip(*each, strict=True) for text in row
    ]


def test_pasted_lines_are_texts_without_empty_ones():
    view = page_view(corpus=PASTED, pasted=PASTED_TEXTS)
    assert texts_of(view, loaded(NAME)) == ["abcab", "xyzxy", "kqkqk", "bb"]


@pytest.mark.parametrize(
    ("name", "pasted", "message"),
    [
        (NAME, "", "no pasted texts yet"),
        ("dates", "1 May 2030\t2030\nno tab", "Line 2"),
    ],
)
def test_what_is_no_text_is_refused_with_what_to_do(name, pasted, message):
    view = page_view(name, corpus=PASTED, pasted=pasted)
    with pytest.raises(InvalidInput, match=message):
        texts_of(view, loaded(name))
    (error,) = [ask.question for ask in CORPUS.asks(view, loaded(name)) if ask.name == SCAN]
    assert message in str(error)


def test_texts_of_one_token_are_an_error_of_the_scan(jobs):
    """The only bundled model with one stack that reads texts without BOS."""
    view = page_view("addition-mod-113", corpus=PASTED, pasted="1\n2")
    view = replace(view, scanned=request_of(view))
    job = jobs.poll(Scan.of(view, loaded("addition-mod-113")).plain)
    while job.running:
        time.sleep(0.01)
    assert "two tokens" in job.error


def test_the_address_holds_the_scan_and_leaves_out_long_texts():
    view = page_view(corpus=PASTED, pasted="ab\ncd", most=7, offsets=2, effects=True, down="self")
    view = replace(view, scanned=request_of(view))
    assert from_address(view.to_address()) == (view, ())
    long = replace(view, pasted="a" * (MAX_TEXT + 1))
    address = long.to_address()
    assert address[OMITTED] == "pasted"
    read, notes = from_address(address)
    assert (read.text, read.pasted, read.most) == (view.text, "", 7)
    assert "pasted" in notes[0]


def test_a_link_names_no_file():
    view = page_view(corpus="/etc/passwd")
    read, notes = with_valid_choices(view, loaded(NAME), view)
    assert read.corpus == ""
    assert "corpus='/etc/passwd'" in notes[0]


# ---- in a session ------------------------------------------------------------------------------


@pytest.fixture
def session() -> AppTest:
    """The page in a session."""
    app = AppTest.from_file(str(APP), default_timeout=60)
    app.query_params["model"], app.query_params["page"] = NAME, CORPUS.name
    return app


def until(app: AppTest, holds: Callable[[], bool]) -> None:
    for _ in range(300):
        if holds():
            return
        time.sleep(0.1)
        app.run()
    raise TimeoutError


def labels(app: AppTest) -> list[str]:
    return [button.label for button in app.button]


def test_a_long_scan_starts_at_a_press_of_a_button_with_its_time(session, monkeypatch):
    monkeypatch.setattr(scan_module, "SHORT", 0.0)
    app = session.run()
    until(app, lambda: any(label.startswith("Start: about") for label in labels(app)))
    assert not any(box.label == "Rank by" for box in app.selectbox)
    app.button(key="start_scan").click().run()
    until(app, lambda: any(box.label == "Rank by" for box in app.selectbox))
    assert not any(label.startswith("Start") for label in labels(app))
    assert not app.error
    chosen = next(box for box in app.selectbox if box.label == "Head")
    assert [option.partition(" · ")[2] for option in chosen.options[:2]] == ["1 of 8", "2 of 8"]
    app.selectbox(key=chosen.key).set_value("L1H1").run()
    assert app.session_state["view"].head == Head(1, 1)
    assert app.query_params["head"] in ("L1H1", ["L1H1"])


def test_a_link_to_texts_that_are_not_offered_has_a_message(session):
    session.query_params["corpus"] = "nope"
    app = session.run()
    assert any("corpus" in warning.value for warning in app.warning)
    assert not app.exception
