// The pictures: the network of cells, and what the broker knows of ticks. SVG of our own.

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

const WIDTH = 1000;
const LEFT = 150;

// One lane for this broker, one for each cell below it; time runs from left to right.
export function drawKnowledge(svg, found) {
  svg.replaceChildren();
  const below = Object.entries(found.below);
  const height = 96 + below.length * 40;
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${height}`);
  const scale = (WIDTH - LEFT - 10) / (found.end - found.start);
  const at = (tick) => LEFT + Math.min(Math.max(tick - found.start, 0), found.end - found.start) * scale;
  draw(svg, "text", { x: 10, y: 36 }, found.broker);
  for (const [letter, start, end] of found.runs) {
    const wide = letter === "D" ? 3 : Math.max(1, at(end) - at(start));
    const tall = letter === "D" ? { y: 14, height: 36 } : { y: 20, height: 24 };
    const run = draw(svg, "rect", { x: at(start), width: wide, ...tall, class: letter });
    draw(run, "title", {}, `${letter}: ${((end - start) / 1024 / 1000).toFixed(letter === "D" ? 3 : 0)} ms`);
  }
  below.forEach(([cell, outlet], row) => {
    const y = 64 + row * 40;
    draw(svg, "text", { x: 10, y: y + 14 }, cell);
    draw(svg, "rect", { x: LEFT, y, width: WIDTH - LEFT - 10, height: 18, class: "Q" });
    draw(svg, "rect", { x: LEFT, y, width: Math.max(0, at(outlet.settled) - LEFT), height: 18, class: "P" });
    for (const [start, end] of outlet.silent) {
      draw(svg, "rect", { x: at(start), y, width: Math.max(1, at(end) - at(start)), height: 18, class: "S" });
    }
  });
  const foot = height - 14;
  if (found.horizon !== null) {
    draw(svg, "line", { x1: at(found.horizon), y1: 8, x2: at(found.horizon), y2: foot - 12, class: "mark" });
    draw(svg, "text", { x: Math.min(at(found.horizon), WIDTH - 60), y: foot + 2, class: "quiet", "text-anchor": "end" }, "doubt horizon");
  }
  const seconds = (found.end - found.start) / 1024 / 1e6;
  draw(svg, "text", { x: LEFT, y: foot + 2, class: "quiet" }, `${seconds.toFixed(0)} s ago`);
  draw(svg, "text", { x: WIDTH - 34, y: foot + 2, class: "quiet" }, "now");
}
