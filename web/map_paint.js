// What stands on and beside the map: marks, labels, and the scale of its colours.
import {element, shortNumber} from "./dom.js";
import {MISSING, NOT_JUDGED} from "./data.js";
import {MEASURES, css, isWrong, palette} from "./scale.js";

export const MAP_TOP = 20;  // for the positions above it
export const MARKS = 8;     // width of the marks beside it

// So that colour is not all that tells: a cross where it is wrong, a stroke where it is missing, a dot where it was not judged.
export function paintMarks(map, context, colours, {x0, x1, y0, y1}, left) {
  const w = map.cellWidth, h = map.cellHeight, size = Math.min(w, h, 16) / 4;
  context.lineWidth = 1.4;
  for (let row = y0; row < y1; ++row)
    for (let column = x0; column < x1; ++column) {
      const code = map.codes[row * map.columns + column];
      const x = left + (column - map.view.x + 0.5) * w, y = MAP_TOP + (row - map.view.y + 0.5) * h;
      context.strokeStyle = css(colours.ink);
      context.globalAlpha = 0.12;
      context.strokeRect(x - w / 2, y - h / 2, w, h);
      context.globalAlpha = 1;
      if (code === MISSING) {
        context.beginPath();
        context.moveTo(x - w / 2, y + h / 2);
        context.lineTo(x + w / 2, y - h / 2);
        context.globalAlpha = 0.45;
        context.stroke();
        context.globalAlpha = 1;
      } else if (code === NOT_JUDGED) {
        context.fillStyle = css(colours.ink);
        context.globalAlpha = 0.45;
        context.fillRect(x - 1, y - 1, 2, 2);
        context.globalAlpha = 1;
      } else if (isWrong(code, map.measure)) {
        context.strokeStyle = "#ffffff";
        context.beginPath();
        // Beside the centre, so that the colour of a cell is that of its number.
        context.moveTo(x - size * 1.6, y - size * 1.6);
        context.lineTo(x - size * 0.4, y - size * 0.4);
        context.moveTo(x - size * 0.4, y - size * 1.6);
        context.lineTo(x - size * 1.6, y - size * 0.4);
        context.stroke();
      }
    }
}

export function paintLabels(map, context, {x0, x1, y0, y1}, left, plotWidth) {
  const style = getComputedStyle(document.documentElement);
  const dim = style.getPropertyValue("--dim"), bad = style.getPropertyValue("--bad");
  context.font = `${map.cellHeight >= 12 ? 11 : 10}px system-ui, sans-serif`;
  context.textBaseline = "middle";
  let free = -Infinity, layer = -1;
  for (let row = y0; row < y1; ++row) {
    const y = MAP_TOP + (row - map.view.y + 0.5) * map.cellHeight;
    if (y < MAP_TOP || y > MAP_TOP + map.view.height * map.cellHeight) continue;
    const checkpoint = map.data.checkpoints[row];
    const starts = checkpoint.layer !== layer;
    layer = checkpoint.layer;
    if (map.wrongRows[row]) {
      context.fillStyle = bad;
      context.beginPath();
      context.moveTo(left - MARKS, y - 3);
      context.lineTo(left - 2, y);
      context.lineTo(left - MARKS, y + 3);
      context.fill();
    }
    const detailed = map.cellHeight >= 10;
    if (!detailed && (!starts || y < free)) continue;
    free = y + 12;
    context.fillStyle = map.wrongRows[row] && detailed ? bad : dim;
    const words = checkpoint.layer === null || detailed && !starts ? map.labels[row] : detailed ? `${layer} · ${map.labels[row]}` : `layer ${layer}`;
    context.textAlign = "right";
    context.fillText(words, left - MARKS - 3, y, left - MARKS - 5);
  }
  context.textAlign = "center";
  context.fillStyle = dim;
  const least = Math.max(1, 48 / map.cellWidth), power = 10 ** Math.floor(Math.log10(least));
  const every = [1, 2, 5, 10].map(times => times * power).find(size => size >= least);
  for (let column = Math.ceil(x0 / every) * every; column < x1; column += every) {
    const x = left + (column - map.view.x + 0.5) * map.cellWidth;
    if (x >= left && x <= left + plotWidth - 8) context.fillText(String(map.data.columns[column][0]), x, MAP_TOP / 2);
  }
}

export function showScale(map) {
  const colours = palette();
  const swatch = (colour, mark, words) => element("span", {}, element("span", {class: "swatch", style: `background:${css(colour)};color:${css(colours.ink)}`}, mark), words);
  const ramp = (pair, from, to) => element("span", {}, from, element("span", {class: "ramp", style: `background:linear-gradient(90deg, ${css(pair[0])}, ${css(pair[1])})`}), to);
  const judges = MEASURES[map.measure].judges;
  document.getElementById("map-scale").replaceChildren(element("span", {class: "scale"},
    swatch(colours.zero, "", judges ? "no error" : "the same"),
    judges ? [ramp(colours.right, "right: 0.01", "1 times the bound"), ramp(colours.wrong, "✕ wrong: 1", "10,000 and more")]
           : ramp(colours.apart, shortNumber(map.range[0]), shortNumber(map.range[1])),
    swatch(colours.notJudged, "·", judges ? "not judged" : "not compared"), swatch(colours.missing, "╱", "missing on a side"),
    element("span", {}, "▶ a line with something wrong")));
}
