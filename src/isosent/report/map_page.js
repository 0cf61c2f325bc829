(() => {
  const at = (name) => document.getElementById(name);
  const data = JSON.parse(at("data").textContent);
  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const rows = new Int32Array(bytes(data.rows).buffer);
  const near = new Int32Array(bytes(data.near).buffer);
  const n = rows.length, k = n ? near.length / n : 0;
  const codes = data.color?.codes ? bytes(data.color.codes) : null;
  const numbers = data.color?.numbers ? new Float64Array(bytes(data.color.numbers).buffer) : null;
  const number = new Intl.NumberFormat("en");
  const N_COLORS = 7, STEPS = 65536, CELLS = 128, RAMP = 32, MOST_LISTED = 100, REACH = 14, MOST_ZOOM = 400;

  const textOf = (i) => data.texts ? data.texts[i] : `row ${rows[i]}`;
  const time = (value) => new Date(Math.round(value * 864e5)).toISOString();
  const written = (value) => data.color.isDate ? time(value).slice(0, 10) : `${Number(value.toPrecision(6))}`;
  const valueOf = (i) => {
    if (codes) return codes[i] > data.color.n_names ? "" : data.color.labels[codes[i]][0];
    return Number.isNaN(numbers[i]) ? "" : written(numbers[i]);
  };
  const namedValue = (i) => data.color && valueOf(i) ? `${data.color.name}: ${valueOf(i)}` : "";

  // What is selected: rows that match the search, the categories and the lasso, all of these that are in use.
  const state = { query: null, categories: new Set(), lasso: null, active: null, nActive: n, hovered: -1, chosen: -1, isLasso: false };
  const isActive = (i) => state.active === null || state.active[i] === 1;
  let lower = null;

  function search(words) {
    if (!words) { state.query = null; return; }
    lower ??= Array.from({ length: n }, (_, i) => textOf(i).toLowerCase());
    state.query = Uint8Array.from(lower, (text) => text.includes(words));
  }

  function update() {
    const { query, categories, lasso } = state;
    state.active = null;
    state.nActive = n;
    if (query || categories.size || lasso) {
      state.active = new Uint8Array(n);
      state.nActive = 0;
      for (let i = 0; i < n; i++) {
        if ((!query || query[i]) && (!lasso || lasso[i]) && (!categories.size || categories.has(codes[i]))) {
          state.active[i] = 1;
          state.nActive++;
        }
      }
    }
    const isSome = state.active !== null;
    at("count").textContent = `${isSome ? `${number.format(state.nActive)} of ` : ""}${number.format(n)} points${isSome ? " selected" : ""}`;
    at("clear").disabled = !isSome && state.chosen < 0;
    at("save").disabled = !isSome || !state.nActive;
    list();
    redraw();
  }

  function button(i) {
    const item = document.createElement("li");
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = textOf(i);
    made.addEventListener("click", () => choose(i));
    made.addEventListener("pointerenter", () => hover(i));
    made.addEventListener("pointerleave", () => hover(-1));
    item.append(made);
    return item;
  }

  function list() {
    const isSome = state.active !== null;
    at("found").hidden = !isSome;
    at("hint").hidden = isSome || state.chosen >= 0;
    const first = [];
    for (let i = 0; isSome && i < n && first.length < MOST_LISTED; i++) if (state.active[i]) first.push(i);
    at("list").replaceChildren(...first.map(button));
    at("more").textContent = state.nActive > MOST_LISTED && isSome ? `and ${number.format(state.nActive - MOST_LISTED)} more, which the CSV has` : "";
  }

  function choose(i) {
    state.chosen = i;
    at("point").hidden = i < 0;
    if (i >= 0) {
      at("point-facts").textContent = [data.texts ? `row ${rows[i]}` : "", namedValue(i)].filter(Boolean).join("; ");
      at("point-text").textContent = textOf(i);
      const others = Array.from(near.subarray(i * k, (i + 1) * k)).filter((other) => other >= 0);
      at("near").replaceChildren(...others.map(button));
      document.querySelector(".side").scrollTop = 0;
    }
    at("hint").hidden = i >= 0 || state.active !== null;
    at("clear").disabled = i < 0 && state.active === null;
    redraw();
  }

  function hover(i, x, y) {
    if (i !== state.hovered) { state.hovered = i; views.forEach((view) => schedule(view, false)); }
    const tip = at("tip");
    tip.hidden = i < 0 || x === undefined;
    if (tip.hidden) return;
    const small = document.createElement("small");
    small.textContent = namedValue(i);
    tip.replaceChildren(textOf(i), ...(small.textContent ? [small] : []));
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 4))}px`;
    tip.style.top = `${y + 18 + height > innerHeight ? Math.max(4, y - height - 10) : y + 18}px`;
  }

  // Colors, as the style sheet has them in this light; the last ones are of other categories and of no value.
  let colors = [], ground = [], ink = "", faint = [];
  function readColors() {
    const probe = document.createElement("span");
    document.body.append(probe);
    const read = (name) => {
      probe.style.color = `var(--${name})`;
      return getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
    };
    ground = read("card");
    faint = read("faint");
    ink = `rgb(${read("ink").join()})`;
    const mark = read("mark");
    if (numbers) {
      const [low, high] = [read("ramp-low"), read("ramp-high")];
      colors = Array.from({ length: RAMP }, (_, step) => low.map((from, part) => from + (step / (RAMP - 1)) * (high[part] - from)));
      colors.push(mark);
    } else if (codes) {
      const base = Array.from({ length: N_COLORS }, (_, i) => read(`c${i}`));
      colors = Array.from({ length: data.color.n_names }, (_, i) => base[i % N_COLORS]);
      colors.push(mark, faint);
    } else {
      colors = [read("c0")];
    }
    probe.remove();
    redraw();
  }
  const [low, high] = data.color?.ends ?? [0, 0], perStep = RAMP / (high - low || 1);
  const colorOf = numbers
    ? (i) => Number.isNaN(numbers[i]) ? RAMP : Math.max(0, Math.min(RAMP - 1, Math.floor((numbers[i] - low) * perStep)))
    : codes ? (i) => codes[i] : () => 0;
  const shapeOf = codes ? (i) => Math.floor(codes[i] / N_COLORS) % 3 : () => 0;

  // A stamp is how much of each pixel around the middle a shape covers.
  const stamps = new Map();
  function stamp(shape, radius) {
    const key = `${shape} ${radius.toFixed(2)}`;
    if (stamps.has(key)) return stamps.get(key);
    const made = [], reach = Math.ceil(radius + 1);
    const isInside = [
      (x, y) => x * x + y * y <= radius * radius,
      (x, y) => Math.max(Math.abs(x), Math.abs(y)) <= 0.87 * radius,
      (x, y) => y <= 0.8 * radius && y >= -1.2 * radius + 1.75 * Math.abs(x),
    ][shape];
    for (let dy = -reach; dy <= reach; dy++) {
      for (let dx = -reach; dx <= reach; dx++) {
        let covered = 0;
        for (let s = 0; s < 16; s++) covered += isInside(dx - 0.375 + (s % 4) / 4, dy - 0.375 + Math.floor(s / 4) / 4);
        if (covered) made.push(dx, dy, covered / 16);
      }
    }
    stamps.set(key, made);
    return made;
  }

  class View {
    constructor(canvas, packed) {
      this.canvas = canvas;
      this.context = canvas.getContext("2d");
      this.places = new Uint16Array(bytes(packed).buffer);
      this.pointers = new Map();
      this.path = null;
      this.fillCells();
      this.reset();
      this.listen();
    }

    // Points by cells of a grid, so that the nearest to the pointer is found among few.
    fillCells() {
      const shift = STEPS / CELLS, counts = new Int32Array(CELLS * CELLS + 1);
      const cell = (i) => Math.floor(this.places[2 * i + 1] / shift) * CELLS + Math.floor(this.places[2 * i] / shift);
      for (let i = 0; i < n; i++) counts[cell(i) + 1]++;
      for (let c = 0; c < CELLS * CELLS; c++) counts[c + 1] += counts[c];
      this.starts = counts;
      this.members = new Int32Array(n);
      const next = counts.slice();
      for (let i = 0; i < n; i++) this.members[next[cell(i)]++] = i;
    }

    reset() { this.x = this.y = STEPS / 2; this.zoom = 1; schedule(this); }

    get ratio() { return Math.min(2, devicePixelRatio || 1); }
    get scale() { return this.zoom * Math.min(this.canvas.clientWidth, this.canvas.clientHeight) / STEPS; } // CSS pixels a step
    toPixel(i) {
      const { clientWidth, clientHeight } = this.canvas;
      return [(this.places[2 * i] - this.x) * this.scale + clientWidth / 2, (this.y - this.places[2 * i + 1]) * this.scale + clientHeight / 2];
    }
    toPlace(px, py) {
      const { clientWidth, clientHeight } = this.canvas;
      return [this.x + (px - clientWidth / 2) / this.scale, this.y - (py - clientHeight / 2) / this.scale];
    }

    move(dx, dy) { this.x -= dx / this.scale; this.y += dy / this.scale; schedule(this); }
    zoomBy(factor, px = this.canvas.clientWidth / 2, py = this.canvas.clientHeight / 2) {
      const [x, y] = this.toPlace(px, py);
      this.zoom = Math.max(0.5, Math.min(MOST_ZOOM, this.zoom * factor));
      const [newX, newY] = this.toPlace(px, py);
      this.x += x - newX;
      this.y += y - newY;
      schedule(this);
    }

    nearest(px, py, reach = REACH) {
      const [x, y] = this.toPlace(px, py), radius = reach / this.scale, shift = STEPS / CELLS;
      const clip = (value) => Math.max(0, Math.min(CELLS - 1, Math.floor(value / shift)));
      let best = -1, least = radius * radius;
      for (let row = clip(y - radius); row <= clip(y + radius); row++) {
        for (let column = clip(x - radius); column <= clip(x + radius); column++) {
          for (let m = this.starts[row * CELLS + column]; m < this.starts[row * CELLS + column + 1]; m++) {
            const i = this.members[m], dx = this.places[2 * i] - x, dy = this.places[2 * i + 1] - y;
            if (dx * dx + dy * dy <= least && isActive(i)) { best = i; least = dx * dx + dy * dy; }
          }
        }
      }
      return best;
    }

    draw() {
      const { canvas, context, ratio } = this;
      const width = Math.max(1, Math.round(canvas.clientWidth * ratio)), height = Math.max(1, Math.round(canvas.clientHeight * ratio));
      const radius = ratio * Math.min(7, (n < 2000 ? 3.6 : n < 20000 ? 2.4 : 1.5) * Math.max(1, this.zoom) ** 0.35);
      if (canvas.width !== width || canvas.height !== height) {
        canvas.width = width;
        canvas.height = height;
        this.image = context.createImageData(width, height);
        this.isStale = true;
      }
      if (this.isStale) this.drawPoints(width, height, radius);
      this.isStale = false;
      context.putImageData(this.image, 0, 0);
      this.drawMarks(radius / ratio);
    }

    // Points are blended into the image here, because the canvas takes longer for a hundred thousand circles.
    drawPoints(width, height, radius) {
      const { places, ratio } = this, pixels = this.image.data, words = new Uint32Array(pixels.buffer), { active } = state;
      words.fill((255 << 24) | (ground[2] << 16) | (ground[1] << 8) | ground[0]);
      const opacity = n < 2000 ? 0.9 : n < 20000 ? 0.75 : 0.6;
      const made = [0, 1, 2].map((shape) => stamp(shape, radius));
      const scale = this.scale * ratio, left = width / 2 - this.x * scale, top = height / 2 + this.y * scale, reach = Math.ceil(radius + 1);
      for (const pass of active === null ? [1] : [0, 1]) {
        for (let i = 0; i < n; i++) {
          if (active !== null && active[i] !== pass) continue;
          const px = Math.round(places[2 * i] * scale + left), py = Math.round(top - places[2 * i + 1] * scale);
          if (px < reach || py < reach || px >= width - reach || py >= height - reach) continue;
          const color = pass ? colors[colorOf(i)] : faint, red = color[0], green = color[1], blue = color[2];
          const shape = made[shapeOf(i)], length = shape.length;
          for (let s = 0; s < length; s += 3) {
            const o = 4 * ((py + shape[s + 1]) * width + px + shape[s]), share = opacity * shape[s + 2];
            pixels[o] += share * (red - pixels[o]);
            pixels[o + 1] += share * (green - pixels[o + 1]);
            pixels[o + 2] += share * (blue - pixels[o + 2]);
          }
        }
      }
    }

    // What the pointer and the keyboard mark, on top of the points.
    drawMarks(radius) {
      const { canvas, context } = this;
      context.save();
      context.scale(this.ratio, this.ratio);
      context.strokeStyle = ink;
      if (state.chosen >= 0) {
        context.lineWidth = 1;
        for (const other of near.subarray(state.chosen * k, (state.chosen + 1) * k)) if (other >= 0) this.line(state.chosen, other);
        this.ring(state.chosen, radius + 4, 2.5);
      }
      if (state.hovered >= 0) this.ring(state.hovered, radius + 3, 1.5);
      if (this.path) {
        context.setLineDash([5, 4]);
        context.beginPath();
        this.path.forEach(([x, y]) => context.lineTo(x, y));
        context.closePath();
        context.stroke();
      }
      if (this.hasCross) {
        const x = canvas.clientWidth / 2, y = canvas.clientHeight / 2;
        context.strokeRect(x - 8, y, 16, 0);
        context.strokeRect(x, y - 8, 0, 16);
      }
      context.restore();
    }

    line(from, to) {
      this.context.globalAlpha = 0.5;
      this.context.beginPath();
      this.context.moveTo(...this.toPixel(from));
      this.context.lineTo(...this.toPixel(to));
      this.context.stroke();
      this.context.globalAlpha = 1;
    }
    ring(i, radius, width) {
      this.context.lineWidth = width;
      this.context.beginPath();
      this.context.arc(...this.toPixel(i), radius, 0, 7);
      this.context.stroke();
    }

    select(isInside) {
      const lasso = new Uint8Array(n);
      for (let i = 0; i < n; i++) lasso[i] = isInside(this.places[2 * i], this.places[2 * i + 1]);
      state.lasso = lasso;
      update();
    }
    selectPath(path) {
      const corners = path.map(([x, y]) => this.toPlace(x, y));
      this.select((x, y) => {
        let isInside = false;
        for (let i = 0, j = corners.length - 1; i < corners.length; j = i++) {
          const [xi, yi] = corners[i], [xj, yj] = corners[j];
          if (yi > y !== yj > y && x < (xj - xi) * (y - yi) / (yj - yi) + xi) isInside = !isInside;
        }
        return isInside;
      });
    }
    selectView() {
      const [left, top] = this.toPlace(0, 0), [right, bottom] = this.toPlace(this.canvas.clientWidth, this.canvas.clientHeight);
      this.select((x, y) => x >= left && x <= right && y >= bottom && y <= top);
    }

    listen() {
      const { canvas, pointers } = this;
      const place = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
      canvas.addEventListener("pointerdown", (event) => {
        canvas.setPointerCapture(event.pointerId);
        pointers.set(event.pointerId, place(event));
        this.moved = 0;
        if ((state.isLasso || event.shiftKey) && pointers.size === 1) this.path = [place(event)];
        hover(-1);
      });
      canvas.addEventListener("pointermove", (event) => {
        const [x, y] = place(event), last = pointers.get(event.pointerId);
        if (!last) { hover(this.nearest(x, y), event.clientX, event.clientY); return; }
        const [dx, dy] = [x - last[0], y - last[1]];
        if (this.path) {
          this.path.push([x, y]);
          schedule(this, false);
        } else if (pointers.size === 2) {
          const [other] = [...pointers].filter(([name]) => name !== event.pointerId).map(([, where]) => where);
          const length = ([px, py]) => Math.hypot(px - other[0], py - other[1]) || 1;
          this.zoomBy(length([x, y]) / length(last), (x + other[0]) / 2, (y + other[1]) / 2);
          this.move(dx / 2, dy / 2);
        } else {
          this.move(dx, dy);
        }
        this.moved += Math.abs(dx) + Math.abs(dy);
        pointers.set(event.pointerId, [x, y]);
      });
      const end = (event) => {
        if (!pointers.delete(event.pointerId)) return;
        const path = this.path;
        this.path = null;
        if (path && path.length > 2) this.selectPath(path);
        else if (event.type === "pointerup" && this.moved < 5) {
          choose(this.nearest(...place(event)));
          if (event.pointerType === "touch") hover(state.chosen, event.clientX, event.clientY);
        }
      };
      canvas.addEventListener("pointerup", end);
      canvas.addEventListener("pointercancel", end);
      canvas.addEventListener("pointerleave", () => hover(-1));
      canvas.addEventListener("wheel", (event) => {
        event.preventDefault();
        hover(-1);
        this.zoomBy(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016)), ...place(event));
      }, { passive: false });
      canvas.addEventListener("dblclick", (event) => this.zoomBy(2, ...place(event)));
      canvas.addEventListener("keydown", (event) => {
        const [dx, dy] = [canvas.clientWidth / 10, canvas.clientHeight / 10];
        const actions = {
          ArrowLeft: () => this.move(dx, 0), ArrowRight: () => this.move(-dx, 0),
          ArrowUp: () => this.move(0, dy), ArrowDown: () => this.move(0, -dy),
          "+": () => this.zoomBy(1.4), "=": () => this.zoomBy(1.4), "-": () => this.zoomBy(1 / 1.4), 0: () => this.reset(),
          Enter: () => choose(this.nearest(canvas.clientWidth / 2, canvas.clientHeight / 2, canvas.clientWidth / 4)),
          Escape: () => choose(-1),
        };
        if (!(event.key in actions) || event.ctrlKey || event.metaKey || event.altKey) return;
        event.preventDefault();
        actions[event.key]();
      });
      canvas.addEventListener("focus", () => { lastView = this; this.hasCross = canvas.matches(":focus-visible"); schedule(this); });
      canvas.addEventListener("blur", () => { this.hasCross = false; schedule(this); });
      canvas.nextElementSibling.addEventListener("click", ({ target }) => {
        const factor = Number(target.dataset.zoom ?? NaN);
        lastView = this;
        if (factor) this.zoomBy(factor);
        else if (factor === 0) this.reset();
      });
      new ResizeObserver(() => schedule(this)).observe(canvas);
    }
  }

  const waiting = new Set();
  function schedule(view, isStale = true) {
    view.isStale ||= isStale;
    if (!waiting.size) requestAnimationFrame(() => { const views = [...waiting]; waiting.clear(); views.forEach((each) => each.draw()); });
    waiting.add(view);
  }
  let lastView;
  const views = [];
  function redraw() { views.forEach((view) => schedule(view)); }

  function legend() {
    if (!data.color) return;
    const box = at("legend"), title = document.createElement("b");
    title.textContent = data.color.name;
    box.setAttribute("aria-label", `Colors: ${data.color.name}`);
    box.hidden = false;
    if (numbers) {
      const ramp = document.createElement("span"), { ends, beyond } = data.color;
      const [first, last] = ends.map((end, place) => `${beyond[place] ? "≤≥"[place] : ""}${written(end)}`);
      ramp.className = "ramp";
      const missing = data.color.missing ? `; ${number.format(data.color.missing)} without a value` : "";
      box.append(title, first, ramp, `${last}${missing}`);
      return;
    }
    const outlines = ['<circle cx="6" cy="6" r="5"/>', '<rect x="1.5" y="1.5" width="9" height="9"/>', '<path d="M6 0.5 11.5 11H0.5z"/>'];
    const buttons = data.color.labels.map(([label, count], code) => {
      const made = document.createElement("button"), small = document.createElement("small"), icon = document.createElement("span");
      const name = code < data.color.n_names ? `c${code % N_COLORS}` : code === data.color.n_names ? "mark" : "faint";
      icon.innerHTML = `<svg viewBox="0 0 12 12" aria-hidden="true" fill="var(--${name})">${outlines[code < data.color.n_names ? Math.floor(code / N_COLORS) % 3 : 0]}</svg>`;
      made.type = "button";
      made.setAttribute("aria-pressed", "false");
      small.textContent = number.format(count);
      made.append(icon.firstChild, label, small);
      made.hidden = !count;
      made.addEventListener("click", () => {
        if (!state.categories.delete(code)) state.categories.add(code);
        made.setAttribute("aria-pressed", state.categories.has(code));
        update();
      });
      return made;
    });
    box.append(title, ...buttons);
  }

  function save() {
    const cell = (text) => /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    const lines = [["row", ...(data.texts ? ["text"] : []), ...(data.color ? [data.color.name] : [])].map(cell).join()];
    for (let i = 0; i < n; i++) {
      if (!isActive(i)) continue;
      const values = [`${rows[i]}`, ...(data.texts ? [textOf(i)] : []), ...(data.color ? [numbers ? data.color.values[i] : valueOf(i)] : [])];
      lines.push(values.map(cell).join());
    }
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([`${lines.join("\n")}\n`], { type: "text/csv" }));
    link.download = "selected.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  let typing;
  at("search").addEventListener("input", ({ target }) => {
    clearTimeout(typing);
    typing = setTimeout(() => { search(target.value.trim().toLowerCase()); update(); }, n > 20000 ? 150 : 0);
  });
  at("lasso").addEventListener("click", () => {
    state.isLasso = !state.isLasso;
    at("lasso").setAttribute("aria-pressed", state.isLasso);
    views.forEach((view) => view.canvas.classList.toggle("lasso", state.isLasso));
  });
  at("in-view").addEventListener("click", () => (lastView ?? views[0]).selectView());
  at("clear").addEventListener("click", () => {
    at("search").value = "";
    state.query = state.lasso = null;
    state.categories.clear();
    document.querySelectorAll("#legend [aria-pressed]").forEach((each) => each.setAttribute("aria-pressed", "false"));
    choose(-1);
    update();
    at("search").focus();
  });
  at("save").addEventListener("click", save);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", readColors);
  new MutationObserver(readColors).observe(document.documentElement, { attributeFilter: ["data-theme"] });

  legend();
  readColors();
  data.maps.forEach((packed, place) => views.push(new View(at(`map-${place}`), packed)));
  update();
})();
