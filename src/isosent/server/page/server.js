// Models, queues and limits.

import { get } from "./api.js";
import { at, during, element, table } from "./dom.js";

export function start() {
  at("refresh").addEventListener("click", (event) => during(event.target, show));
}

export async function show() {
  const { models, limits, started_at: startedAt } = await get("/status");
  const minutes = Math.max(0, Math.round((Date.now() / 1000 - startedAt) / 60));
  at("server-result").replaceChildren(
    element("p", {}, `Running for ${minutes.toLocaleString("en")} ${minutes === 1 ? "minute" : "minutes"}.`),
    element("h2", {}, "Models"),
    table(["name", "dimensions", "rows of the index", "tokens waiting", "tokens per second", "space"], models.map((model) => [
      model.name, model.dimensions, model.rows ?? "", model.queued_tokens, model.tokens_per_s, model.space.slice(0, 12),
    ])),
    element("h2", {}, "Limits"),
    table(["limit", "value", "option"], limits.map((limit) => [limit.meaning, limit.value, limit.flag])),
  );
}
