"""The report shows what it is given as text, loads nothing, and reads well without scripts."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from pictured import as_sent, numbers

from apps.report import Report, ReportPrompt, to_html, write_report

EVIL = "</script><img src=x onerror=alert(1)>&amp;\u2028"
YES, NO = [1.0, 1.1, 0.9, 1.05, 0.95], [0.5, -0.5, 0.0, 0.25, -0.15]


@pytest.fixture
def report(finding):
    """A report in which every text tries to break out."""
    prompts = [ReportPrompt((EVIL, "↵", "\u202eright to left"), EVIL, EVIL) for _ in range(5)]
    return Report(finding([YES, NO], model=EVIL), prompts, {EVIL: EVIL})


class Page(HTMLParser):
    """Elements with their attributes, and what scripts hold."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.styles = ""
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.elements and self.cdata_elem == "script":
            self.scripts[-1] += data
        elif self.cdata_elem == "style":
            self.styles += data
        else:
            self.text += data


def test_texts_stay_texts(report):
    page = Page(to_html(report))
    tags = [tag for tag, _ in page.elements]
    assert "img" not in tags
    assert tags.count("script") == 2
    assert not any(name.startswith("on") for _, attrs in page.elements for name in attrs)
    assert EVIL in page.text


def test_the_error_of_a_loaded_model_is_shown_where_it_was_measured(finding):
    prompts = [ReportPrompt(("a",))] * 5
    pages = {
        n: Page(to_html(Report(finding([YES], agreement=n), prompts, {}))) for n in (None, 3e-7)
    }
    assert "difference from the model it was loaded from" in pages[3e-7].text
    assert "3.0e-07" in pages[3e-7].text
    assert "loaded from" not in pages[None].text


def test_the_figure_is_data_without_markup(report):
    data = Page(to_html(report)).scripts[0]
    assert "<" not in data
    (view,) = json.loads(data)["views"]
    np.testing.assert_array_equal(numbers(view["values"]), as_sent([[1.0, 0.02]]))


def test_it_is_small_beside_its_data(report):
    html = to_html(report)
    assert len(html.encode()) - len(Page(html).scripts[0]) < 225_000


def test_the_policy_lets_run_what_is_inlined_and_nothing_else(report):
    page = Page(to_html(report))
    policy = next(
        attrs["content"] or ""
        for tag, attrs in page.elements
        if tag == "meta" and attrs.get("http-equiv") == "Content-Security-Policy"
    )
    _, runs = page.scripts
    script, style = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (runs, page.styles)
    )
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; "
        "base-uri 'none'; form-action 'none'"
    )


def test_nothing_is_fetched(report):
    for _, attrs in Page(to_html(report)).elements:
        for name in ("src", "href", "action", "data", "poster"):
            assert (attrs.get(name) or "#").startswith("#")


def test_the_answer_and_every_head_are_plain_text(report):
    text = Page(to_html(report)).text
    assert "The largest effects of 2 heads on 5 prompts: L0H0 (+1.00 nats)" in " ".join(
        text.split()
    )
    for head in ("L0H0", "L0H1"):
        assert head in text


def test_many_heads_and_prompts_are_all_there(finding):
    n = 40
    result = finding([[float(i), i + 1.0] * (n // 2) for i in range(30)])
    html = to_html(Report(result, [ReportPrompt((f"token{i}",)) for i in range(n)], {}))
    text = Page(html).text
    assert all(f"L0H{i}" in text for i in range(30))
    assert all(f"token{i}" in text for i in range(n))
    assert "The other 18 heads" in text
    assert "The other 28 prompts" in text


def test_no_effect_at_all_can_be_shown(finding):
    assert "None of 1 head has an effect" in to_html(
        Report(finding([[0.0] * 5]), [ReportPrompt(("a",))] * 5, {})
    )


def test_few_prompts_show_no_interval(finding):
    html = to_html(Report(finding([[1.0, 2.0]]), [ReportPrompt(("a",))] * 2, {}))
    assert "There are no intervals with fewer than 5 prompts" in html
    assert 'class="interval"' not in html
    assert not re.search(r"\bnan\b", Page(html).text.lower())


def test_an_interval_beyond_every_prompt_is_on_the_axis(finding):
    """With five prompts, the interval of the mean may end above all of them."""
    html = to_html(Report(finding([[1.0, 1.0, 1.0, 1.0, 9.0]]), [ReportPrompt(("a",))] * 5, {}))
    ends = re.findall(r'class="interval" x1="([-\d.]+)%" x2="([-\d.]+)%"', html)
    assert ends
    assert all(0 <= float(end) <= 100 for pair in ends for end in pair)


@pytest.mark.parametrize("rest", [[YES, NO], []])
def test_a_head_that_could_not_be_measured_is_noted(finding, rest):
    unmeasured = [1.0, float("nan"), 1.0, 1.0, 1.0]
    result = replace(finding([unmeasured, *rest]), notes=("NaN <on> prompt 1",))
    html = to_html(Report(result, [ReportPrompt(("a",))] * 5, {}))
    page = Page(html)
    assert "NaN <on> prompt 1" in page.text
    assert "L0H0" in page.text
    assert not any("nan%" in (x or "") for _, attrs in page.elements for x in attrs.values())
    assert page.text.lower().count("nan") == 2  # in the note, and in "Provenance"
    (view,) = json.loads(page.scripts[0])["views"]
    assert np.isnan(numbers(view["values"])[0, 0])
    assert view["scale"]["high"] == pytest.approx(1.0)


def test_targets_are_explained_where_there_are_any(report, finding):
    plain = to_html(Report(finding([YES]), [ReportPrompt(("a",))] * 5, {}))
    assert "The green box is the target" in to_html(report)
    assert "The green box is the target" not in plain
    assert 'class="target"' not in plain


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 400])
def test_it_opens_in_a_browser_without_a_complaint(report, tmp_path, chromium, width):
    write_report(report, tmp_path / "report.html")
    complaints: list[str] = []
    requests: list[str] = []
    page = chromium.new_page(viewport={"width": width, "height": 900})
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.on("request", lambda request: requests.append(request.url))
    page.goto((tmp_path / "report.html").as_uri())
    page.wait_for_selector("[data-view=map-0][data-ready]")
    assert not complaints
    assert [url for url in requests if not url.startswith(("data:", "blob:"))] == [page.url]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


@pytest.mark.browser
def test_a_dot_leads_to_a_folded_prompt(finding, tmp_path, chromium):
    n = 20
    result = finding([[float(i) for i in range(n)]])
    write_report(
        Report(result, [ReportPrompt((f"t{i}",)) for i in range(n)], {}), tmp_path / "r.html"
    )
    page = chromium.new_page()
    page.goto((tmp_path / "r.html").as_uri())
    assert not page.locator("#prompt-19").is_visible()
    page.locator("a[href='#prompt-19'] circle").click()
    page.locator("#prompt-19").wait_for(state="visible")
    page.close()


@pytest.mark.browser
def test_it_can_be_read_without_scripts(report, tmp_path, chromium):
    write_report(report, tmp_path / "report.html")
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((tmp_path / "report.html").as_uri())
    assert "The largest effects of 2 heads" in page.inner_text(".conclusion")
    assert page.locator("tbody tr").count() == 2
    assert page.locator("svg.strip circle").count() == 10
    context.close()
