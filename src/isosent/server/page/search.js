// One query in two indexes, side by side.

import { get, post } from "./api.js";
import { at, during, element, fillSelect, percent } from "./dom.js";

const FALSE_POSITIVES = 0.01;
const KNOWN = ["rank", "id", "score", "share", "text", "words"];

export function start() {
  at("search-form").addEventListener("submit", (event) => {
    event.preventDefault();
    during(event.submitter ?? at("search-query"), () => run({ query: at("search-query").value }));
  });
}

export async function show() {
  const { models } = await get("/status");
  const names = models.filter((model) => model.rows !== null).map((model) => model.name);
  at("no-index").hidden = names.length > 0;
  at("search-form").hidden = !names.length;
  fillSelect(at("index-a"), names, at("index-a").value || names[0]);
  fillSelect(at("index-b"), names, at("index-b").value || names[1] || names[0]);
}

async function run(asked) {
  const body = { ...asked, k: 10, where: at("where").value || null };
  if (asked.query !== undefined) {
    body.hybrid = at("hybrid").checked;
    body.explain = at("explain").checked;
    body.false_positives = at("only-matches").checked ? FALSE_POSITIVES : null;
  }
  const indexes = [...new Set([at("index-a").value, at("index-b").value])];
  const answers = await Promise.all(indexes.map((index) => post("/search", { ...body, index })));
  at("search-result").replaceChildren(...answers.map(column));
}

function column({ index, hits }) {
  if (!hits.length) return element("div", {}, element("h2", {}, index), element("p", {}, "No match."));
  const share = hits[0].share ?? null;
  const sentence = share === null ? "" : `The first is closer than ${percent(share)} of random pairs of this index.`;
  return element("div", {}, element("h2", {}, index), element("p", { class: "hint" }, sentence),
    element("ol", { class: "hits" }, ...hits.map((hit) => element("li", {}, ...parts(hit)))));
}

// A cosine from 0 to 1 as a bar; the number beside it is for those who do not see it.
function bar(cosine) {
  const filled = element("span");
  filled.style.width = `${100 * Math.max(0, Math.min(1, cosine))}%`;
  return element("span", { class: "bar", "aria-hidden": "true" }, filled);
}

function parts(hit) {
  const others = Object.entries(hit).filter(([name, value]) => !KNOWN.includes(name) && value !== null);
  const facts = [
    bar(hit.score),
    element("span", {}, `cosine ${hit.score.toFixed(3)}`),
    element("span", {}, `id ${hit.id}`),
    ...others.map(([name, value]) => element("span", {}, `${name}: ${value}`)),
    element("button", { type: "button", onclick: (event) => during(event.target, () => run({ like: hit.id })) }, "More like this"),
  ];
  const words = (hit.words ?? []).map(({ a, b, contribution }) => `${a} ~ ${b} ${contribution.toFixed(2)}`).join(", ");
  return [
    element("div", {}, hit.text ?? `row ${hit.id}`),
    element("div", { class: "facts" }, ...facts),
    ...(words ? [element("div", { class: "hint" }, words)] : []),
  ];
}
