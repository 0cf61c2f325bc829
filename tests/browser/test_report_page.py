"""The report in headless Chromium: opened from the disk, sorted, darkened, on a phone, on paper."""

import json

import pytest
from made_results import NAN, made_result, made_task, right_and_wrong
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from isosent.report.leaderboard import ReportData, ResultFile, make_leaderboard
from isosent.report.results_page import html_report

pytestmark = pytest.mark.slow  # a browser takes ten seconds

PHONE_WIDTH = 390
NASTY = "<img src=x onerror='window.hacked = 1'><script>window.hacked = 1</script>"


def report():
    tasks = [f"STS{year}" for year in range(12, 17)]
    results = [
        made_result("middle", **{name: made_task(0.5) for name in tasks}, MR=right_and_wrong(0)),
        made_result("high", **{name: made_task(0.7) for name in tasks}, MR=right_and_wrong(60)),
        made_result("low", **{name: made_task(0.1) for name in tasks}),
        made_result(NASTY, **{name: made_task(NAN) for name in tasks}),
    ]
    files = tuple(ResultFile(f"{number}.json", result) for number, result in enumerate(results))
    return html_report(ReportData(files), make_leaderboard(files))


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(report(), "utf-8")
    return path.as_uri()


@pytest.fixture
def page(browser, look, address):
    """The page, newly opened on a wide screen in a light room; nothing may go wrong while it is used."""
    look()
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(address)
    yield browser
    assert browser.get_log("browser") == []
    assert requests_of(browser) == {address}


def requests_of(browser):
    """All requests but those of Chromium's own pages, such as the first tab of a new profile."""
    events = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
    sent = (event["params"] for event in events if event["method"] == "Network.requestWillBeSent")
    asked = (request for request in sent if not request["documentURL"].startswith(("chrome:", "chrome-untrusted:")))
    return {request["request"]["url"].partition("#")[0] for request in asked}


def heads(page):
    return {head.text.split()[0]: head for head in page.find_elements(By.CSS_SELECTOR, ".scores th[aria-sort]")}


def models(page):
    return [row.text.splitlines()[0] for row in page.find_elements(By.CSS_SELECTOR, ".scores tbody th")]


def paper(page):
    return page.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")


def test_it_opens_sorted_by_its_first_column(page):
    assert "4 models on 6 tasks" in page.title
    assert models(page) == ["high", "middle", "low", NASTY]
    assert heads(page)["average"].get_attribute("aria-sort") == "descending"


def test_a_click_sorts_and_another_turns_round(page):
    head = heads(page)["STS12"]
    button = head.find_element(By.TAG_NAME, "button")
    button.click()
    assert head.get_attribute("aria-sort") == "descending"
    button.click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert models(page) == ["low", "middle", "high", NASTY]  # what is undefined stays below
    assert heads(page)["average"].get_attribute("aria-sort") == "none"
    assert page.find_element(By.ID, "sorted").get_attribute("textContent") == "Sorted by STS12, ascending."


def test_the_keyboard_sorts(page):
    button = heads(page)["MR"].find_element(By.TAG_NAME, "button")
    button.send_keys(Keys.ENTER)
    assert models(page)[:2] == ["high", "middle"]
    button.send_keys(Keys.SPACE)
    assert models(page)[:2] == ["middle", "high"]
    assert page.switch_to.active_element == button
    heads(page)["Model"].find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
    assert models(page)[-3:] == ["high", "low", "middle"]


def test_every_button_is_reached_by_the_tab_key(page):
    page.find_element(By.ID, "theme").send_keys(Keys.NULL)
    page.execute_script("document.getElementById('theme').focus()")
    reached = set()
    for _ in range(30):
        page.switch_to.active_element.send_keys(Keys.TAB)
        reached.add(page.switch_to.active_element.text)
    assert {"Model", "average of 5", "STS16", "MR"} <= reached


def test_dark_and_light(page, look):
    theme = page.find_element(By.ID, "theme")
    light = paper(page)
    assert theme.text == "Dark"
    theme.click()
    assert (theme.text, paper(page) == light) == ("Light", False)
    theme.click()
    assert (theme.text, paper(page)) == ("Dark", light)
    look(scheme="dark")
    assert paper(page) == light  # what was chosen by hand stays


def test_it_follows_the_reader_s_scheme(page, look):
    light = paper(page)
    look(scheme="dark")
    assert paper(page) != light
    WebDriverWait(page, 10).until(lambda page: page.find_element(By.ID, "theme").text == "Light")


def test_on_a_phone_only_the_table_scrolls_and_names_stay(page, look, address):
    look(width=PHONE_WIDTH)
    page.get(address)
    assert page.execute_script("return document.documentElement.scrollWidth") <= PHONE_WIDTH
    box = page.find_element(By.CSS_SELECTOR, ".scroll")
    assert page.execute_script("return arguments[0].scrollWidth > arguments[0].clientWidth", box)
    name = page.find_element(By.CSS_SELECTOR, ".scores tbody th")
    before = name.rect["x"]
    page.execute_script("arguments[0].scrollLeft = 200", box)
    assert name.rect["x"] == before


def test_paper_is_white_and_holds_the_small_print(page, look):
    page.find_element(By.ID, "theme").click()
    look(media="print")
    assert paper(page) == "rgba(255, 255, 255, 1)"
    folded = page.find_elements(By.CSS_SELECTOR, "#small-print details")
    page.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert all(each.get_attribute("open") for each in folded)
    page.execute_script("dispatchEvent(new Event('afterprint'))")
    assert not any(each.get_attribute("open") for each in folded)


def test_a_name_is_not_run(page):
    assert page.execute_script("return window.hacked") is None
