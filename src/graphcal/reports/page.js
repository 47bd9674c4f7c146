"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const NS = "http://www.w3.org/2000/svg";
  const pick = id => document.getElementById(id);
  const pct = (v, digits = 1) => v === null || v === undefined ? "–" : (100 * v).toFixed(digits);

  function add(parent, name, attributes, text) {
    const node = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    parent.appendChild(node);
    return node;
  }

  const W = 420, H = 400, L = 44, R = 12, T = 12, B = 44;       // the frame of a diagram
  const X = v => L + v * (W - L - R), Y = v => H - B - v * (H - T - B);

  function frame(svg, height, yTitle, y, ticks) {
    for (const t of ticks) {
      add(svg, "line", { class: "grid", x1: L, x2: W - R, y1: y(t), y2: y(t) });
      add(svg, "text", { x: L - 6, y: y(t) + 4, "text-anchor": "end" }, Math.round(100 * t));
    }
    for (const t of [0, .2, .4, .6, .8, 1]) add(svg, "text", { x: X(t), y: height - B + 18, "text-anchor": "middle" }, Math.round(100 * t));
    add(svg, "line", { class: "axis", x1: L, x2: W - R, y1: height - B, y2: height - B });
    add(svg, "text", { x: (L + W - R) / 2, y: height - 6, "text-anchor": "middle" }, "confidence, %");
    add(svg, "text", { x: 12, y: (height - B + T) / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${(height - B + T) / 2})` }, yTitle);
  }

  function diagram(holder, bins, label) {
    const svg = document.createElementNS(NS, "svg");
    svg.setAttribute("viewBox", `0 0 ${W} ${H}`);
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", `${label}: ${said(bins)}`);
    frame(svg, H, "accuracy, %", Y, [0, .2, .4, .6, .8, 1]);
    const most = Math.max(...bins.count);
    bins.count.forEach((n, b) => {
      if (!n) return;
      const [lo, hi] = [bins.edges[b], bins.edges[b + 1]];
      add(svg, "rect", { class: "band", x: X(lo), width: X(hi) - X(lo), y: Y(bins.band[1][b]), height: Math.max(0, Y(bins.band[0][b]) - Y(bins.band[1][b])) });
    });
    add(svg, "line", { class: "diagonal", x1: X(0), y1: Y(0), x2: X(1), y2: Y(1) });
    bins.count.forEach((n, b) => {
      if (!n) return;
      const c = bins.confidence[b], a = bins.accuracy[b], side = a >= c ? "under" : "over";
      add(svg, "line", { class: "whisk", x1: X(c), x2: X(c), y1: Y(bins.interval[0][b]), y2: Y(bins.interval[1][b]) });
      add(svg, "line", { class: `gap ${side}`, x1: X(c), x2: X(c), y1: Y(c), y2: Y(a) });
      const dot = add(svg, "circle", { class: side, cx: X(c), cy: Y(a), r: 3 + 7 * Math.sqrt(n / most) });
      add(dot, "title", {}, `${pct(bins.edges[b], 0)}–${pct(bins.edges[b + 1], 0)} %: says ${pct(c)} %, right ${pct(a)} %, ${Math.round(n)} ${data.unit}s`);
    });
    holder.replaceChildren(svg);
  }

  function histogram(holder, h, top, label) {                    // both histograms have the same scale
    const height = 150, svg = document.createElementNS(NS, "svg");
    svg.setAttribute("viewBox", `0 0 ${W} ${height}`);
    svg.setAttribute("role", "img");
    const y = v => height - B - v / top * (height - T - B);
    const wrong = h.wrong.reduce((s, v) => s + v, 0);
    svg.setAttribute("aria-label", `${label}: confidences of right and wrong predictions; ${pct(wrong)} percent are wrong`);
    frame(svg, height, `${data.unit}s, %`, y, [0, top]);
    h.right.forEach((r, b) => {
      const x = X(h.edges[b]) + 1, width = X(h.edges[b + 1]) - X(h.edges[b]) - 2, w = h.wrong[b];
      add(svg, "rect", { class: "wrong", x, width, y: y(w), height: height - B - y(w) });
      add(svg, "rect", { class: "right", x, width, y: y(w + r), height: y(w) - y(w + r) });
    });
    holder.replaceChildren(svg);
  }

  const said = bins => `calibration error ${pct(bins.ece)} percent, floor ${pct(bins.ece_floor)} percent, ${bins.convention}`;

  const tallest = h => Math.max(...h.right.map((r, b) => r + h.wrong[b]));

  function show(figure, name, binning, top) {
    const m = data.methods[name], bins = m.binnings[binning], label = data.labels[name];
    const small = document.createElement("small");
    small.textContent = `ECE ${pct(bins.ece)} % · floor ${pct(bins.ece_floor)} % · debiased ${pct(bins.ece_debiased)} %`;
    figure.querySelector("figcaption").replaceChildren(label, small);
    diagram(figure.querySelector(".plot"), bins, label);
    histogram(figure.querySelector(".hist"), m.histogram, top, label);
  }

  function panel(by, groups, old, low, high) {                   // one way to cut the nodes; all panels share one scale
    const row = 24, left = 132, right = 20, height = groups.length * row + 34, svg = document.createElementNS(NS, "svg");
    const x = v => left + (v - low) / (high - low) * (W - left - right);
    svg.setAttribute("viewBox", `0 0 ${W} ${height}`);
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", `${by}: ` + groups.map(g => `${g.group}, ${g.nodes} nodes, gap ${pct(g.signed_gap)} points`).join("; "));
    add(svg, "line", { class: "diagonal", x1: x(0), x2: x(0), y1: 4, y2: height - 30 });
    const step = high - low > .5 ? .2 : high - low > .25 ? .1 : .05;
    for (let t = Math.ceil(low / step - 1e-9) * step; t <= high + 1e-9; t += step) {
      if (Math.abs(t) > 1e-9) add(svg, "line", { class: "grid", x1: x(t), x2: x(t), y1: 4, y2: height - 30 });
      add(svg, "text", { x: x(t), y: height - 12, "text-anchor": "middle" }, (t > 1e-9 ? "+" : "") + Math.round(100 * t));
    }
    groups.forEach((g, i) => {
      const y = i * row + 16, side = g.signed_gap >= 0 ? "under" : "over";
      add(svg, "text", { x: left - 10, y: y + 4, "text-anchor": "end", class: g.small ? "few" : "" }, g.group + (g.small ? " (few)" : ""));
      if (old[g.group]) add(svg, "circle", { class: "hollow", cx: x(old[g.group].signed_gap), cy: y, r: 4 });
      add(svg, "line", { class: `gap ${side}`, x1: x(g.signed_gap_low), x2: x(g.signed_gap_high), y1: y, y2: y });
      const dot = add(svg, "circle", { class: side, cx: x(g.signed_gap), cy: y, r: 5 });
      add(dot, "title", {}, `${g.group}: ${g.nodes} nodes, says ${pct(g.confidence)} %, right ${pct(g.accuracy)} %`);
    });
    const figure = document.createElement("figure"), caption = document.createElement("figcaption");
    caption.textContent = by[0].toUpperCase() + by.slice(1);
    figure.append(caption, svg);
    return figure;
  }

  function showSlices(name, base) {
    const m = data.methods[name], old = data.methods[base].slices || [];
    const groups = by => m.slices.filter(s => s.by === by);
    const kinds = [...new Set((m.slices || []).map(s => s.by))].filter(by => by !== "outcome" && groups(by).length > 1);
    const find = by => Object.fromEntries(old.filter(s => s.by === by).map(s => [s.group, s]));
    const before = by => name === base ? {} : find(by);
    const ends = kinds.flatMap(by => groups(by).flatMap(g => [g.signed_gap_low, g.signed_gap_high, (before(by)[g.group] ?? g).signed_gap]));
    const low = Math.max(-1, Math.min(-.05, ...ends)), high = Math.min(1, Math.max(.05, ...ends));
    pick("slices").replaceChildren(...kinds.map(by => panel(by, groups(by), before(by), low, high)));
    pick("worst").textContent = m.worst ? `Weak spot of ${data.labels[name]}: ${m.worst}.` : `No group is measurably off with ${data.labels[name]}.`;
  }

  function explained(e) {  // Eq. 8: what the lead over the runner-up is made of, in the first seed
    const box = document.createElement("details"), summary = document.createElement("summary"), text = document.createElement("p");
    summary.textContent = "Why this confidence";
    text.textContent = e.sentence;
    const top = Math.max(...e.terms.map(t => Math.abs(t[1])), 1e-9), x = v => 60 + 56 * v / top;
    const rows = e.terms.map(([label, value]) => {
      const row = document.createElement("div"), svg = document.createElementNS(NS, "svg");
      row.className = "term";
      for (const [k, v] of Object.entries({ viewBox: "0 0 120 12", width: 120, height: 12, "aria-hidden": "true" })) svg.setAttribute(k, v);
      add(svg, "line", { class: "axis", x1: 60, x2: 60, y1: 0, y2: 12 });
      add(svg, "line", { class: `gap ${value >= 0 ? "under" : "over"}`, x1: 60, x2: x(value), y1: 6, y2: 6 });
      row.append(svg, ` ${value >= 0 ? "+" : "−"}${Math.abs(value).toFixed(2)} ${label}`);
      return row;
    });
    box.append(summary, text, ...rows);
    return box;
  }

  function showChanged(name) {
    const body = pick("changed").tBodies[0], nodes = data.methods[name].changed || [];
    body.replaceChildren(...nodes.map(n => {
      const tr = document.createElement("tr");
      const put = (text, value) => { const td = document.createElement("td"); td.textContent = text; if (value !== undefined) { td.dataset.value = value; td.className = "number"; } tr.appendChild(td); return td; };
      put(n.id ?? n.node, n.node).className = "";
      put(pct(n.before), n.before);
      put(pct(n.after), n.after);
      const svg = document.createElementNS(NS, "svg"), x = v => 4 + 112 * v;
      for (const [k, v] of Object.entries({ viewBox: "0 0 120 14", width: 120, height: 14, role: "img", "aria-label": `from ${pct(n.before)} to ${pct(n.after)} percent` })) svg.setAttribute(k, v);
      const side = n.after >= n.before ? "under" : "over";
      add(svg, "line", { class: "axis", x1: 4, x2: 116, y1: 7, y2: 7 });
      add(svg, "line", { class: `gap ${side}`, x1: x(n.before), x2: x(n.after), y1: 7, y2: 7 });
      add(svg, "circle", { class: "hollow", cx: x(n.before), cy: 7, r: 3 });
      add(svg, "circle", { class: side, cx: x(n.after), cy: 7, r: 4 });
      put("").appendChild(svg);
      put(data.oneRun ? (n.right ? "yes" : "no") : pct(n.right, 0), n.right);
      const whyCell = put(n.why);
      whyCell.className = "wrap";
      if (n.explanation) whyCell.appendChild(explained(n.explanation));
      return tr;
    }));
    if (!nodes.length) { const td = body.insertRow().insertCell(); td.colSpan = 6; td.textContent = "This method changes no confidence."; }
    for (const th of pick("changed").tHead.rows[0].cells) if (th.hasAttribute("aria-sort")) th.setAttribute("aria-sort", "none");
  }

  function numbers(name, binning) {
    const bins = data.methods[name].binnings[binning], table = document.createElement("table");
    const line = (tag, values) => {
      const tr = document.createElement("tr");
      values.forEach((v, i) => { const td = document.createElement(tag); if (i) td.className = "number"; td.textContent = v; tr.appendChild(td); });
      table.appendChild(tr);
    };
    line("th", ["Bin, %", data.unit[0].toUpperCase() + data.unit.slice(1) + "s", "Confidence, %", "Accuracy, %", "95 % interval of the bin", "Calibrated model: 95 %"]);
    bins.count.forEach((n, b) => n && line("td", [`(${pct(bins.edges[b], 0)}, ${pct(bins.edges[b + 1], 0)}]`, n.toFixed(n % 1 ? 1 : 0), pct(bins.confidence[b]), pct(bins.accuracy[b]),
      `${pct(bins.interval[0][b])}–${pct(bins.interval[1][b])}`, `${pct(bins.band[0][b])}–${pct(bins.band[1][b])}`]));
    pick("numbers").replaceChildren(table);
  }

  function update() {
    const name = pick("method").value, base = pick("base").value, binning = pick("binning").value;
    const top = Math.max(...[base, name].map(k => tallest(data.methods[k].histogram)));
    show(pick("before"), base, binning, top);
    show(pick("after"), name, binning, top);
    numbers(name, binning);
    if (pick("slices")) showSlices(name, base);
    if (pick("changed")) showChanged(name);
    for (const [of, chosen] of [[".chosen-name", name], [".base-name", base]])
      for (const span of document.querySelectorAll(of)) span.textContent = data.labels[chosen];
    pick("spoken").textContent = `${data.labels[name]}: ${said(data.methods[name].binnings[binning])}`;
    for (const row of document.querySelectorAll("#methods tbody tr")) row.classList.toggle("chosen", row.dataset.method === name);
  }

  function sortable(table) {
    const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
    heads.forEach((head, column) => head.querySelector("button")?.addEventListener("click", event => {
      const down = head.getAttribute("aria-sort") === "ascending", number = event.currentTarget.dataset.kind === "number";
      const value = row => { const c = row.cells[column]; return number ? (c.dataset.value === "" ? Infinity : Number(c.dataset.value)) : c.textContent.trim().toLowerCase(); };
      const sorted = [...body.rows].sort((a, b) => { const [x, y] = [value(a), value(b)]; return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1); });
      heads.forEach(h => h.hasAttribute("aria-sort") && h.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      body.append(...sorted);
    }));
  }

  for (const table of document.querySelectorAll("table")) if (table.tHead) sortable(table);
  if (pick("method")) {
    for (const id of ["base", "method", "binning"]) pick(id).addEventListener("change", update);
    update();
  }
})();
