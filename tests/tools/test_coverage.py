"""The command that measures intervals writes its tables where they belong."""

from pathlib import Path

import pytest

from tools import coverage

DOCUMENT = Path(__file__).parents[2] / "docs" / "explanation" / "statistics.md"


@pytest.fixture
def quick(monkeypatch):
    """Few draws of few sizes."""
    few = {name: (decide, 50) for name, (decide, _) in coverage.METHODS.items()}
    sizes = {"SIZES": (5, 8), "HEADS": 9, "TABLES": 5, "DRAWS": 50, "FEWER_DRAWS": 50}
    for name, value in {"METHODS": few, **sizes}.items():
        monkeypatch.setattr(coverage, name, value)


def test_the_tables_go_between_the_markers(quick, tmp_path, capsys):
    page, (begin, end) = tmp_path / "page.md", coverage.MARKERS
    page.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    assert coverage.main(["--docs", str(page)]) == 0
    text = page.read_text()
    assert text.startswith(f"before\n{begin}\n")
    assert text.endswith(f"{end}\nafter\n")
    assert "old" not in text
    assert text.count("| **used here** |") == len(coverage.SHAPES) + len(coverage.SKEWED) + 3 + 1
    assert "Student's t" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        coverage.main(["--docs", str(tmp_path / "missing.md")])


def test_the_page_has_the_tables():
    begin, end = coverage.MARKERS
    figures = DOCUMENT.read_text(encoding="utf-8").partition(begin)[2].partition(end)[0]
    assert all(f"| {shape} |" in figures for shape in coverage.SHAPES)


def test_the_truth_is_zero():
    """Each shape's mean, and the skewness that the page gives."""
    for shape in coverage.SHAPES:
        x = coverage.draw(shape, 50).flatten()
        assert abs(x.mean()) < 5 * x.std() / len(x) ** 0.5
        if coverage.SKEWNESS.get(shape, 0) < 3:
            skewness = (((x - x.mean()) / x.std()) ** 3).mean()
            assert skewness.item() == pytest.approx(coverage.SKEWNESS.get(shape, 0), abs=0.1)
