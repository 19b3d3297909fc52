"""The pictures of the README, taken of a demo that has trained: ``python -m tests.pictures LINK``.

``--pages`` takes those pages of docs/pages.md that a demo has instead, each in light, dark, Chinese and 390 px wide, to
look at them before and after a change. ``--before FOLDER`` then puts those of an earlier version next to them, a sheet
for each page.

``LINK`` is a login link (``python manage.py login_link``) of a site that ``make demo`` started. Each picture is taken
in English and in Chinese (``NAME.png`` and ``NAME-zh.png`` of ``docs/img``).
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
CHROMIUM = "/usr/bin/chromium"
WIDTH = 1360
RUN = "first-grpo"
RUNS = (RUN, "warm-up")
LANGUAGES = {"en": "", "zh-hans": "-zh"}


class Camera:
    """Takes pictures of the pages of one run of the demo."""

    def __init__(self, page: Page, folder: Path, ending: str) -> None:
        self.page, self.folder, self.ending = page, folder, ending
        page.get_by_role("link", name=RUN, exact=True).first.click()
        page.wait_for_selector("#run-state[data-state=succeeded]")
        self.run = re.sub(r"[?#].*", "", page.url)

    def take(self, name: str, place: str, ready: str, act: Any = None, height: int = 900) -> None:
        """Go to a place of the run, wait for what must be there, and keep what a person sees."""
        self.page.set_viewport_size({"width": WIDTH, "height": height})
        self.page.goto(urljoin(self.run, place))
        self.page.wait_for_selector(ready)
        if act is not None:
            act(self.page)
        self.page.wait_for_timeout(1500)  # curves are drawn once their part of the page is seen
        path = self.folder / f"{name}{self.ending}.png"
        self.page.screenshot(path=path)
        print(path.relative_to(ROOT), path.stat().st_size)


def failed_rollout(page: Page) -> None:
    """Open the newest failed one, and the words that one of its components looked at."""
    page.goto(urljoin(page.url, str(page.locator(".found-row a.found-place").first.get_attribute("href"))))
    page.wait_for_selector("#reward tr[data-part] button")
    page.locator("#reward tr[data-part] button").first.click()


def pictures(link: str, folder: Path) -> None:
    """All pictures in both languages."""
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        context = browser.new_context(color_scheme="light")
        page = context.new_page()
        page.goto(link)
        page.locator("main button").first.click()
        page.wait_for_load_state("networkidle")
        for language, ending in LANGUAGES.items():
            page.goto(urljoin(link, "/p/demo/runs/"))
            speak(page, language)
            camera = Camera(page, folder, ending)
            camera.take("run", "", "#chart-lead .chart-plot:has(svg)", height=1330)
            camera.take("rollouts", "rollouts/?outcome=failed&sort=-surprise", ".found-row")
            camera.take("rollout", "rollouts/?outcome=failed&sort=-surprise", ".found-row", failed_rollout)
            camera.take("tasks", "tasks/", "main table, main svg")
            camera.take(
                "lab", f"../../rewards/lab/?run={camera.run.rstrip('/').rpartition('/')[2]}", "#lab-groups .rollout"
            )
        browser.close()


PAGES = {
    "overview": "../../",
    "runs": "../",
    "run": "",
    "rollouts": "rollouts/?outcome=failed",
    "rollout": "rollouts/?outcome=failed",
    "tasks": "tasks/",
    "lab": "../../rewards/lab/?run={run}",
    "new-run": "../new/",
    "compare": "../../compare/?c={run}&c={warm_up}",
}
FORMS = {
    "light": ("light", 1440, "en"),
    "dark": ("dark", 1440, "en"),
    "phone": ("light", 390, "en"),
    "zh": ("light", 1440, "zh-hans"),
}


def all_pages(link: str, folder: Path) -> None:
    """The pages of docs/pages.md in all forms, as far as a person sees them without scrolling."""
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
        page.goto(link)
        page.locator("main button").first.click()
        page.wait_for_load_state("networkidle")
        page.goto(urljoin(link, "/p/demo/runs/"))
        hrefs = {name: page.get_by_role("link", name=name, exact=True).first.get_attribute("href") for name in RUNS}
        run, warm_up = (str(href).rstrip("/").rpartition("/")[2] for href in hrefs.values())
        page.goto(urljoin(link, f"/p/demo/rewards/lab/?run={run}"))
        page.wait_for_selector("#lab-groups .rollout")  # the first visit copies the rollouts
        for form, (scheme, width, language) in FORMS.items():
            page.set_viewport_size({"width": 1440, "height": 900})
            page.goto(urljoin(link, "/p/demo/runs/"))
            speak(page, language)
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            for name, place in PAGES.items():
                page.goto(urljoin(urljoin(link, f"/p/demo/runs/{run}/"), place.format(run=run, warm_up=warm_up)))
                if name == "rollout":
                    page.goto(urljoin(page.url, str(page.locator("a.found-place").first.get_attribute("href"))))
                page.wait_for_timeout(2500)
                page.screenshot(path=folder / f"{name}-{form}.png")
        browser.close()


SHEET = """<style>body {{ margin: 0; font: 13px sans-serif; display: grid; grid-template-columns: 1fr 1fr; gap: 8px }}
figure {{ margin: 0 }} img {{ width: 100% }} img.phone {{ width: 30% }}</style>{figures}"""


def sheets(before: Path, after: Path) -> None:
    """A sheet of each page in ``after``: on the left what it was, on the right what it is, in all forms."""
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        for name in PAGES:
            figures = [
                f"<figure><figcaption>{name}, {form}: {folder.name}</figcaption>"
                f"<img class={form} src='file://{(folder / f'{name}-{form}.png').resolve()}'></figure>"
                for form in FORMS
                for folder in (before, after)
            ]
            sheet = after / f"{name}.html"
            sheet.write_text(SHEET.format(figures="".join(figures)), encoding="utf-8")
            page.goto(f"file://{sheet.resolve()}")
            page.screenshot(path=after / f"{name}-sheet.jpg", type="jpeg", quality=60, full_page=True)
        browser.close()


def speak(page: Page, language: str) -> None:
    """Choose a language as a person does."""
    page.locator(f"button[name=language][value='{language}']").first.evaluate(
        "button => button.form.requestSubmit(button)"
    )
    page.wait_for_load_state("networkidle")


def main() -> int:
    """Take them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("link")
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "img")
    parser.add_argument("--pages", action="store_true", help="the pages of docs/pages.md in four forms")
    parser.add_argument("--before", type=Path, help="a folder with these of an earlier version")
    options = parser.parse_args()
    (all_pages if options.pages else pictures)(options.link, options.folder)
    if options.pages and options.before:
        sheets(options.before, options.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
