"""The web page of the server in headless Chromium: every control, errors, keyboard, phone, dark."""

import json
import re
import time
import zipfile
from importlib.resources import files

import numpy as np
import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

import isosent
from isosent.demo import EXAMPLE, demo_pool
from isosent.numeric.similarity import cosine_matrix
from isosent.search import Index
from isosent.server import Limits, create_app

pytestmark = pytest.mark.slow  # a browser takes ten seconds

KEY = "the-key-of-this-page"
AXE = files("axe_core_python") / "axe.min.js"
NASTY = "<img src=x onerror='window.hacked = 1'> and some more words of this text"
SLIDE = """
const slider = document.getElementById(arguments[0]);
slider.value = arguments[1];
slider.dispatchEvent(new Event("input"));
"""
DROP = """
const data = new DataTransfer();
data.items.add(new File([arguments[0]], arguments[1]));
document.getElementById("try-form").dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true}));
"""


@pytest.fixture(scope="module")
def address(running, wordllama, texts):
    small = wordllama.fitted(texts, isosent.Whitening(n_components=64))
    columns = {"year": [2000 + number % 20 for number in range(100)]}
    indexes = {
        "notes": Index.create([*texts[:99], NASTY], wordllama, metadata=columns),
        "short": Index.create([*texts[:99], NASTY], small, metadata=columns),
    }
    limits = Limits(max_body_bytes=600_000)
    with running(create_app({"wordllama": wordllama, "small": small, **indexes}, limits=limits)) as port:
        yield f"http://127.0.0.1:{port}/"


@pytest.fixture
def page(browser, look, address):
    look()
    browser.get_log("browser")
    browser.get("about:blank")
    browser.get(address)
    yield browser
    # an answer that is an error is logged by Chromium itself
    assert [entry for entry in browser.get_log("browser") if entry["source"] != "network"] == []


def at(page, name):
    return page.find_element(By.ID, name)


def until(page, is_so):
    return WebDriverWait(page, 30, poll_frequency=0.02).until(lambda _: is_so())


def message(page):
    return until(page, lambda: at(page, "message").text)


def open_tab(page, name):
    at(page, f"tab-{name}").click()
    until(page, lambda: at(page, name).is_displayed())


def submit(page, form):
    at(page, form).find_element(By.CSS_SELECTOR, "button.main").click()


def drawing(page):
    """What the sliders draw: the lines of a figure, and the table."""
    line = "document.querySelector('#histogram .line-after')?.getAttribute('points')"
    return page.execute_script(f"return [{line}, document.getElementById('near').innerText]")


def wait_for_sample(page):
    until(page, lambda: at(page, "near").text)


def open_own(page):
    """Open the form for one's own texts, when the sample is there."""
    wait_for_sample(page)
    page.find_element(By.CSS_SELECTOR, "#own > summary").click()


def shares(page):
    """Translations found before and now, in percent."""
    return [int(share) for share in re.findall(r"(\d+)%", at(page, "translated").text)]


def slide(page, name, value):
    before = drawing(page)
    page.execute_script(SLIDE, name, value)
    until(page, lambda: drawing(page) != before)


def test_it_opens_on_the_sample_before_and_after(page):
    wait_for_sample(page)
    assert "800 texts" in at(page, "verdict").text
    assert "Center" in at(page, "verdict").text  # after erasing, which the switch says
    assert at(page, "erase").is_selected()
    before, now = shares(page)
    assert before < 10 < now
    assert page.switch_to.active_element.tag_name == "body"
    for name in ("matrix-before", "matrix-after", "histogram", "spectrum"):
        assert at(page, name).get_attribute("aria-label")
    assert "mean" in at(page, "histogram").get_attribute("aria-label")


def test_the_language_of_the_sample_is_erased_by_a_switch(page):
    wait_for_sample(page)
    erased = shares(page)[1]
    at(page, "erase").send_keys(Keys.SPACE)
    until(page, lambda: shares(page)[1] < erased)
    assert "Keep these vectors unchanged" in at(page, "verdict").text
    assert page.switch_to.active_element == at(page, "erase")
    chosen = Select(at(page, "query")).first_selected_option.text
    at(page, "erase").send_keys(Keys.SPACE)
    until(page, lambda: shares(page)[1] == erased)
    assert Select(at(page, "query")).first_selected_option.text == chosen == EXAMPLE
    open_own(page)
    at(page, "try-texts").send_keys("A dog runs.\nA puppy runs.\nInterest rates rose.")
    submit(page, "try-form")
    until(page, lambda: page.switch_to.active_element == at(page, "verdict"))
    assert "3 texts" in at(page, "verdict").text
    assert not at(page, "erase").is_displayed()
    at(page, "try-sample").click()
    until(page, lambda: at(page, "erase").is_displayed())


def test_links_and_the_buttons_of_the_browser_change_the_page(page, address):
    open_tab(page, "server")
    open_tab(page, "search")
    page.back()
    until(page, lambda: at(page, "server").is_displayed())
    assert at(page, "tab-server").get_attribute("aria-selected") == "true"
    page.back()
    until(page, lambda: at(page, "try").is_displayed())
    page.forward()
    until(page, lambda: at(page, "server").is_displayed())
    page.execute_script("location.hash = 'compare'")
    until(page, lambda: at(page, "compare").is_displayed())
    page.get("about:blank")
    page.get(f"{address}#search")
    until(page, lambda: at(page, "search").is_displayed())


def test_sliders_and_the_chosen_text_change_what_is_shown(page):
    wait_for_sample(page)
    slide(page, "strength", 0.75)
    assert at(page, "strength-value").text == "0.75"
    slide(page, "dimensions", 16)
    assert at(page, "dimensions-value").text == "16"
    assert "16 are kept" in at(page, "spectrum").get_attribute("aria-label")
    before = drawing(page)
    Select(at(page, "query")).select_by_index(7)
    until(page, lambda: drawing(page) != before)
    at(page, "strength").send_keys(Keys.ARROW_RIGHT)
    until(page, lambda: at(page, "strength-value").text == "0.80")


def test_pasted_texts_are_shown_as_texts(page):
    open_own(page)
    at(page, "try-texts").send_keys(f"{NASTY}\nA dog runs.\nA puppy runs.\nInterest rates rose.")
    Select(at(page, "try-model")).select_by_value("small")
    submit(page, "try-form")
    until(page, lambda: "4 texts" in at(page, "verdict").text)
    assert NASTY[:20] in at(page, "query").text
    assert page.execute_script("return window.hacked") is None


@pytest.mark.parametrize(("pasted", "word"), [("", "three"), ("one\ntwo", "three"), ("same\n" * 9, "three")])
def test_too_few_texts_are_refused(page, pasted, word):
    open_own(page)
    page.execute_script("document.getElementById('try-texts').value = arguments[0]", pasted)
    submit(page, "try-form")
    assert word in message(page)


def test_files_are_chosen_or_dropped(page, tmp_path, texts):
    table = tmp_path / "table.csv"
    table.write_text("text,year\n" + "".join(f'"{text}",1\n' for text in texts[:50]))
    open_own(page)
    at(page, "try-file").send_keys(str(table))
    until(page, lambda: "50 texts" in at(page, "verdict").text or at(page, "message").text)
    assert at(page, "message").text == ""
    at(page, "try-column").send_keys("none")
    at(page, "try-file").send_keys(str(table))
    assert "none" in message(page)
    at(page, "try-column").clear()
    page.execute_script(DROP, "\n".join(texts[:40]), "lines.txt")
    until(page, lambda: "40 texts" in at(page, "verdict").text)


def test_files_that_are_no_texts_are_refused(page, tmp_path):
    open_own(page)
    for name, content, word in (
        ("image.txt", b"\x89PNG\0\0\0" * 100, "zero bytes"),
        ("broken.parquet", b"PAR1 and nothing", "the file"),
        ("latin.txt", "caf\xe9\n".encode("latin-1") * 9, "UTF-8"),
        ("large.txt", b"a line of a large file\n" * 30_000, "--max-body-bytes"),
    ):
        (tmp_path / name).write_bytes(content)
        at(page, "try-file").send_keys(str(tmp_path / name))
        assert word in until(page, lambda word=word: word in at(page, "message").text and at(page, "message").text)
        assert str(tmp_path) not in at(page, "message").text


def test_a_saved_model_gives_the_vectors_that_are_shown(page, downloads, tmp_path):
    wait_for_sample(page)
    until(page, lambda: shares(page)[1] > 30)
    slide(page, "dimensions", 32)
    at(page, "save").click()
    file = downloads / "isosent-model.zip"
    until(page, file.exists)
    with zipfile.ZipFile(file) as archive:
        archive.extractall(tmp_path)
    model = isosent.load(tmp_path / "isosent-model")
    assert model.dim == 32
    texts = [row.text for row in demo_pool()]
    vectors = model.encode(texts)
    cosines = cosine_matrix(vectors, vectors)[texts.index(EXAMPLE)]
    cosines[texts.index(EXAMPLE)] = -1
    nearest = at(page, "near").find_element(By.TAG_NAME, "tr").find_elements(By.TAG_NAME, "td")
    assert nearest[0].text == texts[int(np.argmax(cosines))]
    assert float(nearest[4].text) == pytest.approx(cosines.max(), abs=0.006)


def test_five_thousand_texts_do_not_freeze_the_page(page):
    many = [
        f"Text number {number} is about {number * 7 % 1000} things and {number % 13} others." for number in range(5000)
    ]
    open_own(page)
    page.execute_script("document.getElementById('try-texts').value = arguments[0]", "\n".join(many))
    page.execute_script("window.frames_seen = 0; (function count() { frames_seen++; requestAnimationFrame(count); })()")
    submit(page, "try-form")
    until(page, lambda: "5,000 texts" in at(page, "verdict").text)
    for step in range(20):  # faster than any answer comes
        page.execute_script(SLIDE, "strength", step / 20)
    until(page, lambda: at(page, "strength-value").text == "0.95")
    before = page.execute_script("return window.frames_seen")
    slide(page, "dimensions", 8)
    time.sleep(0.1)
    assert page.execute_script("return window.frames_seen") > before
    assert len(Select(at(page, "query")).options) == 500


def hits(page):
    return page.execute_script("return [...document.querySelectorAll('#search-result li')].map(e => e.innerText)")


def search(page, query):
    at(page, "search-query").clear()
    at(page, "search-query").send_keys(query)
    submit(page, "search-form")
    until(page, lambda: page.find_elements(By.CSS_SELECTOR, "#search-result h2"))


def test_one_query_searches_two_indexes(page, texts):
    open_tab(page, "search")
    search(page, texts[3])
    assert [head.text for head in page.find_elements(By.CSS_SELECTOR, "#search-result h2")] == ["notes", "short"]
    assert len(hits(page)) == 20
    first = hits(page)[0]
    assert texts[3] in first
    assert "cosine 1.000" in first
    result = at(page, "search-result").text
    assert result.count("of random pairs") == 2
    assert "closer than 99.99% of random pairs" in result
    widths = page.execute_script("return [...document.querySelectorAll('.bar span')].map(e => e.offsetWidth)")
    assert widths[0] > widths[9] > 0


def test_a_search_can_be_filtered_and_explained(page, texts):
    open_tab(page, "search")
    Select(at(page, "index-b")).select_by_value("notes")
    at(page, "where").send_keys("year = 2003")
    at(page, "explain").click()
    at(page, "hybrid").click()
    search(page, texts[3])
    until(page, lambda: len(hits(page)) == 5)
    assert all("year: 2003" in hit for hit in hits(page))
    assert "~" in hits(page)[0]
    page.find_element(By.CSS_SELECTOR, "#search-result li button").click()
    until(page, lambda: texts[3] not in hits(page)[0])
    at(page, "where").send_keys(" and colour = 3")
    submit(page, "search-form")
    assert "colour" in message(page)


def test_nothing_is_shown_where_nothing_matches(page):
    open_tab(page, "search")
    at(page, "only-matches").click()
    search(page, "quarterly earnings of a semiconductor company")
    until(page, lambda: "No match." in at(page, "search-result").text)


def test_two_models_are_compared_without_labels(page):
    open_tab(page, "compare")
    at(page, "compare-sample").click()
    until(page, lambda: at(page, "compare-texts").get_attribute("value"))
    Select(at(page, "model-b")).select_by_value("small")
    submit(page, "compare-form")
    until(page, lambda: "95% interval" in at(page, "compare-result").text)
    assert "wordllama for these texts" in at(page, "compare-result").text
    at(page, "compare-texts").clear()
    at(page, "compare-texts").send_keys("too few")
    submit(page, "compare-form")
    assert "30" in message(page)


def test_the_state_of_the_server_is_shown(page):
    open_tab(page, "server")
    until(page, lambda: "--max-texts" in at(page, "server-result").text)
    for word in ("wordllama", "small", "notes", "short", "Running for"):
        assert word in at(page, "server-result").text
    assert " 0 minutes" not in at(page, "server-result").text
    classes = "return [...document.querySelectorAll('#server-result table')].map(table => [...table.rows].map(row =>"
    for rows in page.execute_script(classes + " [...row.cells].map(cell => cell.className)))"):
        assert all(row == rows[0] for row in rows)  # numbers stand under their heading
    at(page, "refresh").click()
    until(page, lambda: at(page, "refresh").is_enabled())


def test_tabs_are_used_with_the_keyboard(page):
    wait_for_sample(page)  # until it is there, its controls cannot be reached
    for before, key, name in (
        ("try", Keys.ARROW_RIGHT, "search"),
        ("search", Keys.END, "server"),
        ("server", Keys.ARROW_RIGHT, "try"),
        ("try", Keys.ARROW_LEFT, "server"),
        ("server", Keys.HOME, "try"),
    ):
        at(page, f"tab-{before}").send_keys(key)
        until(page, lambda name=name: page.execute_script("return document.activeElement.id") == f"tab-{name}")
        assert at(page, f"tab-{name}").get_attribute("aria-selected") == "true"
        assert at(page, name).is_displayed()
    reached = set()
    for _ in range(8):
        ActionChains(page).send_keys(Keys.TAB).perform()
        reached.add(page.switch_to.active_element.get_attribute("id"))
    assert {"erase", "strength", "dimensions", "save"} <= reached
    page.find_element(By.CSS_SELECTOR, "#own > summary").send_keys(Keys.ENTER)
    for _ in range(6):
        ActionChains(page).send_keys(Keys.TAB).perform()
        reached.add(page.switch_to.active_element.get_attribute("id"))
    assert {"try-texts", "try-model", "try-sample", "try-file"} <= reached


def test_every_control_has_a_name(page):
    unnamed = page.execute_script(
        "return [...document.querySelectorAll('input, select, textarea, button')]"
        ".filter(e => !e.labels?.length && !e.textContent.trim() && !e.ariaLabel).map(e => e.id)"
    )
    assert unnamed == []


def test_a_phone_scrolls_down_only(page, look):
    look(width=360)
    wait_for_sample(page)
    for name in ("try", "search", "compare", "server"):
        open_tab(page, name)
        assert page.execute_script("return document.documentElement.scrollWidth") <= 360


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_axe_finds_nothing(page, look, scheme, width):
    look(scheme=scheme, width=width)
    open_own(page)
    for name in ("try", "search", "compare", "server"):
        open_tab(page, name)
        if name == "search":
            search(page, "a man")
        page.execute_script(AXE.read_text())
        found = page.execute_async_script(
            "const done = arguments[0]; axe.run().then(({ violations }) => done(violations.map(({ id, nodes }) =>"
            " `${id}: ${nodes[0].html}`)))"
        )
        assert found == []


def test_dark_rooms_have_a_dark_page(page, look):
    def brightness():
        color = page.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")
        return sum(map(int, color.partition("(")[2].split(",")[:3]))

    light = brightness()
    look(scheme="dark")
    assert brightness() < 150 < 600 < light


def test_nothing_comes_from_the_network(page, address):
    page.get_log("performance")
    page.refresh()
    wait_for_sample(page)
    events = (json.loads(entry["message"])["message"] for entry in page.get_log("performance"))
    asked = {event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"}
    assert asked
    assert all(url.startswith(address) for url in asked)


def test_a_key_is_asked_for_and_kept_in_memory_alone(browser, look, running, wordllama):
    look()
    with running(create_app({"wordllama": wordllama}, keys=[KEY])) as port:
        browser.get(f"http://127.0.0.1:{port}/")
        until(browser, lambda: at(browser, "key").is_displayed())
        at(browser, "key-input").send_keys("a wrong key", Keys.ENTER)
        assert "not right" in message(browser)
        until(browser, lambda: at(browser, "key").is_displayed())
        at(browser, "key-input").send_keys(KEY, Keys.ENTER)
        open_own(browser)
        assert "wordllama" in at(browser, "try-model").text
        kept = browser.execute_script(
            "return JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])"
        )
        assert KEY not in kept
    at(browser, "try-sample").click()  # the server has gone
    assert "cannot be reached" in message(browser)
    browser.get_log("browser")
