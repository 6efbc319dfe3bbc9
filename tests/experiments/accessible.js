// What WCAG 2.1 measures of a page that is shown: contrast of text (1.4.3), names of what takes the
// keyboard (4.1.2), where the keyboard is (2.4.7). Functions for tests; nothing here changes a page.

// Red, green, blue from 0 to 1 in sRGB's linear light, and alpha.
const parsed = (text) => {
  const [r, g, b, alpha = 1] = text.match(/[\d.]+(?:e-\d+)?/g).map(Number);
  const full = text.startsWith("rgb") ? 255 : 1;  // color(srgb …) counts to 1
  return {rgb: [r, g, b].map((c) => c / full), alpha};
};
const linear = (c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
const luminance = (rgb) => [0.2126, 0.7152, 0.0722]
  .reduce((sum, weight, i) => sum + weight * linear(rgb[i]), 0);
const over = (top, alpha, below) => top.map((c, i) => c * alpha + below[i] * (1 - alpha));
const ratio = (one, other) => {
  const [low, high] = [luminance(one), luminance(other)].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
};

// The colour behind an element: backgrounds of it and of what is around it, the canvas last.
const behind = (node) => {
  const layers = [];
  for (let x = node; x; x = x.parentElement) {
    const {rgb, alpha} = parsed(getComputedStyle(x).backgroundColor);
    if (alpha > 0) layers.push([rgb, alpha * opacity(x)]);
  }
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark";
  return layers.reverse().reduce((below, [rgb, alpha]) => over(rgb, alpha, below),
    dark ? [0.07, 0.07, 0.07] : [1, 1, 1]);
};
const opacity = (node) => {
  let product = 1;
  for (let x = node; x; x = x.parentElement) product *= Number(getComputedStyle(x).opacity);
  return product;
};

// The same for text of a drawing, at its left end, middle and right end: it may stand on shapes.
const grounds = (node) => {
  const drawing = node.closest("svg");
  if (!drawing) return [behind(node)];
  const box = node.getBoundingClientRect();
  const shapes = [...drawing.querySelectorAll("path, rect")].filter((shape) =>
    shape.compareDocumentPosition(node) & Node.DOCUMENT_POSITION_FOLLOWING
    && !shape.closest("defs, clipPath") && getComputedStyle(shape).fill.startsWith("rgb"));
  return [0.05, 0.5, 0.95].map((share) => {
    const point = new DOMPoint(box.x + box.width * share, box.y + box.height / 2);
    return shapes.filter((shape) => isOn(shape, point)).reduce((below, shape) => {
      const {fill, fillOpacity} = getComputedStyle(shape);
      const {rgb, alpha} = parsed(fill);
      return over(rgb, alpha * Number(fillOpacity) * opacity(shape), below);
    }, behind(drawing));
  });
};
const isOn = (shape, point) => {
  const place = shape.getScreenCTM();
  return place && shape.isPointInFill(point.matrixTransform(place.inverse()));
};

const isShown = (node) => {
  const box = node.getBoundingClientRect();
  return box.width > 1 && box.height > 1
    && node.checkVisibility({visibilityProperty: true, opacityProperty: true});
};

// [element, text, ratio, ratio that it needs] of each kind of text that has too little contrast.
const faint = () => {
  const told = new Map();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    const node = text.parentElement;
    if (!text.data.trim() || !isShown(node) || node.closest("script, style, [disabled]")) continue;
    const style = getComputedStyle(node);
    const ink = node.closest("svg") ? style.fill : style.color;
    if (ink === "none" || ink.startsWith("url")) continue;
    const {rgb, alpha} = parsed(ink);
    const size = parseFloat(style.fontSize);
    const needed = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    const found = Math.min(...grounds(node)
      .map((below) => ratio(over(rgb, alpha * opacity(node), below), below)));
    const kind = `${node.tagName.toLowerCase()}.${node.getAttribute("class") || ""} ${ink}`;
    if (found < needed && !told.has(kind))
      told.set(kind, [kind, text.data.trim().slice(0, 40), Number(found.toFixed(2)), needed]);
  }
  return [...told.values()];
};

// What a pointer can use and the keyboard cannot reach: fields, links, and whatever shows a hand.
const usable = () => [...document.querySelectorAll("body *")].filter((node) => isShown(node)
  && (node.matches("a[href], button, input, select, textarea, summary, [onclick], [role=button]")
    || getComputedStyle(node).cursor === "pointer"
      && getComputedStyle(node.parentElement).cursor !== "pointer"));
const unreachable = () => usable().filter((node) => !takesKeys(node))
  .map((node) => node.outerHTML.slice(0, 120));
// It or what is around it has a place in the order of Tab; of a label, its field.
const takesKeys = (node) => {
  for (let x = node; x && x !== document.body; x = x.parentElement)
    if (x.tabIndex >= 0) return true;
  const field = node.closest("label")?.control;
  return Boolean(field && field.tabIndex >= 0 && field.checkVisibility({visibilityProperty: true}));
};

// Fields and links that say nothing to who does not see them.
const nameless = () => [...document.querySelectorAll("a[href], button, input, select, textarea")]
  .filter((node) => isShown(node) && !(node.innerText || "").trim() && !node.ariaLabel
    && !node.title && !node.labels?.length && !node.placeholder && node.type !== "submit"
    && !node.querySelector("img[alt]:not([alt='']), svg title, [aria-label]"))
  .map((node) => node.outerHTML.slice(0, 120));

// Where the keyboard is: the element, whether it is in sight, whether it shows that; null: nowhere.
const reached = (window.reachedByTab ??= new Set());
const focused = () => {
  const node = document.activeElement;
  if (!node || node === document.body || reached.has(node)) return null;
  reached.add(node);
  const box = node.getBoundingClientRect();
  const style = getComputedStyle(node);
  const rings = [style, getComputedStyle(node.querySelector(".ring") || node)];
  return {
    html: node.outerHTML.slice(0, 120),
    inSight: isShown(node) && box.right > 0 && box.left < innerWidth && box.bottom > 0
      && box.top < innerHeight,
    isMarked: rings.some((s) => s.outlineStyle !== "none" && parseFloat(s.outlineWidth) > 0
      || s.boxShadow !== "none"),
  };
};
// What has a place in the order of Tab and was not reached.
const passed = () => [...document.querySelectorAll("a[href], button, input, select, [tabindex]")]
  .filter((node) => isShown(node) && node.tabIndex >= 0 && !node.disabled && !reached.has(node)
    && node.type !== "radio")
  .map((node) => node.outerHTML.slice(0, 120));
