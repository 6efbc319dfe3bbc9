// Figures as instruments: panels zoom and keep their axes and rows, legends hide series, points
// tell their numbers. The SVG carries what it needs as attributes (ipu/run/pages/marking.py).
// A figure that has the focus takes the wheel and the keys; else the page does.
const SVG = "http://www.w3.org/2000/svg";
const figures = [...document.querySelectorAll(".zoom")].filter((box) => box.querySelector("svg"));

const make = (name, attributes, parent) => {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return parent ? parent.appendChild(node) : node;
};
const clamp = (x, low, high) => Math.min(Math.max(x, low), high);
const numbers = (text) => (text ? text.split(" ").map((word) => (word === "nan" ? NaN
  : word.endsWith("inf") ? (word[0] === "-" ? -Infinity : Infinity) : Number(word))) : []);
const minus = (text) => text.replace(/-/g, "\u2212");

// One direction of a panel: which numbers stand where, and which part of them is seen.
class Axis {
  constructor(name, group) {
    const [scale, low, high] = group.dataset[name].split(" ");
    const [x, y, width, height] = numbers(group.dataset.box);
    this.name = name;
    this.label = group.dataset[`${name}Label`];
    this.keepsTicks = group.dataset[`${name}Ticks`] === "fixed";
    this.scale = scale;
    this.canZoom = scale === "linear" || scale === "log";
    [this.start, this.length] = name === "x" ? [x, width] : [y + height, -height];
    [this.low, this.high] = [Number(low), Number(high)].map((v) => this.place(v));
    this.seen = [0, 1];
  }
  place(value) { return this.scale === "log" ? Math.log10(value) : value; }
  value(place) { return this.scale === "log" ? 10 ** place : place; }
  // Shares of the whole axis, 0 at its low end.
  share(value) { return (this.place(value) - this.low) / (this.high - this.low); }
  get factor() { return 1 / (this.seen[1] - this.seen[0]); }
  // Where a share of the axis stands in the picture now.
  spot(share) { return this.start + this.length * (share - this.seen[0]) * this.factor; }
  shareAt(spot) { return this.seen[0] + (spot - this.start) / this.length / this.factor; }
  get ends() { return this.seen.map((s) => this.low + s * (this.high - this.low)); }

  // Sets what is seen, inside of the axis and at most 1000 times as large; tells of a change.
  show(first, last) {
    if (!this.canZoom) return false;
    const width = clamp(last - first, 1e-3, 1);
    first = clamp(first + (last - first - width) / 2, 0, 1 - width);
    if (Math.abs(first - this.seen[0]) + Math.abs(width - 1 / this.factor) < 1e-12) return false;
    this.seen = [first, first + width];
    return true;
  }
  zoom(factor, about = 0.5) {
    const [first, last] = this.seen;
    const fixed = first + about * (last - first);
    return this.show(fixed - (fixed - first) / factor, fixed + (last - fixed) / factor);
  }
  move(part) {
    const by = part * (this.seen[1] - this.seen[0]);
    return this.show(this.seen[0] + by, this.seen[1] + by);
  }
  follow(other) {
    if (this.scale !== other.scale) return false;
    return this.show(...other.ends.map((place) => (place - this.low) / (this.high - this.low)));
  }
  ticks() {
    const [low, high] = this.ends.slice().sort((a, b) => a - b);
    if (this.scale === "log" && high - low >= 1) {
      const step = Math.ceil((high - low) / 7);
      const first = Math.ceil(low / step) * step;
      return Array.from({ length: Math.floor((high - first) / step) + 1 },
        (_, i) => 10 ** (first + i * step));
    }
    const [a, b] = [this.value(low), this.value(high)];
    const rough = (b - a) / 5;
    const ten = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].find((m) => m * ten >= rough) * ten;
    const first = Math.ceil(a / step);
    return Array.from({ length: Math.floor(b / step) - first + 1 }, (_, i) =>
      Number(((first + i) * step).toPrecision(12)));
  }
}

class Panel {
  constructor(group, box) {
    this.group = group;
    this.box = box;
    this.x = new Axis("x", group);
    this.y = new Axis("y", group);
    this.title = group.dataset.title;
    const [x, y, width, height] = numbers(group.dataset.box);
    this.edges = { x, y, width, height };
    const clip = make("clipPath", { id: `clip-${Panel.number = (Panel.number || 0) + 1}` }, group);
    make("rect", this.edges, clip);
    this.window = make("g", {});
    this.scene = make("g", { class: "scene" }, this.window);
    this.clip = `url(#${clip.id})`;
    const content = [...group.children].filter((node) => node !== clip &&
      !node.matches(".fixed, .axis, .panel"));
    if (content.length) content[0].before(this.window);
    this.scene.append(...content);
    this.clipped = [...this.scene.querySelectorAll("[clip-path]")]
      .map((node) => [node, node.getAttribute("clip-path")]);
    this.upright = [...this.scene.querySelectorAll("text, use")]
      .filter((node) => node.localName === "text" || !node.closest(".drawn")).map(wrapped);
    this.axes = [...group.children].filter((node) => node.matches(".axis"))
      .map((node) => new Ticks(node, this));
    this.series = [...group.querySelectorAll(".series")];
    this.ring = make("circle", { r: 4, class: "ring", visibility: "hidden" }, group);
  }
  get isWhole() { return this.x.factor === 1 && this.y.factor === 1; }

  draw() {
    const [fx, fy] = [this.x.factor, this.y.factor];
    const origin = [this.x.spot(0) - fx * this.x.start, this.y.spot(0) - fy * this.y.start];
    const whole = this.isWhole;
    this.scene.setAttribute("transform", whole ? ""
      : `translate(${origin}) scale(${fx} ${fy})`);
    this.group.classList.toggle("zoomed", !whole);
    for (const [node, clip] of this.clipped) {
      if (whole) node.setAttribute("clip-path", clip); else node.removeAttribute("clip-path");
    }
    if (whole) this.window.removeAttribute("clip-path");
    else this.window.setAttribute("clip-path", this.clip);
    for (const { holder, x, y } of this.upright) {
      holder.setAttribute("transform", whole ? ""
        : `translate(${x} ${y}) scale(${1 / fx} ${1 / fy}) translate(${-x} ${-y})`);
    }
    for (const ticks of this.axes) ticks.draw();
    this.ring.setAttribute("visibility", "hidden");
    // A finger scrolls the page, or moves a detail.
    this.box.querySelector("svg").style.touchAction = this.box.panels.every((p) => p.isWhole)
      ? "" : "none";
  }
  holds(px, py) {
    const { x, y, width, height } = this.edges;
    return px >= x && px <= x + width && py >= y && py <= y + height;
  }
  // Points of series that are shown and seen, with where they stand.
  points() {
    return this.series.filter((node) => !node.classList.contains("off")).flatMap((node) => {
      node.told ??= [numbers(node.dataset.pointsX), numbers(node.dataset.pointsY)];
      const [xs, ys] = node.told;
      return xs.map((x, i) => ({ x, y: ys[i], name: node.dataset.name,
        px: this.x.spot(this.x.share(x)), py: this.y.spot(this.y.share(ys[i])) }));
    }).filter((p) => this.holds(p.px, p.py));
  }
  nearest(px, py) {
    let best = null, least = 24 ** 2;
    for (const point of this.points()) {
      const distance = (point.px - px) ** 2 + (point.py - py) ** 2;
      if (distance < least) [best, least] = [point, distance];
    }
    return best;
  }
  tell(point) {
    this.ring.setAttribute("visibility", point ? "visible" : "hidden");
    if (!point) return "";
    this.ring.setAttribute("cx", point.px);
    this.ring.setAttribute("cy", point.py);
    const words = [this.x, this.y].filter((axis) => axis.scale !== "rows").map((axis) => {
      const value = point[axis.name];
      return `${axis.label || axis.name}: ${minus(String(value))} (${code(value)})`;
    });
    return [point.name, ...words].filter(Boolean).join(" \u00b7 ");
  }
}

// The ticks of one axis: the figure's own while all is seen, new ones for a detail.
class Ticks {
  constructor(group, panel) {
    this.group = group;
    this.panel = panel;
    this.axis = panel[group.dataset.axis];
    this.given = [...group.children].filter((node) => node.id.includes("tick_"));
    this.others = [...group.children].filter((node) => !node.id.includes("tick_") &&
      !node.matches(".axis-label"));
    const mark = this.given.map((node) => node.querySelector("use")).find(Boolean);
    this.hasLabels = this.given.some((node) => node.textContent.trim());
    this.at = mark ? Number(mark.getAttribute(this.axis.name === "x" ? "y" : "x")) : null;
    this.made = make("g", { class: "ticks" }, group);
  }
  draw() {
    const whole = this.axis.factor === 1;
    this.made.replaceChildren();
    for (const node of this.others) node.style.display = whole ? "" : "none";
    for (const node of this.given) this.place(node, whole);
    if (whole || this.axis.keepsTicks) return;
    for (const value of this.axis.ticks()) this.add(value);
  }
  // A tick with a name moves with its place; others give way to new ones.
  place(node, whole) {
    const mark = node.querySelector("use");
    node.style.display = whole || (this.axis.keepsTicks && mark) ? "" : "none";
    node.removeAttribute("transform");
    if (whole || !this.axis.keepsTicks || !mark) return;
    const isX = this.axis.name === "x";
    const before = Number(mark.getAttribute(isX ? "x" : "y"));
    const share = (before - this.axis.start) / this.axis.length;
    const now = this.axis.spot(share);
    const isSeen = share >= this.axis.seen[0] && share <= this.axis.seen[1];
    node.style.display = isSeen ? "" : "none";
    node.setAttribute("transform", isX ? `translate(${now - before} 0)`
      : `translate(0 ${now - before})`);
  }
  add(value) {
    const { x, y, width, height } = this.panel.edges;
    const spot = this.axis.spot(this.axis.share(value));
    const isX = this.axis.name === "x";
    make("path", { class: "gridline",
      d: isX ? `M${spot} ${y}v${height}` : `M${x} ${spot}h${width}` }, this.made);
    if (!this.hasLabels) return;
    const at = this.at ?? (isX ? y + height : x);
    const isFar = isX ? at < y + height / 2 : at > x + width / 2;
    const place = isX ? { x: spot, y: isFar ? at - 8 : at + 17, "text-anchor": "middle" }
      : { x: isFar ? at + 7 : at - 7, y: spot + 3.5, "text-anchor": isFar ? "start" : "end" };
    make("text", { ...place, class: "tick" }, this.made).textContent = written(value);
  }
}

// A group around a node, which keeps its size about its own place.
function wrapped(node) {
  const holder = make("g", {});
  const inner = node.querySelector("[x]") || node;
  node.before(holder);
  holder.append(node);
  let [x, y] = [Number(inner.getAttribute("x")), Number(inner.getAttribute("y"))];
  if (!inner.hasAttribute("x")) {
    const moved = /translate\(([-\d.e]+)[ ,]+([-\d.e]+)/.exec(node.getAttribute("transform") || "");
    if (moved) [x, y] = [Number(moved[1]), Number(moved[2])];
  }
  return { holder, x, y };
}

// A tick's number, as people write it.
function written(value) {
  const size = Math.abs(value);
  const text = size && (size < 1e-4 || size >= 1e6) ? value.toExponential().replace("e+", "e")
    : String(Number(value.toPrecision(12)));
  return minus(text);
}

// The code of a number in the narrowest of three formats that hold it exactly.
function code(value) {
  const view = new DataView(new ArrayBuffer(8));
  const hex = (bits, digits) => `0x${bits.toString(16).padStart(digits, "0")}`;
  if (Number.isNaN(value)) return "NaN";
  view.setFloat32(0, value);
  const single = view.getUint32(0);
  if (!Object.is(view.getFloat32(0), value)) {
    view.setFloat64(0, value);
    return `${hex(view.getBigUint64(0), 16)} in binary64`;
  }
  const sign = (single >>> 31) << 15, size = Math.abs(value), quantum = size * 2 ** 24;
  if (size === Infinity) return `${hex(sign | 0x7c00, 4)} in binary16`;
  if (size < 2 ** -14 && Number.isInteger(quantum)) return `${hex(sign | quantum, 4)} in binary16`;
  const exponent = ((single >>> 23) & 0xff) - 127;
  if (size >= 2 ** -14 && exponent <= 15 && !(single & 0x1fff)) {
    return `${hex(sign | ((exponent + 15) << 10) | ((single & 0x7fffff) >>> 13), 4)} in binary16`;
  }
  return `${hex(single, 8)} in binary32`;
}

// All panels that show the same numbers along an axis, in this figure and in its twins.
const panels = [];
const linked = (panel, name) => panels.filter((other) => other !== panel &&
  other.box.dataset.figure === panel.box.dataset.figure &&
  (other.group.dataset.number === panel.group.dataset.number ||
    (name === "x" && other.group.dataset.link === panel.group.dataset.link)));
// Does something to the axes of some panels, and lets the linked ones follow; tells of a change.
function change(movers, act) {
  const touched = new Set(), followed = new Set();
  for (const panel of movers) {
    for (const name of ["x", "y"]) {
      if (followed.has(panel[name]) || !act(panel[name], name)) continue;
      touched.add(panel);
      for (const other of linked(panel, name)) {
        followed.add(other[name]);
        if (other[name].follow(panel[name])) touched.add(other);
      }
    }
  }
  for (const panel of touched) panel.draw();
  return touched.size > 0;
}

function toggle(box, name) {
  const isOff = !box.off.has(name);
  if (isOff) box.off.add(name); else box.off.delete(name);
  for (const node of box.querySelectorAll(".series, .key")) {
    if (node.dataset.name === name) node.classList.toggle("off", isOff);
  }
  for (const node of box.querySelectorAll(".key[role]")) {
    if (node.dataset.name === name) node.setAttribute("aria-pressed", String(!isOff));
  }
}

for (const box of figures) {
  const svg = box.querySelector("svg"), told = box.querySelector(".told");
  box.off = new Set();
  box.panels = [...svg.querySelectorAll(".panel")].map((group) => new Panel(group, box));
  panels.push(...box.panels);
  let current = box.panels[0], held = null, spot = -1;

  const point = (event) => {
    const place = new DOMPoint(event.clientX, event.clientY);
    const there = place.matrixTransform(svg.getScreenCTM().inverse());
    return [there.x, there.y];
  };
  const under = (place) => box.panels.findLast((panel) => panel.holds(...place));
  const all = (act) => change(box.panels, act);
  const tell = (panel, place) => { if (told) told.textContent = panel ? panel.tell(place) : ""; };
  const step = (by) => {
    const points = current?.points() ?? [];
    if (!points.length) return false;
    spot = (spot + by + points.length) % points.length;
    tell(current, points[spot]);
    return true;
  };
  const along = (name, part) => all((axis) => axis.name === name && axis.move(part));
  const keys = {
    "+": () => all((axis) => axis.zoom(1.5)), "=": () => all((axis) => axis.zoom(1.5)),
    "-": () => all((axis) => axis.zoom(1 / 1.5)), "0": () => all((axis) => axis.show(0, 1)),
    ArrowLeft: () => along("x", -1 / 8), ArrowRight: () => along("x", 1 / 8),
    ArrowUp: () => along("y", 1 / 8), ArrowDown: () => along("y", -1 / 8),
    n: () => step(1), p: () => step(-1),
  };

  box.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const key = event.target.closest(".key");
    if (key && (event.key === "Enter" || event.key === " ")) toggle(box, key.dataset.name);
    else if (!keys[event.key]?.()) return;
    event.preventDefault();
  });
  svg.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !box.contains(document.activeElement)) return;
    const place = point(event), panel = under(place);
    if (!panel) return;
    event.preventDefault();
    current = panel;
    change([panel], (axis, name) => axis.zoom(Math.exp(-event.deltaY / 400),
      (place[name === "x" ? 0 : 1] - axis.start) / axis.length));
  }, { passive: false });
  svg.addEventListener("pointerdown", (event) => {
    const panel = under(point(event));
    if (event.button || !panel || event.target.closest("text, .key")) return;
    [current, held, spot] = [panel, point(event), -1];
    box.focus({ preventScroll: true });
    svg.setPointerCapture(event.pointerId);
    event.preventDefault();
    tell(panel, panel.nearest(...held));
  });
  svg.addEventListener("pointermove", (event) => {
    const now = point(event);
    if (!held) {
      const panel = under(now);
      for (const other of box.panels) if (other !== panel) other.tell(null);
      tell(panel, panel?.nearest(...now));
      return;
    }
    change([current], (axis, name) => {
      const at = name === "x" ? 0 : 1;
      return axis.move(-(now[at] - held[at]) / axis.length);
    });
    held = now;
  });
  for (const end of ["pointerup", "pointercancel"]) svg.addEventListener(end, () => { held = null; });
  for (const key of svg.querySelectorAll(".key")) {
    key.addEventListener("click", () => toggle(box, key.dataset.name));
    if (!key.querySelector("text")) continue;
    for (const [name, value] of Object.entries({ role: "button", tabindex: 0, "aria-pressed": true,
      "aria-label": `show ${key.dataset.name}` })) key.setAttribute(name, value);
  }
  for (const button of box.querySelectorAll("button[value]")) {
    button.addEventListener("click", () => keys[button.value]());
  }
}
addEventListener("beforeprint", () => {
  change(panels, (axis) => axis.show(0, 1));
});
