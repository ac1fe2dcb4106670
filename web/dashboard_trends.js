// Numbers by run, a line for each engine.
import {nameOf} from "./dashboard_data.js";
import {frame, ticks, written} from "./charts.js";
import {bodyOf, element, shape, shortNumber} from "./dom.js";

const TREND_WIDTH = 520, TREND_HEIGHT = 250, TREND_LEFT = 58, TREND_RIGHT = 12, TREND_TOP = 14, TREND_BOTTOM = 36;
const MOST_LINES = 8, MOST_DOTS = 150;

const sum = values => values.reduce((all, value) => all + value, 0);
const TRENDS = [
  {field: "ratio", title: "Own error over bound, the worst", logarithmic: true, limit: 1, join: values => Math.max(...values)},
  {field: "kl", title: "Mean KL divergence of the logits, the worst (nats)", logarithmic: true, limit: null, join: values => Math.max(...values)},
  {field: "seconds", title: "Seconds, the sum", logarithmic: false, limit: null, join: sum},
];

// By engine: a number for each run, or null.
function linesOf(shown, trend) {
  const lines = new Map();
  shown.runs.forEach((run, at) => {
    const values = new Map();
    for (const result of run.results)
      if (result[trend.field] !== null && shown.includes(result)) values.set(result.engine, [...(values.get(result.engine) ?? []), result[trend.field]]);
    for (const [engine, those] of values) {
      if (!lines.has(engine)) lines.set(engine, Array(shown.runs.length).fill(null));
      lines.get(engine)[at] = trend.join(those);
    }
  });
  return [...lines].sort(([a], [b]) => a < b ? -1 : 1);
}

function scaleOf(trend, values) {
  if (!trend.logarithmic) return {low: 0, high: Math.max(...values, 1e-9) * 1.05};
  const sizes = values.filter(value => value > 0);
  if (trend.limit !== null) sizes.push(trend.limit);
  if (sizes.length === 0) return {low: -1, high: 0};
  const low = Math.log10(Math.min(...sizes)), high = Math.log10(Math.max(...sizes));
  return {low: low - 0.15, high: Math.max(high, low + 0.5) + 0.15};
}

// Round numbers of a logarithmic axis: powers of ten, or 1, 2, 5 where there are few of these.
function marksOf(trend, low, high) {
  if (!trend.logarithmic) return ticks(low, high);
  const powers = [];
  for (let power = Math.floor(low); power <= Math.ceil(high); ++power) powers.push(power);
  const every = Math.ceil((high - low) / 6);
  const wide = powers.filter(power => power % every === 0).map(power => 10 ** power);
  const all = high - low < 2 ? powers.flatMap(power => [1, 2, 5].map(times => times * 10 ** power)) : wide;
  return all.filter(value => Math.log10(value) >= low && Math.log10(value) <= high);
}

function chartOf(shown, trend) {
  const lines = linesOf(shown, trend);
  const heading = element("h3", {}, trend.title);
  if (lines.length === 0) return element("div", {"data-trend": trend.field}, heading, element("p", {class: "hint"}, "No run has this number."));
  const drawn = lines.slice(0, MOST_LINES), runs = shown.runs, arm = runs.length <= MOST_DOTS ? 4 : 2;
  const {low, high} = scaleOf(trend, drawn.flatMap(([, values]) => values.filter(value => value !== null)));
  const svg = frame(`${trend.title}, by run`, TREND_WIDTH, TREND_HEIGHT);
  const x = at => TREND_LEFT + 8 + (TREND_WIDTH - TREND_LEFT - TREND_RIGHT - 16) * (runs.length > 1 ? at / (runs.length - 1) : 0.5);
  const y = value => {
    const at = trend.logarithmic ? Math.log10(Math.max(value, 1e-300)) : value;
    return TREND_HEIGHT - TREND_BOTTOM - (TREND_HEIGHT - TREND_TOP - TREND_BOTTOM) * Math.min(1, Math.max(0, (at - low) / (high - low)));
  };
  for (const at of marksOf(trend, low, high))
    svg.append(shape("line", {class: "grid", x1: TREND_LEFT, x2: TREND_WIDTH - TREND_RIGHT, y1: y(at), y2: y(at)}), written(TREND_LEFT - 6, y(at) + 4, shortNumber(at), "end"));
  if (trend.limit !== null) svg.append(shape("line", {class: "limit", x1: TREND_LEFT, x2: TREND_WIDTH - TREND_RIGHT, y1: y(trend.limit), y2: y(trend.limit)}));
  const chosen = runs.indexOf(shown.run);
  svg.append(shape("line", {class: "now", x1: x(chosen), x2: x(chosen), y1: TREND_TOP, y2: TREND_HEIGHT - TREND_BOTTOM}));
  drawn.forEach(([engine, values], number) => {
    const there = values.map((value, at) => ({value, at})).filter(point => point.value !== null);
    svg.append(shape("polyline", {class: `trend t${number}`, points: there.map(({value, at}) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ")}));
    for (const {value, at} of there) {
      const bad = runs[at].results.some(result => result.engine === engine && shown.includes(result) && result.status.word !== "passed");
      if (bad) svg.append(shape("path", {class: "cross", d: `M${(x(at) - arm).toFixed(1)},${(y(value) - arm).toFixed(1)}l${2 * arm},${2 * arm}m0,-${2 * arm}l-${2 * arm},${2 * arm}`}));
      else if (runs.length <= MOST_DOTS) svg.append(shape("circle", {class: `dot t${number}`, cx: x(at).toFixed(1), cy: y(value).toFixed(1), r: 3}));
    }
  });
  svg.append(written(x(0), TREND_HEIGHT - 16, nameOf(runs[0]).slice(0, 16), "start"));
  if (runs.length > 1) svg.append(written(x(runs.length - 1), TREND_HEIGHT - 16, nameOf(runs.at(-1)).slice(0, 16), "end"));
  const words = at => `${nameOf(runs[at])}: ` + drawn.map(([engine, values]) => `${engine} ${shortNumber(values[at])}`).join(", ");
  const told = element("p", {class: "now", role: "status"}, words(chosen));
  const at = event => {
    const box = svg.getBoundingClientRect();
    const place = (event.clientX - box.left) / box.width * TREND_WIDTH;
    return runs.reduce((best, _, i) => Math.abs(x(i) - place) < Math.abs(x(best) - place) ? i : best, 0);
  };
  const focusAgain = () => document.querySelector(`[data-trend=${trend.field}] svg`)?.focus();
  const plot = element("div", {class: "plot", pointermove: event => { told.textContent = words(at(event)); }, pointerleave: () => { told.textContent = words(chosen); },
    click: event => shown.choose(runs[at(event)])}, svg);
  svg.setAttribute("tabindex", "0");
  svg.addEventListener("keydown", event => {
    const by = {ArrowLeft: -1, ArrowRight: 1, Home: -runs.length, End: runs.length}[event.key];
    if (by === undefined) return;
    event.preventDefault();
    shown.step(by);
    focusAgain();
  });
  const legend = element("p", {class: "lines"}, drawn.map(([engine], number) => element("span", {},
    shape("svg", {viewBox: "0 0 34 10", "aria-hidden": "true"}, shape("line", {class: `trend t${number}`, x1: 0, x2: 34, y1: 5, y2: 5})), engine)),
    lines.length > drawn.length ? element("span", {}, `${lines.length - drawn.length} more engines: choose a cell of the matrix`) : null);
  return element("div", {"data-trend": trend.field}, heading, plot, told, legend);
}

export function showTrends(shown) {
  shown.listen(() => bodyOf("trends").replaceChildren(element("div", {class: "columns"}, TRENDS.map(trend => chartOf(shown, trend)))));
}
