// The tabs, and the key.

import { onKeyNeeded, setKey } from "./api.js";
import { at, say } from "./dom.js";
import * as compare from "./compare.js";
import * as search from "./search.js";
import * as server from "./server.js";
import * as tryout from "./try.js";

const PAGES = { try: tryout, search, compare, server };
const tabs = [...document.querySelectorAll("[role=tab]")];
let shown = null;

async function open(name) {
  shown = name;
  for (const tab of tabs) {
    const isChosen = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", isChosen);
    tab.tabIndex = isChosen ? 0 : -1;
    at(tab.getAttribute("aria-controls")).hidden = !isChosen;
  }
  say(null);
  try {
    await PAGES[name].show();
  } catch (error) {
    say(error.message);
  }
}

const named = () => (PAGES[location.hash.slice(1)] ? location.hash.slice(1) : "try");

// Each tab has an address, so that links and the buttons of the browser lead to it. Setting location.hash would take the
// focus from the tab.
function go(name) {
  if (name !== named()) history.pushState(null, "", `#${name}`);
  open(name);
}

for (const [number, tab] of tabs.entries()) {
  tab.addEventListener("click", () => go(tab.getAttribute("aria-controls")));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const next = { Home: 0, End: tabs.length - 1 }[event.key] ?? (step && (number + step + tabs.length) % tabs.length);
    if (next === undefined) return;
    event.preventDefault();
    tabs[next].focus();
    tabs[next].click();
  });
}

onKeyNeeded(() => {
  at("key").hidden = false;
  at("key-input").focus();
});

at("key").addEventListener("submit", (event) => {
  event.preventDefault();
  setKey(at("key-input").value);
  at("key").hidden = true;
  at("key-input").value = "";
  open(shown);
});

for (const page of Object.values(PAGES)) page.start();
window.addEventListener("hashchange", () => open(named()));
open(named());
