// Small helpers for the page. Texts are set as text, never as HTML.

export const at = (id) => document.getElementById(id);

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes)) {
    if (attribute.startsWith("on")) made.addEventListener(attribute.slice(2), value);
    else if (value !== false) made.setAttribute(attribute, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

export function say(message) {
  at("message").hidden = !message;
  at("message").textContent = message ?? "";
}

// Runs an action of a control: the control waits meanwhile, and what goes wrong is said.
export async function during(control, action) {
  say(null);
  control.disabled = true;
  try {
    await action();
  } catch (error) {
    say(error.message);
  } finally {
    control.disabled = false;
  }
}

export const linesOf = (text) => text.split("\n").map((line) => line.trim()).filter((line) => line);

// Rounded down, and never 100%: some pairs were measured, not all.
export const percent = (share) => `${(Math.min(9999, Math.floor(1e4 * share)) / 100).toFixed(share > 0.99 ? 2 : 0)}%`;

export function fillSelect(select, names, chosen) {
  select.replaceChildren(...names.map((name) => element("option", { value: name, selected: name === chosen }, name)));
}

// A table in a box that scrolls, also by the keyboard.
export function table(label, columns, rows) {
  const cell = (name, value, number) => element(name, { class: number ? "number" : "", scope: name === "th" ? "col" : false }, value);
  const isNumber = columns.map((_, i) => rows.some((row) => typeof row[i] === "number") && rows.every((row) => row[i] === "" || typeof row[i] === "number"));
  return element("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": label }, element("table", {},
    element("thead", {}, element("tr", {}, ...columns.map((name, i) => cell("th", name, isNumber[i])))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((value, i) => cell("td", typeof value === "number" ? value.toLocaleString("en") : value ?? "", isNumber[i])))))));
}
