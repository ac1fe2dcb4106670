// The map: a line a checkpoint, a column a position. Numbers are drawn onto a canvas, as many at a time as it has pixels.
import {element, hide} from "./dom.js";
import {INFINITE, MISSING, NOT_JUDGED, ZERO, codeAt, sizeOf} from "./data.js";
import {MAP_TOP, MARKS, paintLabels, paintMarks, showScale} from "./map_paint.js";
import {MEASURES, colourOf, isWrong, palette, rangeOf} from "./scale.js";
import {describeToken} from "./tokens.js";

const MAP_BOTTOM = 4, MAP_RIGHT = 4, LINE = 14, TALLEST = 760, MARKED = 7;

function valueText(code, measure) {
  if (code === MISSING) return MEASURES[measure].judges ? "missing" : "missing on a side";
  if (code === NOT_JUDGED) return MEASURES[measure].judges ? "not judged" : "not compared";
  return code === INFINITE ? "NaN or infinite" : `${code === ZERO ? "" : "≈"}${Number.parseFloat(sizeOf(code).toPrecision(2))}`;
}

class RowMap {
  constructor(data, selection, plot) {
    this.data = data;
    this.selection = selection;
    this.rows = data.names.length;
    this.columns = data.columns.length;
    this.measure = data.isJudged ? "own" : "relative_l2";
    this.canvas = element("canvas", {tabindex: "0", role: "img", "aria-label": "Map of checkpoints by position. Arrow keys move, plus and minus zoom, 0 shows all, Enter opens, n goes to the next wrong row."});
    this.tip = element("div", {class: "tip", hidden: true});
    plot.append(this.canvas, this.tip);
    this.base = document.createElement("canvas");
    this.labels = data.checkpoints.map(c => c.layer === null ? c.name : c.name.replace(/^blk\.\d+\./, ""));
    this.all();
    this.listen();
    this.choose(this.measure);
  }

  all() {
    this.view = {x: 0, y: 0, width: this.columns, height: this.rows};
  }

  choose(measure) {
    this.measure = measure;
    this.codes = this.data.rows[measure];
    this.range = rangeOf(this.codes);
    this.wrongRows = new Uint8Array(this.rows);
    for (let row = 0; row < this.rows; ++row)
      for (let column = 0; column < this.columns; ++column)
        if (isWrong(this.codes[row * this.columns + column], measure)) this.wrongRows[row] = 1;
    this.draw();
  }

  layout() {
    const width = this.canvas.clientWidth || 800;
    const left = (width < 560 ? 84 : 132) + MARKS;
    const height = Math.min(TALLEST, Math.max(160, this.rows * LINE));
    return {width, left, height: height + MAP_TOP + MAP_BOTTOM, plotWidth: width - left - MAP_RIGHT, plotHeight: height};
  }

  // Draws what the view shows; where a pixel stands for many rows, the worst of them.
  draw() {
    const {width, left, height, plotWidth, plotHeight} = this.layout();
    const sharp = window.devicePixelRatio || 1;
    this.canvas.style.height = `${height}px`;
    for (const canvas of [this.canvas, this.base]) {
      canvas.width = Math.round(width * sharp);
      canvas.height = Math.round(height * sharp);
    }
    const context = this.base.getContext("2d");
    context.scale(sharp, sharp);
    const colours = palette();
    const x0 = Math.floor(this.view.x), x1 = Math.min(this.columns, Math.ceil(this.view.x + this.view.width));
    const y0 = Math.floor(this.view.y), y1 = Math.min(this.rows, Math.ceil(this.view.y + this.view.height));
    const nx = Math.min(x1 - x0, Math.round(plotWidth * sharp)), ny = Math.min(y1 - y0, Math.round(plotHeight * sharp));
    const worst = new Uint16Array(nx * ny);
    for (let row = y0; row < y1; ++row) {
      const line = Math.floor((row - y0) * ny / (y1 - y0)) * nx;
      for (let column = x0; column < x1; ++column) {
        const at = line + Math.floor((column - x0) * nx / (x1 - x0));
        const code = this.codes[row * this.columns + column];
        if (code > worst[at]) worst[at] = code;
      }
    }
    const image = new ImageData(nx, ny);
    const pixels = new Uint32Array(image.data.buffer);
    const known = new Map();
    for (let i = 0; i < worst.length; ++i) {
      let pixel = known.get(worst[i]);
      if (pixel === undefined) {
        const [r, g, b] = colourOf(worst[i], this.measure, this.range, colours);
        pixel = (255 << 24 | b << 16 | g << 8 | r) >>> 0;
        known.set(worst[i], pixel);
      }
      pixels[i] = pixel;
    }
    const small = document.createElement("canvas");
    small.width = nx;
    small.height = ny;
    small.getContext("2d").putImageData(image, 0, 0);
    this.cellWidth = plotWidth / this.view.width;
    this.cellHeight = plotHeight / this.view.height;
    context.save();
    context.beginPath();
    context.rect(left, MAP_TOP, plotWidth, plotHeight);
    context.clip();
    context.imageSmoothingEnabled = false;
    context.drawImage(small, left + (x0 - this.view.x) * this.cellWidth, MAP_TOP + (y0 - this.view.y) * this.cellHeight, (x1 - x0) * this.cellWidth, (y1 - y0) * this.cellHeight);
    if (this.cellWidth >= MARKED && this.cellHeight >= MARKED) paintMarks(this, context, colours, {x0, x1, y0, y1}, left);
    context.restore();
    paintLabels(this, context, {x0, x1, y0, y1}, left, plotWidth);
    this.show();
  }

  // The picture with the cursor.
  show() {
    const context = this.canvas.getContext("2d");
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(this.base, 0, 0);
    const column = this.data.columnOf.get(this.selection.position);
    if (column === undefined || this.selection.row < 0) return;
    const sharp = window.devicePixelRatio || 1;
    const {left, plotWidth, plotHeight} = this.layout();
    context.scale(sharp, sharp);
    context.beginPath();
    context.rect(left - 3, MAP_TOP - 3, plotWidth + 6, plotHeight + 6);
    context.clip();
    const w = Math.max(6, this.cellWidth), h = Math.max(6, this.cellHeight);
    const [x, y] = this.centre(this.selection.row, column);
    for (const [colour, line, out] of [["#ffffff", 4, 1], ["#000000", 2, 1]]) {
      context.strokeStyle = colour;
      context.lineWidth = line;
      context.strokeRect(x - w / 2 - out, y - h / 2 - out, w + 2 * out, h + 2 * out);
    }
  }

  centre(row, column) {
    return [this.layout().left + (column - this.view.x + 0.5) * this.cellWidth, MAP_TOP + (row - this.view.y + 0.5) * this.cellHeight];
  }

  cellAt(x, y) {
    const column = Math.floor(this.view.x + (x - this.layout().left) / this.cellWidth);
    const row = Math.floor(this.view.y + (y - MAP_TOP) / this.cellHeight);
    const inside = x >= this.layout().left && y >= MAP_TOP && row >= 0 && row < this.rows && column >= 0 && column < this.columns;
    return inside ? {row, column} : null;
  }

  // The position of a column that is shown: of several, the one that is selected.
  positionOf(column) {
    const positions = this.data.columns[column];
    return positions.includes(this.selection.position) ? this.selection.position : positions[0];
  }

  describe(row, column) {
    const positions = this.data.columns[column];
    const at = positions.length > 1 ? `positions ${positions[0]} to ${positions.at(-1)}, the worst` : `position ${positions[0]}`;
    const values = Object.keys(MEASURES).filter(measure => measure !== "own" && (this.data.isJudged || !MEASURES[measure].judges))
      .map(measure => `${MEASURES[measure].title}: ${valueText(codeAt(this.data, measure, row, column), measure)}`);
    return [`${this.data.names[row]}, ${at}`, ...values, ...(positions.length === 1 ? describeToken(this.data, positions[0]) : [])];
  }

  zoom(times, x = 0.5, y = 0.5) {
    const {view} = this;
    const width = Math.min(this.columns, Math.max(Math.min(this.columns, 8), view.width / times));
    const height = Math.min(this.rows, Math.max(Math.min(this.rows, 8), view.height / times));
    this.look(view.x + (view.width - width) * x, view.y + (view.height - height) * y, width, height);
  }

  look(x, y, width = this.view.width, height = this.view.height) {
    this.view = {x: Math.min(Math.max(0, x), this.columns - width), y: Math.min(Math.max(0, y), this.rows - height), width, height};
    this.draw();
  }

  reveal(row, column) {
    const {view} = this;
    const place = (at, from, size) => at < from ? at : at + 1 > from + size ? at + 1 - size : from;
    const x = place(column, view.x, view.width), y = place(row, view.y, view.height);
    if (x !== view.x || y !== view.y) this.look(x, y);
    else this.show();
  }

  nextWrong() {
    const count = this.rows * this.columns;
    const from = Math.max(0, this.selection.row) * this.columns + (this.data.columnOf.get(this.selection.position) ?? -1);
    for (let i = 1; i <= count; ++i) {
      const at = (from + i) % count;
      if (isWrong(this.codes[at], this.measure)) return this.selection.move(Math.floor(at / this.columns), this.data.columns[at % this.columns][0], true);
    }
  }

  listen() {
    const {canvas} = this;
    let drag = null;
    canvas.addEventListener("pointerdown", event => { drag = {x: event.offsetX, y: event.offsetY, view: {...this.view}, moved: false}; });
    canvas.addEventListener("pointermove", event => {
      if (drag !== null && event.buttons === 1 && event.pointerType === "mouse") {
        const x = event.offsetX - drag.x, y = event.offsetY - drag.y;
        drag.moved ||= Math.abs(x) + Math.abs(y) > 5;
        if (drag.moved) this.look(drag.view.x - x / this.cellWidth, drag.view.y - y / this.cellHeight);
        return;
      }
      this.point(event.offsetX, event.offsetY);
    });
    canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    canvas.addEventListener("click", event => {
      const moved = drag?.moved;
      drag = null;
      const cell = this.cellAt(event.offsetX, event.offsetY);
      if (!moved && cell !== null) this.selection.move(cell.row, this.positionOf(cell.column), true);
    });
    canvas.addEventListener("wheel", event => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const {left, plotWidth, plotHeight} = this.layout();
      this.zoom(event.deltaY < 0 ? 1.3 : 1 / 1.3, Math.max(0, event.offsetX - left) / plotWidth, Math.max(0, event.offsetY - MAP_TOP) / plotHeight);
    }, {passive: false});
    canvas.addEventListener("keydown", event => this.press(event));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(canvas.parentElement);
    this.selection.listen(() => {
      const column = this.data.columnOf.get(this.selection.position);
      if (column === undefined) return this.show();
      this.reveal(this.selection.row, column);
      document.getElementById("map-now").textContent = this.describe(this.selection.row, column).join(" · ");
    });
  }

  point(x, y) {
    const cell = this.cellAt(x, y);
    this.tip.hidden = cell === null;
    if (cell === null) return;
    this.tip.textContent = this.describe(cell.row, cell.column).join("\n");
    const {width, height} = this.layout();
    this.tip.style.left = `${Math.max(0, Math.min(x + 14, width - this.tip.offsetWidth - 4))}px`;
    this.tip.style.top = `${y + 18 + this.tip.offsetHeight > height ? Math.max(0, y - this.tip.offsetHeight - 12) : y + 18}px`;
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const layerStep = direction => {
      const {layer} = this.data.checkpoints[Math.max(0, this.selection.row)];
      let row = Math.max(0, this.selection.row);
      while (row + direction >= 0 && row + direction < this.rows && this.data.checkpoints[row].layer === layer) row += direction;
      return row;
    };
    const row = Math.max(0, this.selection.row), column = this.data.columnOf.get(this.selection.position) ?? 0;
    const moves = {ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1], ArrowUp: [row - 1, column], ArrowDown: [row + 1, column],
                   Home: [row, 0], End: [row, this.columns - 1], PageUp: [layerStep(-1), column], PageDown: [layerStep(1), column]};
    if (event.key in moves) {
      const [r, c] = moves[event.key];
      const to = Math.min(Math.max(0, c), this.columns - 1);
      this.selection.move(Math.min(Math.max(0, r), this.rows - 1), this.positionOf(to));
    } else if (event.key === "+" || event.key === "=") this.zoom(1.5);
    else if (event.key === "-") this.zoom(1 / 1.5);
    else if (event.key === "0") { this.all(); this.draw(); }
    else if (event.key === "n") this.nextWrong();
    else if (event.key === "Enter") this.selection.move(row, this.positionOf(column), true);
    else return;
    event.preventDefault();
  }
}

export function showMap(data, selection) {
  if (data.columns.length === 0 || data.names.length === 0) {
    hide("map");
    return null;
  }
  const section = document.getElementById("map");
  const map = new RowMap(data, selection, section.querySelector(".plot"));
  const choice = element("select", {id: "measure", change: () => { map.choose(choice.value); showScale(map); }},
    Object.entries(MEASURES).filter(([, measure]) => data.isJudged || !measure.judges).map(([name, measure]) => element("option", {value: name, selected: name === map.measure}, measure.title)));
  const button = (words, label, act) => element("button", {type: "button", "aria-label": label, title: label, click: act}, words);
  section.querySelector(".tools").append(element("label", {for: "measure"}, "Colour:"), choice, button("+", "Zoom in", () => map.zoom(1.5)), button("−", "Zoom out", () => map.zoom(1 / 1.5)),
    button("All", "Show all", () => { map.all(); map.draw(); }), button("Next wrong row", "Next wrong row", () => map.nextWrong()),
    element("span", {class: "hint"}, "Arrows, + and −, Enter, n; drag to move, Ctrl and wheel to zoom."));
  showScale(map);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => showScale(map));
  return map;
}
