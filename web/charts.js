// The few charts of the page, as SVG of our own: a library would be many times their size, and none knows bounds and bands.
import {element, shape, shortNumber} from "./dom.js";

const CHART_WIDTH = 480, CHART_HEIGHT = 260, CHART_LEFT = 56, CHART_RIGHT = 10, CHART_TOP = 18, CHART_BOTTOM = 34;

export function frame(title, width = CHART_WIDTH, height = CHART_HEIGHT) {
  return shape("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title}, shape("title", {}, title));
}

export function written(x, y, words, anchor = "middle") {
  return shape("text", {x, y, "text-anchor": anchor}, words);
}

// Numbers at round distances, some five of them.
export function ticks(least, most) {
  const step = 10 ** Math.floor(Math.log10((most - least) / 4 || 1));
  const wide = [1, 2, 5, 10].map(times => times * step).find(size => (most - least) / size <= 7) ?? 10 * step;
  const out = [];
  for (let at = Math.ceil(least / wide) * wide; at <= most + wide / 1e6; at += wide) out.push(Math.abs(at) < wide / 1e6 ? 0 : at);
  return out;
}

// Recorded by expected; on the line the two are equal.
export function scatter(points, worst, across = "expected") {
  const svg = frame(`Recorded numbers by numbers ${across}`);
  const finite = points.filter(point => Number.isFinite(point.x) && Number.isFinite(point.y));
  if (finite.length === 0) return element("p", {class: "hint"}, "No finite numbers to show.");
  let least = Infinity, most = -Infinity;
  for (const {x, y} of finite) {
    least = Math.min(least, x, y);
    most = Math.max(most, x, y);
  }
  if (least === most) {
    least -= 1;
    most += 1;
  }
  const edge = (most - least) / 40;
  least -= edge;
  most += edge;
  const x = value => CHART_LEFT + (CHART_WIDTH - CHART_LEFT - CHART_RIGHT) * (value - least) / (most - least);
  const y = value => CHART_HEIGHT - CHART_BOTTOM - (CHART_HEIGHT - CHART_TOP - CHART_BOTTOM) * (value - least) / (most - least);
  for (const at of ticks(least, most))
    svg.append(shape("line", {class: "grid", x1: CHART_LEFT, x2: CHART_WIDTH - CHART_RIGHT, y1: y(at), y2: y(at)}), written(CHART_LEFT - 5, y(at) + 4, shortNumber(at), "end"),
               written(x(at), CHART_HEIGHT - CHART_BOTTOM + 14, shortNumber(at)));
  svg.append(shape("line", {class: "limit", x1: x(least), y1: y(least), x2: x(most), y2: y(most)}),
             written((CHART_LEFT + CHART_WIDTH) / 2, CHART_HEIGHT - 4, across), written(CHART_LEFT, CHART_TOP - 7, "recorded", "start"));
  for (const point of finite) {
    const bad = worst.has(point.index);
    svg.append(shape("circle", {class: bad ? "dot worst" : "dot", cx: x(point.x).toFixed(1), cy: y(point.y).toFixed(1), r: bad ? 4 : 1.8},
                     shape("title", {}, `element ${point.index}: recorded ${shortNumber(point.y)}, ${across} ${shortNumber(point.x)}`)));
  }
  const left = points.length - finite.length;
  return left === 0 ? svg : element("div", {}, svg, element("p", {class: "hint"}, `Not drawn: ${left} that are masked or not finite.`));
}

// Bars: [{label, value, wrong, title}]; `limit`: a line.
export function bars(title, axis, entries, logarithmic, limit = null) {
  const svg = frame(title);
  const sizes = entries.map(entry => entry.value).filter(value => value > 0 && Number.isFinite(value));
  const top = Math.max(limit ?? 0, ...sizes, 1e-12);
  const low = logarithmic ? Math.floor(Math.log10(Math.min(limit ?? Infinity, ...sizes, top))) - 0.3 : 0;
  const high = logarithmic ? Math.log10(top) + 0.2 : top * 1.05;
  const y = value => {
    const at = logarithmic ? Math.log10(Math.max(value, 1e-300)) : value;
    return CHART_HEIGHT - CHART_BOTTOM - (CHART_HEIGHT - CHART_TOP - CHART_BOTTOM) * Math.min(1, Math.max(0, (at - low) / (high - low)));
  };
  const step = (CHART_WIDTH - CHART_LEFT - CHART_RIGHT) / Math.max(1, entries.length);
  const every = Math.ceil(entries.length * 40 / (CHART_WIDTH - CHART_LEFT - CHART_RIGHT));
  const marks = logarithmic ? ticks(low, high).filter(Number.isInteger).map(power => 10 ** power) : ticks(low, high);
  for (const at of marks)
    svg.append(shape("line", {class: "grid", x1: CHART_LEFT, x2: CHART_WIDTH - CHART_RIGHT, y1: y(at), y2: y(at)}), written(CHART_LEFT - 5, y(at) + 4, shortNumber(at), "end"));
  entries.forEach((entry, i) => {
    const from = y(entry.value);
    svg.append(shape("rect", {class: entry.wrong ? "bar wrong" : "bar", x: CHART_LEFT + i * step + step * 0.1, width: step * 0.8, y: from,
                              height: Math.max(entry.value > 0 ? 1 : 0, CHART_HEIGHT - CHART_BOTTOM - from)}, shape("title", {}, entry.title)));
    if (i % every === 0) svg.append(written(CHART_LEFT + (i + 0.5) * step, CHART_HEIGHT - CHART_BOTTOM + 14, entry.label));
  });
  if (limit !== null) svg.append(shape("line", {class: "limit", x1: CHART_LEFT, x2: CHART_WIDTH - CHART_RIGHT, y1: y(limit), y2: y(limit)}));
  svg.append(written((CHART_LEFT + CHART_WIDTH) / 2, CHART_HEIGHT - 4, axis));
  return svg;
}

// Lines of numbers as a picture: attention by head and key.
export function picture(title, lines, width, valueAt) {
  const canvas = element("canvas", {width, height: lines, role: "img", "aria-label": title});
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, lines);
  let most = 0;
  for (let i = 0; i < width * lines; ++i) if (Number.isFinite(valueAt(i))) most = Math.max(most, Math.abs(valueAt(i)));
  for (let i = 0; i < width * lines; ++i) {
    const value = valueAt(i);
    const share = most > 0 && Number.isFinite(value) ? value / most : 0;
    const colour = Number.isFinite(value) ? (share >= 0 ? [31, 95, 168] : [178, 64, 26]) : [128, 128, 128];
    const strength = Number.isFinite(value) ? Math.sqrt(Math.abs(share)) : 0.6;
    for (let part = 0; part < 3; ++part) image.data[4 * i + part] = 255 + strength * (colour[part] - 255);
    image.data[4 * i + 3] = 255;
  }
  context.putImageData(image, 0, 0);
  return element("figure", {}, canvas, element("figcaption", {}, `${title}; strongest ${shortNumber(most)}`));
}

