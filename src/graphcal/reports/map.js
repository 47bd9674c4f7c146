(() => {
  "use strict";
  const holder = document.getElementById("map-detail");
  if (!holder) return;
  const data = JSON.parse(document.getElementById("data").textContent), map = data.map;
  const FIELDS = ["node", "x0", "y0", "x1", "y1", "conf0", "conf1", "pred0", "pred1", "label", "part", "hops", "degree"], NONE = 65535;
  const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c7a00", "#7a5cc4", "#999999", "#a0522d"];
  const canvases = [document.getElementById("map-before"), document.getElementById("map-after")];
  const number = document.getElementById("map-node"), colour = document.getElementById("map-colour");
  let col = null, near = [], chosen = -1;

  async function read() {                                  // base64, deflated little-endian columns
    const bytes = Uint8Array.from(atob(map.data), c => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    const raw = await new Response(stream).arrayBuffer(), view = new DataView(raw);
    let at = 0;
    const column = wide => {
      const found = new Uint32Array(map.nodes);
      for (let i = 0; i < map.nodes; i++, at += wide ? 4 : 2) found[i] = wide ? view.getUint32(at, true) : view.getUint16(at, true);
      return found;
    };
    col = Object.fromEntries(FIELDS.map(name => [name, column(name === "node")]));
    near = Array.from({ length: map.neighbours }, () => column(false));
  }

  const neighbours = i => near.map(c => c[i]).filter(j => j !== NONE);
  const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const place = (i, k, size) => [24 + col[`x${k}`][i] / NONE * (size - 48), size - 24 - col[`y${k}`][i] / NONE * (size - 48)];

  function shade(i, k) {
    const p = col[`pred${k}`][i];
    if (colour.value === "class") return COLOURS[p % COLOURS.length];
    return col.label[i] === NONE ? css("--soft") : p === col.label[i] ? css("--quiet") : css("--ink");
  }

  function draw(canvas, k) {
    const size = canvas.clientWidth, ratio = window.devicePixelRatio || 1;
    canvas.width = canvas.height = Math.round(size * ratio);
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = "12px system-ui, sans-serif";
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.fillStyle = css("--soft");
    for (let c = 0; c < map.classes; c++) {
      const angle = Math.PI / 2 - 2 * Math.PI * c / map.classes, r = (size - 24) / 2;
      pen.fillText(map.classes > 12 && c % 5 ? "" : c, size / 2 + r * Math.cos(angle), size / 2 - r * Math.sin(angle));
    }
    const dot = map.nodes > 5000 ? 1.6 : 2.4;
    pen.globalAlpha = map.nodes > 5000 ? .5 : .7;
    for (let i = 0; i < map.nodes; i++) {
      const [x, y] = place(i, k, size);
      pen.fillStyle = shade(i, k);
      pen.fillRect(x - dot / 2, y - dot / 2, dot, dot);
    }
    pen.globalAlpha = 1;
    if (chosen < 0) return;
    const [x, y] = place(chosen, k, size);
    pen.strokeStyle = css("--ink");
    for (const j of neighbours(chosen)) {
      const [a, b] = place(j, k, size);
      pen.lineWidth = 1;
      pen.beginPath(); pen.moveTo(x, y); pen.lineTo(a, b); pen.stroke();
      pen.beginPath(); pen.arc(a, b, 3.5, 0, 7); pen.fillStyle = shade(j, k); pen.fill(); pen.stroke();
    }
    pen.lineWidth = 2;
    pen.beginPath(); pen.arc(x, y, 6, 0, 7); pen.fillStyle = shade(chosen, k); pen.fill(); pen.stroke();
  }

  const redraw = () => canvases.forEach(draw);
  const id = i => map.names?.ids?.[i] ?? col.node[i], called = c => map.names?.classes?.[c] ?? c;
  const sure = v => `${(v / 10).toFixed(0)} %`;

  function tell(i) {
    const parts = ["in no part", "a training node", "a validation node", "a test node"], c = Object.fromEntries(FIELDS.map(name => [name, col[name][i]]));
    const label = c.label === NONE ? "its label is not known" : c.label === c.pred1 ? "that is right" : `its label is class ${called(c.label)}`;
    const away = c.hops === NONE ? "no training node is in reach" : c.hops === 0 ? "it is a training node itself" : `the nearest training node is ${c.hops} hop${c.hops > 1 ? "s" : ""} away`;
    const around = neighbours(i).map(j => `${id(j)} (class ${called(col.pred1[j])}, ${sure(col.conf1[j])})`);
    const why = (data.methods[map.after]?.changed || []).find(n => n.node === c.node)?.explanation?.sentence;
    const line = (tag, text) => { const e = document.createElement(tag); e.textContent = text; return e; };
    holder.replaceChildren(
      line("h3", `Node ${id(i)}, ${parts[c.part]}`),
      line("p", `Predicted class ${called(c.pred1)}, ${sure(c.conf1)} sure after calibration, ${sure(c.conf0)} before${c.pred0 !== c.pred1 ? ` (then class ${called(c.pred0)})` : ""}; ${label}.`),
      line("p", `It has ${c.degree} neighbour${c.degree === 1 ? "" : "s"}; ${away}.` + (around.length ? ` Shown: ${around.join(", ")}.` : "")),
      ...(why ? [line("p", why)] : []));
  }

  function choose(i) {
    chosen = i;
    number.value = id(i);
    tell(i);
    redraw();
  }

  function nearest(canvas, k, event) {
    const box = canvas.getBoundingClientRect(), px = event.clientX - box.left, py = event.clientY - box.top;
    let best = 0, least = Infinity;
    for (let i = 0; i < map.nodes; i++) {
      const [x, y] = place(i, k, box.width), d = (x - px) ** 2 + (y - py) ** 2;
      if (d < least) { least = d; best = i; }
    }
    return best;
  }

  read().then(() => {
    canvases.forEach((canvas, k) => canvas.addEventListener("click", event => choose(nearest(canvas, k, event))));
    number.addEventListener("change", () => {
      const own = map.names?.ids ? map.names.ids.indexOf(number.value) : -1;
      const i = own >= 0 ? own : col.node.indexOf(Number(number.value));
      if (i >= 0) choose(i); else holder.textContent = `Node ${number.value} is not among the ${map.nodes} nodes shown.`;
    });
    colour.addEventListener("change", redraw);
    addEventListener("resize", redraw);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    addEventListener("beforeprint", redraw);
    holder.dataset.ready = "yes";
    redraw();
  });
})();
