// Pictures to zoom. A picture that has the focus takes the wheel and the keys; else the page does.
// Only the first group of an SVG is moved, so print shows it whole by a rule of the style sheet.
for (const box of document.querySelectorAll(".zoom")) {
  const svg = box.querySelector("svg");
  const scene = svg.querySelector("g");
  const [, , width, height] = svg.getAttribute("viewBox").split(/[ ,]+/).map(Number);
  const view = { scale: 1, x: 0, y: 0 };
  let held = null;

  // Sets the view, kept on the picture; tells whether anything has changed.
  const show = (scale, x, y) => {
    scale = Math.min(Math.max(scale, 1), 60);
    x = Math.min(Math.max(x, width * (1 - scale)), 0);
    y = Math.min(Math.max(y, height * (1 - scale)), 0);
    if (scale === view.scale && x === view.x && y === view.y) return false;
    Object.assign(view, { scale, x, y });
    scene.style.transform = `translate(${x}px, ${y}px) scale(${scale})`;
    svg.style.touchAction = scale > 1 ? "none" : ""; // a finger scrolls the page, or moves a detail
    return true;
  };
  // Zooms about a point of the picture, its middle where none is named.
  const zoom = (factor, [px, py] = [width / 2, height / 2]) => {
    const scale = Math.min(Math.max(view.scale * factor, 1), 60);
    const ratio = scale / view.scale;
    return show(scale, px - (px - view.x) * ratio, py - (py - view.y) * ratio);
  };
  const move = (x, y) => show(view.scale, view.x + x, view.y + y);
  const reset = () => show(1, 0, 0);
  const point = (event) => {
    const area = svg.getBoundingClientRect();
    const unit = width / area.width;
    return [(event.clientX - area.left) * unit, (event.clientY - area.top) * unit];
  };
  const keys = {
    "+": () => zoom(1.5), "=": () => zoom(1.5), "-": () => zoom(1 / 1.5), "0": reset,
    ArrowLeft: () => move(width / 12, 0), ArrowRight: () => move(-width / 12, 0),
    ArrowUp: () => move(0, height / 12), ArrowDown: () => move(0, -height / 12),
  };

  box.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    if (keys[event.key]()) event.preventDefault();
  });
  svg.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !box.contains(document.activeElement)) return;
    event.preventDefault();
    zoom(Math.exp(-event.deltaY / 400), point(event));
  }, { passive: false });
  svg.addEventListener("pointerdown", (event) => {
    if (event.button || event.target.closest("text")) return; // text is there to be selected
    held = point(event);
    box.focus({ preventScroll: true });
    svg.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  svg.addEventListener("pointermove", (event) => {
    if (!held) return;
    const now = point(event);
    move(now[0] - held[0], now[1] - held[1]);
    held = now;
  });
  for (const end of ["pointerup", "pointercancel"]) svg.addEventListener(end, () => { held = null; });
  for (const button of box.querySelectorAll("button")) {
    button.addEventListener("click", () => keys[button.value]());
  }
}
