// Two models on texts without labels.

import { get, post } from "./api.js";
import { at, during, element, fillSelect, linesOf, table } from "./dom.js";

const SAYS = { better: "is better than", worse: "is worse than", "cannot tell": "may be better or worse than" };

export function start() {
  at("compare-form").addEventListener("submit", (event) => {
    event.preventDefault();
    during(event.submitter ?? at("compare-texts"), compare);
  });
  at("compare-sample").addEventListener("click", (event) => during(event.target, async () => {
    const { texts, languages } = await post("/try", {});
    at("compare-texts").value = texts.filter((_, row) => languages[row] === "en").join("\n");
  }));
}

export async function show() {
  const { models } = await get("/status");
  const names = models.filter((model) => model.has_texts).map((model) => model.name);
  fillSelect(at("model-a"), names, at("model-a").value || names[0]);
  fillSelect(at("model-b"), names, at("model-b").value || names[1] || names[0]);
}

async function compare() {
  const [a, b] = [at("model-a").value, at("model-b").value];
  const answer = await post("/compare", { model_a: a, model_b: b, texts: linesOf(at("compare-texts").value) });
  const sign = (value) => `${value >= 0 ? "+" : ""}${value.toFixed(3)}`;
  at("compare-result").replaceChildren(
    element("p", { class: "verdict" }, `${b} ${SAYS[answer.verdict]} ${a} for these texts.`),
    table("Scores", ["model", "found again (mean reciprocal rank)"], [[`A: ${a}`, answer.score_a.toFixed(3)], [`B: ${b}`, answer.score_b.toFixed(3)]]),
    element("p", {}, `Difference ${sign(answer.difference)}, 95% interval ${sign(answer.low)} to ${sign(answer.high)}, ${answer.n_texts.toLocaleString("en")} texts.`),
  );
}
