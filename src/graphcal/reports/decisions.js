(() => {
  "use strict";
  const slider = document.getElementById("target");
  if (!slider) return;
  const all = JSON.parse(document.getElementById("data").textContent).decisions;
  const NS = "http://www.w3.org/2000/svg", W = 560, H = 300, L = 56, R = 20, T = 14, B = 46;
  const pick = id => document.getElementById(id), count = n => n.toLocaleString("en-US");
  const share = (v, digits = 0) => `${(100 * v).toFixed(digits)}\u00a0%`, target = v => `${+(100 * v).toFixed(1)}\u00a0%`;

  function add(parent, name, attributes, text) {
    const node = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    return parent.appendChild(node);
  }

  function curve(c, limit, decided) {                     // errors of the most confident part, with their interval
    const svg = document.createElementNS(NS, "svg"), known = c.coverage.map((_, i) => i).filter(i => c.error[i] !== null);
    const top = Math.min(1, Math.max(.1, limit * 1.6, 1.25 * Math.max(...known.map(i => c.error[i]))));
    const x = v => L + v * (W - L - R), y = v => H - B - Math.min(v, top) / top * (H - T - B);
    svg.setAttribute("viewBox", `0 0 ${W} ${H}`);
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", `errors against the share of ${all.unit} decided: ${known.filter((_, k) => k % 10 === 9).map(i => `${share(c.coverage[i])} decided, ${share(c.error[i], 1)} errors`).join("; ")}`);
    const step = [.02, .05, .1, .2].find(s => top / s <= 6) || .2;
    for (let t = 0; t <= top; t += step) {
      add(svg, "line", { class: "grid", x1: L, x2: W - R, y1: y(t), y2: y(t) });
      add(svg, "text", { x: L - 6, y: y(t) + 4, "text-anchor": "end" }, Math.round(100 * t));
    }
    for (const t of [0, .2, .4, .6, .8, 1]) add(svg, "text", { x: x(t), y: H - B + 18, "text-anchor": "middle" }, Math.round(100 * t));
    add(svg, "text", { x: (L + W - R) / 2, y: H - 8, "text-anchor": "middle" }, `${all.unit} decided, most confident first, %`);
    add(svg, "text", { x: 12, y: (H - B + T) / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${(H - B + T) / 2})` }, "errors among them, %");
    const line = (values, order) => order.map(i => `${x(c.coverage[i]).toFixed(1)},${y(values[i]).toFixed(1)}`).join(" ");
    add(svg, "polygon", { class: "band", points: `${line(c.high, known)} ${line(c.low, [...known].reverse())}` });
    add(svg, "polyline", { class: "risk", points: line(c.error, known) });
    add(svg, "line", { class: "limit", x1: L, x2: W - R, y1: y(limit), y2: y(limit) });
    add(svg, "text", { x: W - R, y: y(limit) - 5, "text-anchor": "end" }, `target ${target(limit)}`);
    const covered = decided / c.total;
    add(svg, "rect", { class: "auto", x: x(0), width: x(covered) - x(0), y: H - B, height: 5 });
    if (decided) add(svg, "line", { class: "cut", x1: x(covered), x2: x(covered), y1: T, y2: H - B });
    pick("risk").replaceChildren(svg);
  }

  function update() {
    const c = all.methods[pick("decider").value].curve, k = Number(slider.value), decided = c.decided[k], limit = c.targets[k];
    const promise = `with at most ${target(limit)} errors, ${share(c.certainty)} certain`;
    pick("target-text").textContent = target(limit);
    pick("decided-card").classList.toggle("nothing", !decided);  // no colour of success where nothing is decided
    pick("decided").textContent = count(decided);
    pick("decided-of").textContent = `of ${count(c.total)} labelled test ${all.unit} certified`;
    pick("decided-share").setAttribute("width", 300 * decided / c.total);
    pick("decided-detail").textContent = decided
      ? `${share(decided / c.total)} of the labelled test ${all.unit} would be decided automatically ${promise}; ${count(c.total - decided)} would need a person.`
      : `None of the labelled test ${all.unit} would be decided automatically ${promise}: allow more errors, or label more ${all.unit} drawn at random.`;
    slider.setAttribute("aria-valuetext", `at most ${target(limit)} errors: ${count(decided)} of ${count(c.total)} ${all.unit}`);
    curve(c, limit, decided);
  }

  slider.addEventListener("input", update);
  pick("decider").addEventListener("change", update);
  update();
})();
