"""The page in a real browser: Debian's Chromium without a window, driven by Selenium.

Selenium rather than the browser's own protocol: it waits, types and points as a person does, and others keep
it in step with new browsers. It is given both programs, so that it looks for nothing on a network.
"""

import json
import os
import shutil
import threading

import numpy as np
import pytest
from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from cenie.report.page.data import page_data
from cenie.report.page.serve import Watched, address_of, open_server
from cenie.report.page.write import page_html, write_page
from cenie.report.runs import group_runs, open_runs
from cenie.rundir.archives import archive_bytes
from cenie.rundir.files import write_json
from tests.report.page.made import PaintedStudio, make_run

DESKTOP, PHONE = (1280, 900), (390, 844)
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
NAUGHTY = "</script><script>window.harmed=1</script><img src=x onerror=window.harmed=1>"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    programs = [shutil.which("chromium") or shutil.which("chromium-browser"), shutil.which("chromedriver")]
    if None in programs:
        reason = (
            "chromium and chromedriver are not installed: make browser, or apt-get install chromium-driver"
        )
        # What is skipped quietly in CI would never be tried at all.
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    options = Options()
    options.binary_location = programs[0]
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('browser')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(programs[1]))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Three methods, one of them with two seeds, one without a level buffer."""
    home = tmp_path_factory.mktemp("runs")
    paths = [
        make_run(home / "cenie0", "plr-cenie", seed=0),
        make_run(home / "cenie1", "plr-cenie", seed=1),
        make_run(home / "robust", "plr-robust"),
        make_run(home / "dr", "dr", stored=0),
    ]
    data = page_data(group_runs(open_runs(paths).runs), skipped=["x is left out"], studio=PaintedStudio())
    file = home / "page.html"
    file.write_text(page_html(data), encoding="utf-8")
    return file


class Page:
    """The page as a reader uses it."""

    def __init__(self, driver, address, size=DESKTOP, dark=False):
        self.driver, self.size = driver, size
        driver.get_log("browser")
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == PHONE}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        driver.get(str(address) if str(address).startswith("http") else f"file://{address}")
        self.wait(lambda: self.script("return document.body.dataset.drawn"))

    def script(self, code, *arguments):
        return self.driver.execute_script(code, *arguments)

    def wait(self, condition, seconds=30):
        return WebDriverWait(self.driver, seconds, 0.1).until(lambda _: condition())

    def at(self, name):
        return self.driver.find_element(By.ID, name)

    def text(self, name):
        return self.at(name).text

    def choose(self, name, value):
        Select(self.at(name)).select_by_value(value)

    def dots(self):
        return self.script("return document.getElementById('scatter').data[0].x.length")

    def point(self, place):
        """Where a dot is, from the middle of the scatter plot, which is scrolled into view."""
        return self.script(
            """const plot = document.getElementById("scatter"), dots = plot.data[0], part = plot._fullLayout;
            plot.scrollIntoView({block: "center"});
            const box = plot.getBoundingClientRect();
            return [part.xaxis._offset + part.xaxis.d2p(dots.x[arguments[0]]) - box.width / 2,
                    part.yaxis._offset + part.yaxis.d2p(dots.y[arguments[0]]) - box.height / 2];""",
            place,
        )

    def move_to(self, place):
        across, down = self.point(place)
        return ActionChains(self.driver).move_to_element_with_offset(self.at("scatter"), across, down)

    def point_at(self, place):
        """Point at a dot until its level is shown."""
        self._until(
            lambda: self.at("tip").is_displayed(),
            self.move_to(place).move_by_offset(1, 0).move_by_offset(-1, 0),
        )

    def click(self, place):
        """Click at a dot until the episode on its level is there to be played; what plays it."""
        player = By.CSS_SELECTOR, "#card .player"
        self._until(lambda: self.driver.find_elements(*player), self.move_to(place).click())
        return self.driver.find_element(*player)

    def _until(self, condition, actions):
        """Act again if nothing happens: on a busy machine a plot may not listen at first."""

        def done():
            actions.perform()
            try:
                return self.wait(condition, seconds=5)
            except TimeoutException:
                return False

        self.wait(done, seconds=60)

    def filmed(self):
        """The place of a dot whose level has an episode, away from all others."""
        return self.script(
            """const plot = document.getElementById("scatter"), dots = plot.data[0], part = plot._fullLayout;
            const at = dots.x.map((x, place) => [part.xaxis.d2p(x), part.yaxis.d2p(dots.y[place])]);
            const apart = (one, two) => Math.hypot(at[one][0] - at[two][0], at[one][1] - at[two][1]);
            const far = (one) => Math.min(...at.map((_, two) => one === two ? 1e9 : apart(one, two)));
            const filmed = [...at.keys()].filter((place) => dots.marker.line.width[place] > 0);
            return filmed.sort((one, two) => far(two) - far(one))[0];"""
        )

    def complaints(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]


@pytest.fixture
def desktop(browser, page):
    opened = Page(browser, page)
    yield opened
    assert opened.complaints() == []


def test_the_page_opens_from_disk_with_all_its_parts(desktop):
    assert desktop.text("title") == "maze: DR · PLR⊥ · PLR-CENIE"
    for name in ("curriculum", "held-out", "curves", "levels", "runs", "notes"):
        assert desktop.at(name).is_displayed()
    # The method with novelty is shown first, at the end of its training.
    assert "PLR-CENIE" in Select(desktop.at("curriculum-run")).first_selected_option.text
    assert desktop.text("time-label") == "After 15 updates (cycle 30): 30 levels"
    assert desktop.dots() == 30
    assert "x is left out" in desktop.text("notes")
    loaded = desktop.script("return performance.getEntriesByType('resource').map((each) => each.name)")
    assert [name for name in loaded if not name.startswith("data:")] == []


def test_films_are_said_to_have_been_played_again_or_for_the_page_alone(desktop):
    """In a batch of another size numbers round otherwise: what one sees need not be what was counted."""
    assert "played again for this page" in desktop.text("held-out-lead")
    assert "may fare otherwise than where it was counted" in desktop.text("held-out-lead")
    desktop.click(desktop.filmed())
    assert "counts nowhere" in desktop.text("card")


def test_pointing_at_a_dot_shows_its_level(desktop):
    assert not desktop.at("tip").is_displayed()
    desktop.point_at(desktop.filmed())
    tip = desktop.at("tip")
    assert f"Level {tip.get_attribute('data-level')}" in tip.text
    assert "novelty" in tip.text
    assert (
        desktop.wait(lambda: desktop.script("return document.querySelector('#tip img').naturalWidth")) == 40
    )
    box = desktop.script(
        "const box = document.getElementById('tip').getBoundingClientRect();"
        "return [box.left, box.top, box.right, box.bottom]"
    )
    assert min(box[:2]) >= 0
    assert box[2] <= DESKTOP[0]
    assert box[3] <= DESKTOP[1]


def test_a_click_plays_the_students_episode(desktop):
    player = desktop.click(desktop.filmed())
    desktop.wait(lambda: player.get_attribute("data-state") == "playing")
    seen = player.get_attribute("data-frame")
    desktop.wait(lambda: player.get_attribute("data-frame") != seen)
    assert "solved, step" in player.text
    pixels = "return [...arguments[0].getContext('2d').getImageData(0, 0, 40, 40).data]"
    assert 240 in desktop.script(pixels, player.find_element(By.TAG_NAME, "canvas"))
    player.find_element(By.TAG_NAME, "button").click()
    assert player.get_attribute("data-state") == "paused"


def test_the_legend_filters_methods(desktop):
    names = (
        "return document.getElementById('curve-plot').data.map((each) => each.name).filter((each) => each)"
    )
    assert desktop.script(names) == ["DR", "PLR⊥", "PLR-CENIE"]
    # One group has two runs, and so a band.
    assert desktop.script("return document.getElementById('curve-plot').data.length") == 4
    boxes = desktop.driver.find_elements(By.CSS_SELECTOR, "#legend input")
    boxes[0].click()
    assert desktop.script(names) == ["PLR⊥", "PLR-CENIE"]
    assert desktop.at("level-plot").get_attribute("data-shown") == "2"
    assert "DR" not in desktop.text("overall").split()
    boxes[0].click()
    assert desktop.script(names) == ["DR", "PLR⊥", "PLR-CENIE"]
    desktop.choose("curve-x", "env_steps")
    assert desktop.script("return document.getElementById('curve-plot').data[0].x[1]") == 10_000
    desktop.choose("statistic", "mean")
    assert "mean" in desktop.script("return document.getElementById('curve-plot').layout.yaxis.title.text")


def test_the_slider_goes_through_training(desktop):
    slider = desktop.at("time")
    slider.send_keys(Keys.HOME)
    assert desktop.text("time-label") == "After 5 updates (cycle 10): 20 levels"
    assert desktop.dots() == 20
    slider.send_keys(Keys.ARROW_RIGHT)
    assert desktop.dots() == 25
    assert slider.get_attribute("aria-valuetext").startswith("After 10 updates")
    likeliest = desktop.driver.find_elements(By.CSS_SELECTOR, "#replayed .thumb")
    assert len(likeliest) == 12
    desktop.at("time-play").click()
    desktop.wait(lambda: desktop.dots() == 30)


def test_what_is_not_known_is_grey_and_counted(browser, tmp_path):
    """It was coloured like the lowest value that there is."""
    path = make_run(tmp_path / "run", "plr-cenie")
    file = max((path / "snapshots").iterdir())
    arrays = dict(np.load(file))
    known = np.arange(30) % 3 > 0
    for name, values in {"return": np.arange(30.0), "updates": np.ones(30), "cycle": np.ones(30)}.items():
        arrays[f"buffer/played/{name}"] = np.where(known, values, np.nan)
    file.write_bytes(archive_bytes(arrays))
    runs = open_runs([path]).runs
    shown = Page(browser, write_page(group_runs(runs), tmp_path / "page.html", pictures=False))
    assert shown.text("missing") == ""
    shown.choose("axis-colour", "return")
    assert shown.text("missing") == "10 of 30 levels are grey: no return is known of them."
    colours = shown.script("return document.getElementById('scatter').data[0].marker.color")
    assert [colour for colour in colours if isinstance(colour, str)] == ["#a9adb3"] * 10
    drawn = shown.script(
        "return [...document.querySelectorAll('#scatter .trace')[0].querySelectorAll('path.point')]"
        ".map((point) => point.style.fill)"
    )
    assert drawn.count("rgb(169, 173, 179)") == 10
    shown.choose("axis-x", "return")
    assert shown.text("missing") == "10 of 30 levels are not drawn: no return is known of them."
    shown.at("time").send_keys(Keys.HOME)
    assert shown.complaints() == []


def test_axes_and_runs_can_be_chosen(desktop):
    desktop.choose("axis-x", "probability")
    assert "probability" in desktop.script(
        "return document.getElementById('scatter').layout.xaxis.title.text"
    )
    desktop.choose("axis-colour", "solved")
    assert "solved rate" in desktop.text("scale")
    names = [option.text for option in Select(desktop.at("curriculum-run")).options]
    desktop.choose("curriculum-run", str(names.index("DR, seed 0")))
    assert "keeps no level buffer" in desktop.text("curriculum-lead")
    assert not desktop.at("replayed-block").is_displayed()


def test_everything_can_be_reached_and_used_with_the_keyboard(desktop):
    seen = []
    for _ in range(60):
        ActionChains(desktop.driver).send_keys(Keys.TAB).perform()
        seen.append(
            desktop.script("const e = document.activeElement; return e.id || e.className || e.tagName")
        )
    assert {"curriculum-run", "axis-x", "scatter", "time-play", "time", "suite", "statistic"} <= set(seen)
    scatter = desktop.at("scatter")
    scatter.send_keys(Keys.HOME)
    first = desktop.driver.find_element(By.CSS_SELECTOR, "#card h3").text
    scatter.send_keys(Keys.ARROW_RIGHT)
    second = desktop.driver.find_element(By.CSS_SELECTOR, "#card h3").text
    assert first.startswith("Level ")
    assert second != first
    assert second in desktop.script("return document.getElementById('spoken').textContent")
    for _ in range(30):  # to a level that has an episode
        if desktop.driver.find_elements(By.CSS_SELECTOR, "#card .player"):
            break
        scatter.send_keys(Keys.ARROW_RIGHT)
    scatter.send_keys(Keys.ENTER)
    desktop.wait(lambda: desktop.driver.find_elements(By.CSS_SELECTOR, "#card [data-state=playing]"))
    scatter.send_keys(Keys.ESCAPE)
    assert "No level chosen" in desktop.text("card")


def test_everything_has_a_name_for_those_who_do_not_see(desktop):
    nameless = desktop.script(
        """const named = (e) => e.ariaLabel || e.labels?.length || e.textContent.trim() || e.alt;
        return [...document.querySelectorAll("button, input, select, [role=region], canvas, a")]
          .filter((e) => !named(e)).map((e) => e.outerHTML.slice(0, 80));"""
    )
    assert nameless == []
    assert (
        desktop.script(
            "return [...document.querySelectorAll('img')].filter((e) => !e.hasAttribute('alt')).length"
        )
        == 0
    )


def test_those_who_want_calm_get_no_motion(browser, page):
    opened = Page(browser, page)
    features = [{"name": "prefers-reduced-motion", "value": "reduce"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    player = opened.click(opened.filmed())
    assert player.get_attribute("data-state") == "paused"
    player.find_element(By.TAG_NAME, "button").click()
    assert player.get_attribute("data-state") == "playing"


CONTRASTS = """
const part = (value) => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
const light = (colour) => {
  const [r, g, b] = colour.match(/[\\d.]+/g).map((value) => part(Number(value) / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (e) => {
  for (; e; e = e.parentElement) {
    const colour = getComputedStyle(e).backgroundColor;
    if (!/, 0\\)$/.test(colour)) return colour;
  }
  return "rgb(255,255,255)";
};
const low = [], kinds = "h1, h2, h3, p, a, label, option, td, th, button, summary, output, text, li, legend";
for (const e of document.querySelectorAll(kinds)) {
  if (!e.textContent.trim() || !e.getClientRects().length) continue;
  const style = getComputedStyle(e), colour = e.tagName === "text" ? style.fill : style.color;
  const [one, two] = [light(colour), light(behind(e))];
  const contrast = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
  if (contrast < 4.5) low.push([e.textContent.trim().slice(0, 30), colour, behind(e), contrast]);
}
return low;
"""


@pytest.mark.parametrize("dark", [False, True])
def test_text_can_be_read_in_the_light_and_in_the_dark(browser, page, dark):
    opened = Page(browser, page, dark=dark)
    background = opened.script("return getComputedStyle(document.body).backgroundColor")
    assert (max(map(int, background[4:-1].split(","))) < 60) == dark
    assert opened.script(CONTRASTS) == []
    assert opened.complaints() == []


def test_colours_follow_when_the_reader_switches_to_dark(browser, page):
    opened = Page(browser, page)
    before = opened.script("return document.getElementById('curve-plot').layout.font.color")
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    opened.wait(
        lambda: opened.script("return document.getElementById('curve-plot').layout.font.color") != before
    )
    assert opened.script(CONTRASTS) == []


def test_it_fits_on_a_phone(browser, page):
    opened = Page(browser, page, PHONE)
    assert opened.script("return document.documentElement.scrollWidth") == PHONE[0]
    outside = opened.script(
        """const out = (box) => box.width && (box.left < -1 || box.right > innerWidth + 1);
        return [...document.querySelectorAll("main *, header *")].filter((e) => !e.closest(".strip, .scroll"))
          .filter((e) => out(e.getBoundingClientRect())).map((e) => e.outerHTML.slice(0, 80));"""
    )
    assert outside == []
    small = opened.script(
        """const low = (box) => box.height > 0 && box.height < 30;
        return [...document.querySelectorAll("button, select, summary")]
          .filter((e) => low(e.getBoundingClientRect())).map((e) => e.outerHTML.slice(0, 80));"""
    )
    assert small == []
    # The card of a level comes below the plot, not beside it.
    plot, card = (
        opened.script(f"return document.getElementById('{name}').getBoundingClientRect().top")
        for name in ("scatter", "card")
    )
    assert card > plot + 300
    opened.click(opened.filmed())
    assert opened.complaints() == []


def test_names_from_files_are_never_taken_for_markup(browser, tmp_path):
    path = make_run(tmp_path / "run", "plr-cenie")
    config = json.loads((path / "config.json").read_text())
    config["method"], config["env"]["edit_operations"] = NAUGHTY, [NAUGHTY]
    write_json(path / "config.json", config)
    table = path / "evaluations.csv"
    table.write_text(
        table.read_text().replace("Labyrinth", '"' + NAUGHTY + '"').replace("cenie8", "<b>suite")
    )
    opened = open_runs([path])
    data = page_data(group_runs(opened.runs), skipped=[NAUGHTY], studio=PaintedStudio())
    file = tmp_path / "page.html"
    file.write_text(page_html(data), encoding="utf-8")
    shown = Page(browser, file)
    for details in browser.find_elements(By.TAG_NAME, "details"):
        shown.script("arguments[0].open = true", details)
    shown.wait(lambda: NAUGHTY in shown.text("runs"))
    assert NAUGHTY in shown.text("title")
    assert NAUGHTY in shown.text("notes")
    assert "<b>suite" in shown.text("curves")
    assert shown.script("return window.harmed ?? 0") == 0
    assert shown.script("return document.querySelectorAll('script').length") == 3
    assert shown.script("return document.querySelectorAll('img[src=x]').length") == 0
    assert shown.complaints() == []


def test_a_page_without_pictures_is_whole(browser, tmp_path):
    runs = open_runs([make_run(tmp_path / "run", "plr-robust")]).runs
    shown = Page(browser, write_page(group_runs(runs), tmp_path / "page.html", pictures=False))
    assert shown.dots() == 30
    assert not shown.at("held-out").is_displayed()
    shown.at("scatter").send_keys(Keys.HOME)
    assert "without pictures" in shown.text("card")
    assert shown.complaints() == []


def test_nothing_to_show_is_said(browser, tmp_path):
    shown = Page(browser, write_page([], tmp_path / "page.html", skipped=["all is lost"], pictures=False))
    assert shown.text("title") == "No runs to show"
    assert "all is lost" in shown.text("notes")
    assert not shown.at("curves").is_displayed()
    assert shown.complaints() == []


def test_a_watched_page_renews_itself(browser, tmp_path):
    path = make_run(tmp_path / "run", finished=False)
    watched = Watched([path])
    with open_server(lambda: watched.published) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            shown = Page(browser, address_of(server))
            assert "(not finished)" in shown.text("run-list")
            shown.at("time").send_keys(Keys.HOME)
            shown.at("scatter").send_keys(Keys.HOME)
            level = browser.find_element(By.CSS_SELECTOR, "#card h3").text
            write_json(path / "summary.json", {"version": "0.1.0", "updates": 15})
            assert watched.refresh()
            shown.wait(lambda: "(not finished)" not in shown.text("run-list"))
            # What the reader has chosen stays.
            assert shown.text("time-label").startswith("After 5 updates")
            assert browser.find_element(By.CSS_SELECTOR, "#card h3").text == level
            assert shown.complaints() == []
        finally:
            server.shutdown()
            thread.join()
    shown.wait(lambda: "does not answer" in shown.text("alert"))
