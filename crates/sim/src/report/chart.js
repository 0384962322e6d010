// The pictures are drawn already, each with every view: this shows another view, hides lines,
// reads points, and saves what is seen.
"use strict";
(() => {
  const find = (selector, within = document) => [...within.querySelectorAll(selector)];
  const [figure] = find("figure");
  const [stage] = find(".stage");
  const [tip] = find(".tip");
  const [wide] = find(".wide", stage);
  const charts = find(".stage > svg");
  const hidden = new Set();
  let current = null;

  const display = (element, shown) =>
    shown ? element.removeAttribute("display") : element.setAttribute("display", "none");
  const chosen = (name) => find(`input[name=${name}]:checked`)[0]?.value ?? "0";
  const visible = (chart) =>
    find(".view:not([display]) .curve:not([display]) .point", chart).map((g) => texts.get(g));

  // A point's title says what it is. The browser would show it a second time.
  const texts = new Map();
  for (const g of find(".point")) {
    const title = g.querySelector("title");
    const [policy, capacity, rate, ...more] = title.textContent.split("\n");
    const { e: x, f: y } = g.transform.baseVal.consolidate().matrix;
    const curve = g.parentElement;
    texts.set(g, { policy, capacity, rate: [rate, ...more].join(", "), x, y, curve });
    title.remove();
  }

  function show() {
    read(null);
    const [rate, group] = [chosen("rate"), chosen("group")];
    for (const view of find(".view", stage)) {
      display(view, view.dataset.rate === rate && view.dataset.group === group);
    }
    for (const curve of find(".curve", stage)) {
      display(curve, !hidden.has(curve.dataset.policy));
    }
    for (const button of find(".legend button")) {
      button.setAttribute("aria-pressed", String(!hidden.has(button.dataset.policy)));
    }
  }

  // Brings lines to the fore.
  function emphasise(curves) {
    for (const curve of find(".read", stage)) curve.classList.remove("read");
    for (const curve of curves) curve.classList.add("read");
    stage.classList.toggle("reading", curves.length > 0);
  }

  // Shows one point, and others that lie at the same spot.
  function read(chart, point, others = []) {
    for (const ring of find(".ring", stage)) ring.remove();
    current = chart && { chart, point };
    tip.hidden = !current;
    emphasise(current ? [point, ...others].map(({ curve }) => curve) : []);
    if (!current) return;
    const ring = document.createElementNS(chart.namespaceURI, "circle");
    const looks = { class: "ring", cx: point.x, cy: point.y, r: 9, fill: "none", stroke: "currentColor" };
    for (const [name, value] of Object.entries(looks)) ring.setAttribute(name, value);
    point.curve.append(ring);
    const heading = document.createElement("p");
    heading.textContent = point.capacity;
    const rows = [point, ...others].map(({ policy, rate }) => {
      const row = document.createElement("div");
      const value = document.createElement("span");
      value.textContent = rate;
      row.append(policy, " ", value);
      return row;
    });
    tip.replaceChildren(heading, ...rows);
    place(chart, point);
  }

  // Below the point, on the side that has room.
  function place(chart, { x, y }) {
    const scale = chart.clientWidth / chart.viewBox.baseVal.width;
    const [left, top] = [x * scale, y * scale];
    const after = left + 16 + tip.offsetWidth <= stage.clientWidth;
    const before = Math.max(0, left - 16 - tip.offsetWidth);
    tip.style.left = `${after ? left + 16 : before}px`;
    tip.style.top = `${top + 12}px`;
  }

  function point(event) {
    const chart = event.currentTarget;
    const at = new DOMPoint(event.clientX, event.clientY);
    const { x, y } = at.matrixTransform(chart.getScreenCTM().inverse());
    const points = visible(chart);
    if (points.length === 0) return;
    const distance = (p) => Math.hypot(p.x - x, p.y - y);
    const nearest = points.reduce((a, b) => (distance(b) < distance(a) ? b : a));
    const same = (p) => p !== nearest && Math.hypot(p.x - nearest.x, p.y - nearest.y) < 4;
    read(chart, nearest, points.filter(same));
  }

  // Left and right along a line, up and down between lines.
  function step(event) {
    if (event.key === "Escape") return read(null);
    const chart = event.currentTarget;
    const points = visible(chart);
    const from = current?.chart === chart ? current.point : null;
    const forward = event.key === "ArrowRight" || event.key === "ArrowUp";
    const along = event.key === "ArrowLeft" || event.key === "ArrowRight";
    if (!event.key.startsWith("Arrow") || points.length === 0) return;
    event.preventDefault();
    if (!from) return read(chart, points[0]);
    const lane = along
      ? points.filter((p) => p.curve === from.curve)
      : points.filter((p) => p.x === from.x).sort((a, b) => b.y - a.y);
    const next = lane[lane.indexOf(from) + (forward ? 1 : -1)];
    if (next) read(chart, next);
  }

  // What is seen, as a file of its own: in the colours for paper, with a margin.
  const MARGIN = 24;
  const [width, height] = [wide.viewBox.baseVal.width + 2 * MARGIN, wide.viewBox.baseVal.height + 2 * MARGIN];
  function picture() {
    read(null);
    const svg = wide.cloneNode(true);
    const paper = svg.querySelector(".paper");
    for (const [name, value] of Object.entries({ x: -MARGIN, y: -MARGIN, width, height })) {
      paper.setAttribute(name, value);
    }
    svg.setAttribute("width", width);
    svg.setAttribute("height", height);
    svg.setAttribute("viewBox", `${-MARGIN} ${-MARGIN} ${width} ${height}`);
    for (const element of find("[display=none]", svg)) element.remove();
    for (const name of ["tabindex", "class", "role"]) svg.removeAttribute(name);
    return new Blob([new XMLSerializer().serializeToString(svg)], { type: "image/svg+xml" });
  }

  async function rastered(svg) {
    const address = URL.createObjectURL(svg);
    try {
      const image = new Image();
      image.src = address;
      await image.decode();
      const canvas = document.createElement("canvas");
      canvas.width = 2 * width;
      canvas.height = 2 * height;
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      return await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
    } finally {
      URL.revokeObjectURL(address);
    }
  }

  async function save({ currentTarget: { dataset } }) {
    const svg = picture();
    const link = document.createElement("a");
    link.href = URL.createObjectURL(dataset.save === "png" ? await rastered(svg) : svg);
    link.download = `${figure.dataset.file}.${dataset.save}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }

  for (const chart of charts) {
    chart.tabIndex = 0;
    chart.setAttribute("role", "application");
    chart.addEventListener("pointermove", point);
    chart.addEventListener("pointerdown", point);
    // A finger that is lifted leaves, and wants to read on.
    chart.addEventListener("pointerleave", ({ pointerType }) => pointerType === "mouse" && read(null));
    chart.addEventListener("keydown", step);
    chart.addEventListener("blur", () => read(null));
  }
  for (const button of find(".legend button")) {
    const { policy } = button.dataset;
    button.addEventListener("click", () => {
      hidden.delete(policy) || hidden.add(policy);
      show();
    });
    const curves = () => find(`.view:not([display]) [data-policy="${policy}"]:not([display])`, stage);
    for (const type of ["pointerenter", "focus"]) {
      button.addEventListener(type, () => emphasise(curves()));
    }
    for (const type of ["pointerleave", "blur"]) button.addEventListener(type, () => emphasise([]));
  }
  for (const fieldset of find("fieldset")) {
    fieldset.disabled = false;
    fieldset.hidden = false;
    fieldset.addEventListener("change", show);
  }
  for (const button of find("[data-save]")) button.addEventListener("click", save);
  find(".actions")[0].hidden = false;
  show();
})();
