// Figures: a matrix of cosines on a canvas, lines in an SVG.

const WIDTH = 420, HEIGHT = 200, LEFT = 12, RIGHT = 408, TOP = 8, BOTTOM = 176;

// Cosines from 0 to 1 become darker; below 0 nothing is drawn.
export function drawMatrix(canvas, matrix, label) {
  const n = matrix.length;
  canvas.width = canvas.height = n;
  const [red, green, blue] = getComputedStyle(canvas).color.match(/\d+/g).map(Number);
  const image = new ImageData(n, n);
  matrix.flat().forEach((cosine, i) => image.data.set([red, green, blue, 255 * Math.max(0, Math.min(1, cosine))], 4 * i));
  canvas.getContext("2d").putImageData(image, 0, 0);
  canvas.setAttribute("aria-label", label);
}

function svg(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// Lines over the same horizontal axis; each line is {values, kind}, and ticks are [place from 0 to 1, text].
export function drawLines(figure, lines, { low, high, ticks, label }) {
  const x = (place) => LEFT + place * (RIGHT - LEFT);
  const y = (value) => BOTTOM - ((value - low) / (high - low || 1)) * (BOTTOM - TOP);
  const paths = lines.map(({ values, kind }) => svg("polyline", {
    class: `line-${kind}`,
    points: values.map((value, i) => `${x((i + 0.5) / values.length).toFixed(1)},${y(value).toFixed(1)}`).join(" "),
  }));
  const axis = svg("line", { class: "axis", x1: LEFT, x2: RIGHT, y1: BOTTOM, y2: BOTTOM });
  const texts = ticks.map(([place, text]) => svg("text", {
    class: "tick", x: x(place), y: HEIGHT - 6, "text-anchor": place === 0 ? "start" : place === 1 ? "end" : "middle",
  }, text));
  figure.replaceChildren(axis, ...paths, ...texts);
  figure.setAttribute("aria-label", label);
}
