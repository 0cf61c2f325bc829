"""Pictures of the web page and of the report of inspect, light and dark, by headless Chromium.

Usage: python bench/screens.py [--output docs/figures]. Needs the extras search, serve and test, chromium, chromedriver.
All texts come with isosent. Each picture has 48 colors, so that it stays small.
"""

import argparse
import io
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.request import urlopen

from PIL import Image
from selenium.common.exceptions import WebDriverException
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

from isosent.demo import write_texts

N_COLORS = 48
QUERY = "Er ist allergisch gegen Nüsse."
COMMANDS = (
    "inspect texts.txt -o report.html",
    "fit pool.csv --erase lang -o model",
    "index pool.csv -m wordllama -o wordllama-index",
    "index pool.csv -m model -o erased-index",
)


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if result := condition():
                return result
        except (OSError, WebDriverException):  # not there yet
            pass
        time.sleep(0.1)
    raise SystemExit("the page did not come")


def look(browser, theme, width, height):
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": theme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def take(browser, path):
    time.sleep(0.5)
    image = Image.open(io.BytesIO(browser.get_screenshot_as_png())).convert("RGB")
    image.quantize(N_COLORS, dither=Image.Dither.NONE).save(path, optimize=True)
    print(path.name, path.stat().st_size)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "docs" / "figures")
    output = parser.parse_args().output.resolve()
    with tempfile.TemporaryDirectory() as folder:
        write_texts(folder)
        isosent = [sys.executable, "-m", "isosent"]
        for command in COMMANDS:
            subprocess.run([*isosent, *command.split()], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        serve = [*isosent, "serve", "wordllama", "wordllama-index", "erased-index", "--port", str(port)]
        server = subprocess.Popen(serve, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        options = ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for flag in ("headless=new", "no-sandbox", "disable-gpu", "hide-scrollbars", f"user-data-dir={folder}/profile"):
            options.add_argument(f"--{flag}")
        browser = Chrome(options, Service(shutil.which("chromedriver")))
        try:
            address = f"http://127.0.0.1:{port}/"
            until(lambda: urlopen(f"{address}ready").status == 200)
            for theme in ("light", "dark"):
                look(browser, theme, 900, 900)
                browser.get(address)
                until(lambda: "%" in browser.find_element(By.ID, "translated").text)
                browser.find_element(By.ID, "erase").click()
                take(browser, output / f"page_{theme}.png")
                look(browser, theme, 1160, 780)
                browser.get(f"{address}#search")
                browser.refresh()
                until(lambda: browser.find_element(By.ID, "search-query").is_displayed())
                browser.find_element(By.ID, "search-query").send_keys(QUERY)
                browser.find_element(By.CSS_SELECTOR, "#search-form button.main, #search button.main").click()
                until(lambda: browser.find_elements(By.CSS_SELECTOR, "#search-result li"))
                take(browser, output / f"search_{theme}.png")
                look(browser, theme, 900, 900)
                browser.get(f"file://{folder}/report.html")
                take(browser, output / f"inspect_{theme}.png")
        finally:
            browser.quit()
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
