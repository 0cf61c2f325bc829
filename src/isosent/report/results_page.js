"use strict";
(() => {
  const table = document.querySelector("table.scores");
  if (table) {
    const body = table.tBodies[0];
    const [groups, tasks] = table.tHead.rows;
    const heads = [groups.cells[0], ...tasks.cells];
    const said = document.getElementById("sorted");
    const score = (row, column) => {
      const written = row.cells[column].dataset.score;
      return written === undefined ? NaN : Number(written);
    };
    const compare = (column, sign) => (a, b) => {
      if (column === 0) return sign * a.cells[0].textContent.localeCompare(b.cells[0].textContent);
      const [x, y] = [score(a, column), score(b, column)];
      return Number.isNaN(x) - Number.isNaN(y) || sign * (x - y) || 0;
    };
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const first = column === 0 ? "ascending" : "descending";
      const other = column === 0 ? "descending" : "ascending";
      const order = head.getAttribute("aria-sort") === first ? other : first;
      heads.forEach((each) => each.setAttribute("aria-sort", each === head ? order : "none"));
      body.append(...[...body.rows].sort(compare(column, order === "ascending" ? 1 : -1)));
      said.textContent = `Sorted by ${head.querySelector("button").textContent}, ${order}.`;
    }));
  }

  const folded = [...document.querySelectorAll("#small-print details")];
  const widthOfPaper = 1000;
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = folded.filter((each) => !each.open);
    closed.forEach((each) => { each.open = true; });
    document.querySelectorAll("table").forEach((each) => {
      each.style.setProperty("--fit", Math.min(1, widthOfPaper / each.offsetWidth));
    });
  });
  addEventListener("afterprint", () => closed.forEach((each) => { each.open = false; }));
})();
