"""The pages of the explorer, by their names in the address."""

from apps.explorer.opened import reports
from apps.explorer.page import Page
from apps.explorer.pages.heads import HEADS
from apps.explorer.pages.patch import PATCH
from apps.explorer.pages.prompt import PROMPT
from apps.explorer.pages.report import REPORT
from apps.explorer.pages.weights import WEIGHTS
from apps.explorer.pages.why import WHY

PAGES: dict[str, Page] = {page.name: page for page in (PROMPT, HEADS, WHY, PATCH, WEIGHTS, REPORT)}


def pages() -> list[str]:
    """The names of the available pages; that of reports only if reports were opened."""
    return [name for name in PAGES if name != REPORT.name or reports()]
