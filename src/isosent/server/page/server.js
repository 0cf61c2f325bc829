// Models, queues and limits.

import { get } from "./api.js";
import { at, during, element, table } from "./dom.js";

export function start() {
  at("refresh").addEventListener("click", (event) => during(event.target, show));
}

export async function show() {
  const { models, limits, started_at: startedAt } = await get("/status");
  at("server-result").replaceChildren(
    element("p", {}, `Running for ${duration(Date.now() / 1000 - startedAt)}.`),
    element("h2", {}, "Models"),
    table("Models", ["name", "dimensions", "rows of the index", "tokens waiting", "tokens per second", "space"], models.map((model) => [
      model.name, model.dimensions, model.rows ?? "", model.queued_tokens, model.tokens_per_s, model.space.slice(0, 12),
    ])),
    element("h2", {}, "Limits"),
    table("Limits", ["value", "limit", "option"], limits.map((limit) => [limit.value, limit.meaning, limit.flag])),
  );
}

function duration(seconds) {
  for (const [name, length] of [["day", 86400], ["hour", 3600], ["minute", 60]]) {
    const count = Math.floor(seconds / length);
    if (count) return `${count.toLocaleString("en")} ${name}${count === 1 ? "" : "s"}`;
  }
  return "less than a minute";
}
