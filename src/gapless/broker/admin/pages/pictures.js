// The pictures: the network of cells, and what brokers know of ticks. SVG of our own.

const SVG = "http://www.w3.org/2000/svg";

function draw(parent, kind, attributes, text) {
  const made = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

// Cells in columns, by their distance from the first; links between cells are lines. `notes` has a
// text for brokers; `isUp(cell, other)` says whether cells are linked, or undefined.
export function drawNetwork(svg, cells, notes, isUp) {
  svg.replaceChildren();
  const columns = layers(cells);
  const width = Math.max(900, columns.length * 210);
  const place = new Map();
  let height = 0;
  columns.forEach((cells, column) => {
    let y = 30;
    for (const cell of cells) {
      const size = 46 + cell.brokers.length * 46;
      place.set(cell.name, { x: (column + 0.5) * (width / columns.length), y, size });
      y += size + 24;
    }
    height = Math.max(height, y);
  });
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  for (const cell of cells) {
    for (const other of cell.links) {
      const [one, two] = [place.get(cell.name), place.get(other)];
      if (one && two) {
        const health = { true: "up", false: "down", undefined: "" }[isUp(cell, cells.find((each) => each.name === other))];
        draw(svg, "line", { x1: one.x, y1: one.y + one.size / 2, x2: two.x, y2: two.y + two.size / 2, class: `edge ${health}` });
      }
    }
  }
  for (const cell of cells) {
    const { x, y, size } = place.get(cell.name);
    draw(svg, "rect", { x: x - 84, y, width: 168, height: size, rx: 10, class: "P" });
    draw(svg, "rect", { x: x - 84, y, width: 168, height: size, rx: 10, class: "cell" });
    draw(svg, "text", { x: x - 74, y: y + 20, class: "quiet" }, cell.name + (cell.subscribers ? ", subscribers" : ""));
    cell.brokers.forEach((broker, row) => {
      const at = y + 48 + row * 46;
      const dot = draw(svg, "circle", { cx: x - 60, cy: at, r: 10, class: `node ${broker.health}` });
      draw(dot, "title", {}, `${broker.name}: ${broker.health}`);
      draw(svg, "text", { x: x - 42, y: at + 1 }, broker.name);
      const said = notes[broker.name] ?? (broker.health === "far" ? "" : broker.health);
      draw(svg, "text", { x: x - 42, y: at + 16, class: "quiet" }, said);
    });
  }
}

function layers(cells) {
  const near = new Map(cells.map((cell) => [cell.name, new Set(cell.links)]));
  for (const cell of cells) for (const other of cell.links) near.get(other)?.add(cell.name);
  const seen = new Set();
  const columns = [];
  let front = cells.slice(0, 1).map((cell) => cell.name);
  while (front.length) {
    front.forEach((name) => seen.add(name));
    columns.push(cells.filter((cell) => front.includes(cell.name)));
    const next = new Set(front.flatMap((name) => [...near.get(name)]));
    front = [...next].filter((name) => !seen.has(name));
  }
  return columns;
}

const LEFT = 120;
const LANE = 56;
const IS_CALM = matchMedia("(prefers-reduced-motion: reduce)").matches;

// A lane for each broker, the pubend's host first; of a broker alone also one for each cell below it.
// Time runs from left to right. A line below a lane marks what is asked for. A nack or an
// acknowledgement is a dot that rises to the next broker on the way to the host, at the ticks that
// it is about, and is named beside the broker that sends it.
export function drawKnowledge(svg, lanes, host) {
  svg.replaceChildren();
  if (!lanes.length) return;
  const [start, end] = [Math.min(...lanes.map((each) => each.start)), Math.max(...lanes.map((each) => each.end))];
  const below = lanes.length === 1 ? Object.entries(lanes[0].below) : [];
  const height = 40 + lanes.length * LANE + below.length * 40;
  const room = svg.parentElement.clientWidth;
  const width = room < 700 ? room : 1000;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const at = (tick) => LEFT + (Math.min(Math.max(tick, start), end) - start) * ((width - LEFT - 10) / (end - start));
  const bar = (from, to, y, tall, kind, title) => {
    const made = draw(svg, "rect", { x: at(from), y, width: Math.max(kind === "D" ? 3 : 1, at(to) - at(from)), height: tall, class: kind });
    if (title) draw(made, "title", {}, title);
  };
  const seconds = Math.round((end - start) / 1024 / 1e6);
  const step = Math.ceil(seconds * 110 / (width - LEFT));
  for (let ago = step; ago < seconds + 0.5; ago += step) {
    const x = at(end - ago * 1024 * 1e6);
    draw(svg, "line", { x1: x, y1: 8, x2: x, y2: height - 24, class: "second" });
    draw(svg, "text", { x, y: height - 6, class: "quiet middle" }, `${ago} s ago`);
  }
  draw(svg, "text", { x: width - 36, y: height - 6, class: "quiet" }, "now");
  lanes.forEach((lane, row) => {
    const y = 14 + row * LANE;
    draw(svg, "text", { x: 10, y: y + 14 }, lane.broker);
    const travels = [lane.nacksNow ? `▲ ${lane.nacksNow} nack${lane.nacksNow > 1 ? "s" : ""}` : "", lane.hasAcknowledged ? "▲ ack" : ""];
    const [said, kind] = lane.isSilent ? ["does not answer", "broken"] : lane.broker === host ? ["hosts the pubend", "quiet"]
      : [travels.filter(Boolean).join(" "), lane.nacksNow ? "travels nack" : "travels"];
    draw(svg, "text", { x: 10, y: y + 30, class: kind }, said);
    for (const [letter, from, to] of lane.runs) {
      const [top, tall] = letter === "D" ? [y, 36] : [y + 6, 24];
      bar(from, to, top, tall, letter, `${letter}: ${((to - from) / 1024 / 1000).toFixed(letter === "D" ? 3 : 0)} ms`);
    }
    for (const [from, to] of lane.asked) bar(from, to, y + 33, 6, "asked", "asked for");
    if (lane.acknowledged >= start) draw(svg, "path", { d: `M${at(lane.acknowledged)} ${y + 34} l-5 9 h10 z`, class: "acknowledged" });
    if (lane.horizon !== null) draw(svg, "line", { x1: at(lane.horizon), y1: y - 2, x2: at(lane.horizon), y2: y + 40, class: "mark" });
  });
  lanes.forEach((lane, row) => {
    const up = lanes.findIndex((each) => each.hops === lane.hops - 1);
    if (up < 0) return;
    if (lane.nacksNow) rise(svg, at(lane.asked[0]?.[0] ?? lane.horizon ?? end), row, up, "asked");
    if (lane.hasAcknowledged) rise(svg, at(lane.acknowledged), row, up, "acknowledged");
  });
  below.forEach(([cell, outlet], row) => {
    const y = 14 + lanes.length * LANE + row * 40;
    draw(svg, "text", { x: 10, y: y + 14 }, cell);
    bar(start, end, y, 18, "Q");
    bar(start, outlet.settled, y, 18, "P");
    for (const [from, to] of outlet.silent) bar(from, to, y, 18, "S");
  });
}

// A message on its way up, from one lane to another.
function rise(svg, x, from, to, kind) {
  const [low, high] = [14 + from * LANE, 14 + to * LANE + 38];
  draw(svg, "line", { x1: x, y1: low, x2: x, y2: high, class: `way ${kind}` });
  const dot = draw(svg, "circle", { cx: x, cy: IS_CALM ? high : low, r: 4, class: `message ${kind}` });
  if (IS_CALM) return;
  draw(dot, "animate", { attributeName: "cy", from: low, to: high, dur: "0.45s", begin: "indefinite", fill: "freeze" }).beginElement();
}
