// Texts before and after whitening. The server keeps rotated vectors; a slider asks for a scaling of them and a cut.

import { get, post, postFile, postForFile } from "./api.js";
import { at, during, element, fillSelect, linesOf, say } from "./dom.js";
import { drawLines, drawMatrix } from "./draw.js";

const MOST_QUERIES = 500;
let texts = null; // what the server said of the texts
let isDrawing = false, mustDrawAgain = false, asked = 0;

export function start() {
  at("try-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const lines = linesOf(at("try-texts").value);
    if (!lines.length) say("Paste at least three texts, one on each line.");
    else load(event.submitter, () => post("/try", { texts: lines, model: at("try-model").value }));
  });
  at("try-sample").addEventListener("click", (event) => load(event.target, askSample));
  at("erase").addEventListener("change", erase);
  at("try-file").addEventListener("change", (event) => loadFile(event.target.files[0]));
  const form = at("try-form");
  for (const [name, isOver] of [["dragover", true], ["dragleave", false], ["drop", false]]) {
    form.addEventListener(name, (event) => {
      event.preventDefault();
      form.classList.toggle("over", isOver);
      if (name === "drop") loadFile(event.dataTransfer.files[0]);
    });
  }
  for (const id of ["strength", "dimensions"]) at(id).addEventListener("input", redraw);
  at("query").addEventListener("change", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => texts && redraw());
  at("save").addEventListener("click", (event) => during(event.target, save));
}

export async function show() {
  const { models } = await get("/status");
  const names = models.filter((model) => model.has_texts).map((model) => model.name);
  fillSelect(at("try-model"), names, at("try-model").value || names[0]);
  if (!texts && names.length) await take(askSample);
}

const askSample = () => post("/try", { model: at("try-model").value, erase_language: at("erase").checked });

function loadFile(file) {
  if (!file) return;
  const query = new URLSearchParams({ name: file.name, model: at("try-model").value, column: at("try-column").value });
  load(at("try-file"), () => postFile(`/try/file?${query}`, file));
}

function load(control, ask) {
  during(control, async () => {
    await take(ask);
    at("verdict").focus({ preventScroll: true });
  });
}

// The switch is not disabled meanwhile, because it would lose the focus.
async function erase() {
  say(null);
  try {
    await take(askSample, Number(at("query").value));
  } catch (error) {
    at("erase").checked = !at("erase").checked;
    say(error.message);
  }
}

// What was asked for last is shown, even if an earlier answer comes later.
async function take(ask, query) {
  const number = ++asked;
  const answer = await ask();
  if (number !== asked) return;
  texts = answer;
  at("try-file").value = "";
  const isSample = texts.before.translated !== null;
  at("erase-row").hidden = at("translated").hidden = !isSample;
  if (!isSample) at("erase").checked = false;
  const shown = texts.changes ? "This is shown below." : isSample ? "" : "Below you see what full whitening would do.";
  at("verdict").textContent = `${texts.n_texts.toLocaleString("en")} texts. ${texts.verdict} ${shown}`;
  at("matrix-what").textContent = isSample
    ? "Cosines of six sentences in English, German, Spanish and French. A block of four on the diagonal is one sentence."
    : "Cosines of the first texts with each other.";
  at("strength").value = texts.changes ? texts.strength : isSample ? 0 : 1;
  at("dimensions").max = texts.rank;
  at("dimensions").value = texts.dimensions;
  at("query").replaceChildren(...texts.texts.slice(0, MOST_QUERIES).map((text, row) => element("option", { value: row }, text.slice(0, 80))));
  at("query").value = query ?? texts.query;
  at("try-result").hidden = false;
  await redraw();
}

const sliders = () => ({
  id: texts.id, strength: Number(at("strength").value), dimensions: Number(at("dimensions").value), query: Number(at("query").value),
});

// While an answer is on its way, further moves of a slider are gathered: only the last one is asked for.
async function redraw() {
  at("strength-value").textContent = Number(at("strength").value).toFixed(2);
  at("dimensions-value").textContent = at("dimensions").value;
  if (isDrawing) {
    mustDrawAgain = true;
    return;
  }
  isDrawing = true;
  try {
    do {
      mustDrawAgain = false;
      const wanted = sliders();
      const answer = await post("/try/draw", wanted);
      if (wanted.id === texts.id) draw(answer, wanted);
      else mustDrawAgain = true;
    } while (mustDrawAgain);
  } catch (error) {
    say(error.message);
  } finally {
    isDrawing = false;
  }
}

function draw(after, { strength, dimensions }) {
  const before = texts.before;
  drawMatrix(at("matrix-before"), before.matrix, `Cosines before; the mean of random pairs is ${before.mean.toFixed(2)}.`);
  drawMatrix(at("matrix-after"), after.matrix, `Cosines after; the mean of random pairs is ${after.mean.toFixed(2)}.`);
  drawLines(at("histogram"), [{ values: before.histogram, kind: "before" }, { values: after.histogram, kind: "after" }], {
    low: 0,
    high: Math.max(...before.histogram, ...after.histogram),
    ticks: [[0, "-1"], [0.5, "cosine 0"], [1, "1"]],
    label: `Cosines of random pairs: mean ${before.mean.toFixed(2)} before, ${after.mean.toFixed(2)} after.`,
  });
  drawSpectrum(strength, dimensions);
  if (after.translated !== null) {
    const share = (value) => `${Math.round(100 * value)}%`;
    at("translated").textContent = `Of the German, Spanish and French sentences, ${share(before.translated)} have their English translation among the 10 nearest before, ${share(after.translated)} now.`;
  }
  at("near").replaceChildren(...after.neighbours.map(({ row, before: was, after: is }) => element("tr", {},
    element("td", { class: "text" }, texts.texts[row]),
    ...[was.rank, `${is.rank}${arrow(was.rank, is.rank)}`, was.cosine.toFixed(2), is.cosine.toFixed(2)].map(
      (value) => element("td", { class: "number" }, String(value))))));
}

const arrow = (before, after) => (after < before ? ` \u2191${before - after}` : after > before ? ` \u2193${after - before}` : "");

function drawSpectrum(strength, dimensions) {
  const logs = texts.variances.map((value) => Math.log10(value));
  const after = logs.slice(0, dimensions).map((value) => value * (1 - strength));
  const shown = [...logs, ...after];
  const padded = logs.map((_, i) => after[i] ?? Math.min(...shown));
  drawLines(at("spectrum"), [{ values: logs, kind: "before" }, { values: padded, kind: "after" }], {
    low: Math.min(...shown),
    high: Math.max(...shown),
    ticks: [[0, "1"], [1, `${logs.length}`]],
    label: `Variance along ${logs.length} directions before; ${dimensions} are kept.`,
  });
}

async function save() {
  const file = await postForFile("/try/model", sliders());
  const link = element("a", { href: URL.createObjectURL(file), download: "isosent-model.zip" });
  link.click();
  URL.revokeObjectURL(link.href);
}
