"""The pages of the explorer, by their names in the address."""

from apps.explorer.opened import reports
from apps.explorer.page import Page
from apps.explorer.pages.report import REPORT
from apps.explorer.pages.story import SAVED_PAGES, STORY

PAGES: dict[str, Page] = {**SAVED_PAGES, STORY.name: STORY}


def pages() -> list[str]:
    """The names of the available pages; that of reports only if reports were opened."""
    return [name for name in PAGES if name != REPORT.name or reports()]
