"""The page of a map in headless Chromium: pointer, lasso, search, keyboard, dark, phone, CSV; opened from the disk."""

import csv
import json
from importlib.resources import files
from itertools import pairwise

import numpy as np
import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

import isosent
from isosent.report.map_page import DrawnMap, map_page
from isosent.search import neighbor_map

pytestmark = pytest.mark.slow  # a browser takes ten seconds

AXE = files("axe_core_python") / "axe.min.js"
NASTY = "</script><img src=x onerror='window.hacked = 1'> and, \"some\" more\nwords"
TEXTS = [*isosent.demo_texts()[:79], NASTY]
LANGUAGES = [("en", "de", "fr", None)[row % 4] for row in range(80)]
STEPS = 65536


@pytest.fixture(scope="module")
def drawn(wordllama):
    vectors = wordllama.encode(TEXTS)
    after = isosent.Whitening(n_components=16).fit_transform(vectors)
    return [DrawnMap(f"<{each.method}>", each, "It keeps some.") for each in map(neighbor_map, (vectors, after))]


@pytest.fixture(scope="module")
def address(tmp_path_factory, drawn):
    path = tmp_path_factory.mktemp("map") / "map.html"
    content = map_page(drawn, TEXTS, ("lang", LANGUAGES), source="texts.txt", vectors="model: wordllama")
    path.write_text(content, "utf-8")
    return path.as_uri()


@pytest.fixture
def page(browser, look, address):
    """The page, newly opened on a wide screen in a light room; nothing may go wrong while it is used."""
    look()
    browser.get_log("browser")
    browser.get(address)
    yield browser
    assert browser.get_log("browser") == []
    assert browser.execute_script("return window.hacked") is None


def at(page, name):
    return page.find_element(By.ID, name)


def until(page, is_so):
    return WebDriverWait(page, 20, poll_frequency=0.02).until(lambda _: is_so())


def pixels(page, number=0):
    """Where the script puts each point of the whole map: from the middle of the canvas, in CSS pixels."""
    size = at(page, f"map-{number}").size
    data = json.loads(at(page, "data").get_attribute("textContent"))
    places = page.execute_script(
        "return [...Uint8Array.from(atob(arguments[0]), c => c.charCodeAt(0))]", data["maps"][number]
    )
    steps = np.frombuffer(bytes(places), "<u2").reshape(-1, 2).astype(float) - STEPS / 2
    return steps * [1, -1] * min(size["width"], size["height"]) / STEPS


def move_to(page, place, number=0):
    return ActionChains(page, duration=10).move_to_element_with_offset(at(page, f"map-{number}"), *map(round, place))


def picture(page, number):
    """The canvas, when it is drawn."""
    draw = "done(document.getElementById(arguments[0]).toDataURL())"
    script = f"const done = arguments[1]; requestAnimationFrame(() => requestAnimationFrame(() => {draw}))"
    return page.execute_async_script(script, f"map-{number}")


def listed(page, name):
    return [each.get_attribute("textContent") for each in page.find_elements(By.CSS_SELECTOR, f"#{name} button")]


def words(text):
    """A text as a page may break its lines."""
    return " ".join(text.split())


def lonely(places):
    """The point that is farthest from all others."""
    distances = np.linalg.norm(places[:, None] - places[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    return int(distances.min(axis=1).argmax())


def test_the_pointer_shows_a_text_in_both_maps(page):
    places = pixels(page)
    row = lonely(places)
    before = picture(page, 1)
    move_to(page, places[row]).perform()
    until(page, lambda: at(page, "tip").is_displayed())
    assert words(TEXTS[row]) in words(at(page, "tip").text)
    assert f"lang: {LANGUAGES[row]}" in at(page, "tip").text or LANGUAGES[row] is None
    assert picture(page, 1) != before


def test_a_click_shows_the_true_neighbors(page, drawn):
    places = pixels(page, 1)
    row = lonely(places)
    move_to(page, places[row], 1).click().perform()
    assert words(at(page, "point-text").text) == words(TEXTS[row])
    neighbors = drawn[0].map.neighbors[row].tolist()
    assert listed(page, "near") == [TEXTS[other] for other in neighbors]
    page.find_element(By.CSS_SELECTOR, "#near button").send_keys(Keys.ENTER)
    assert f"row {neighbors[0]}" in at(page, "point-facts").text


def test_a_search_selects_and_the_csv_has_what_is_selected(page, downloads):
    at(page, "search").send_keys("THE")
    rows = [row for row, text in enumerate(TEXTS) if "the" in text.lower()]
    until(page, lambda: at(page, "count").text.startswith(f"{len(rows)} of 80"))
    assert listed(page, "list") == [TEXTS[row] for row in rows]
    at(page, "search").clear()
    at(page, "search").send_keys("onerror")
    until(page, lambda: at(page, "count").text.startswith("1 of 80"))
    at(page, "save").click()
    file = downloads / "selected.csv"
    until(page, file.exists)
    with file.open(newline="", encoding="utf-8") as content:
        assert list(csv.reader(content)) == [["row", "text", "lang"], ["79", NASTY, ""]]
    at(page, "clear").click()
    assert at(page, "count").text == "80 points"
    assert not at(page, "save").is_enabled()


def test_a_lasso_selects_what_it_surrounds(page):
    places = pixels(page)
    at(page, "lasso").click()
    corners = [(-150, -150), (20, -150), (20, 150), (-150, 150)]
    drag = move_to(page, corners[0]).click_and_hold()
    for (x, y), (other_x, other_y) in pairwise(corners):
        drag = drag.move_by_offset(other_x - x, other_y - y)
    drag.release().perform()
    inside = (places > [-150, -150]).all(axis=1) & (places < [20, 150]).all(axis=1)
    assert 0 < inside.sum() < 80
    assert abs(int(at(page, "count").text.split()[0]) - inside.sum()) <= 1  # on the edge
    assert len(listed(page, "list")) == int(at(page, "count").text.split()[0])


def test_categories_select(page):
    buttons = page.find_elements(By.CSS_SELECTOR, "#legend button")
    assert [each.text.split()[0] for each in buttons if each.is_displayed()] == ["en", "de", "fr", "no"]
    for button in buttons[:2]:
        button.send_keys(Keys.SPACE)
    assert at(page, "count").text == "40 of 80 points selected"
    assert [each.get_attribute("aria-pressed") for each in buttons[:3]] == ["true", "true", "false"]
    buttons[0].send_keys(Keys.SPACE)
    assert at(page, "count").text == "20 of 80 points selected"


def test_the_keyboard_moves_zooms_and_opens(page):
    canvas, whole = at(page, "map-0"), picture(page, 0)
    nearest = int(np.linalg.norm(pixels(page), axis=1).argmin())
    canvas.send_keys(Keys.ENTER)
    assert f"row {nearest}" in at(page, "point-facts").text
    canvas.send_keys(Keys.ESCAPE)
    assert not at(page, "point").is_displayed()
    canvas.send_keys("+++", Keys.ARROW_LEFT)
    at(page, "in-view").click()
    assert int(at(page, "count").text.split()[0]) < 80
    at(page, "clear").click()
    canvas.send_keys("0")
    page.execute_script("document.activeElement.blur()")
    assert picture(page, 0) == whole


def test_the_wheel_zooms_and_dragging_moves(page):
    whole = picture(page, 0)
    wheel = "new WheelEvent('wheel', {deltaY: -300, clientX: 200, clientY: 500, cancelable: true})"
    page.execute_script(f"arguments[0].dispatchEvent({wheel})", at(page, "map-0"))
    zoomed = picture(page, 0)
    assert zoomed != whole
    move_to(page, (0, 0)).click_and_hold().move_by_offset(60, 30).release().perform()
    assert picture(page, 0) != zoomed
    page.find_element(By.CSS_SELECTOR, '[data-zoom="0"]').click()


def test_dark_and_light(page, look):
    light = picture(page, 0)
    at(page, "theme").click()
    assert picture(page, 0) != light
    at(page, "theme").click()
    assert picture(page, 0) == light


def test_a_phone_has_no_sideways_scroll_and_nobody_is_left_out(page, look, address):
    for width in (1280, 390):
        look(width=width)
        page.get(address)
        at(page, "map-0").send_keys(Keys.ENTER)
        assert page.execute_script("return document.documentElement.scrollWidth") <= width
        page.execute_script(AXE.read_text("utf-8"))
        found = page.execute_async_script("axe.run().then(arguments[0])")
        assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found["violations"]] == []


def test_vectors_without_texts_are_colored_by_numbers(browser, look, drawn, tmp_path, downloads):
    look()
    lengths = [None if row == 3 else 1234567 + float(len(text)) + 0.5 for row, text in enumerate(TEXTS)]
    path = tmp_path / "numbers.html"
    path.write_text(map_page(drawn[:1], None, ("length", lengths), source="vectors.npy", vectors=""), "utf-8")
    browser.get_log("browser")
    browser.get(path.as_uri())
    assert "1 without a value" in at(browser, "legend").text
    places = pixels(browser)
    row = lonely(places)
    move_to(browser, places[row]).click().perform()
    facts = [at(browser, "point-facts").text, at(browser, "point-text").text]
    assert facts == ["" if lengths[row] is None else f"length: {float(f'{lengths[row]:.6g}'):.0f}", f"row {row}"]
    file = downloads / "selected.csv"
    file.unlink(missing_ok=True)
    at(browser, "in-view").click()
    at(browser, "save").click()
    until(browser, file.exists)
    with file.open(newline="", encoding="utf-8") as content:
        saved = {int(number): value for number, value in list(csv.reader(content))[1:]}
    assert saved
    assert saved == {number: "" if lengths[number] is None else f"{lengths[number]}" for number in saved}
    assert browser.get_log("browser") == []
