// How far the sides are apart by depth, beside what rounding explains.
import {frame, written} from "./charts.js";
import {isBad} from "./data.js";
import {bodyOf, element, hide, shape, shortNumber} from "./dom.js";
import {worstPosition} from "./table.js";

const DRIFT_WIDTH = 1060, DRIFT_HEIGHT = 300, DRIFT_LEFT = 60, DRIFT_RIGHT = 14, DRIFT_TOP = 14, DRIFT_BOTTOM = 34;

const isStation = name => ["embedding", "final_norm", "logits"].includes(name) || /^blk\.\d+\.output$/.test(name);

export function showDrift(data, selection) {
  const points = data.checkpoints.map((checkpoint, row) => ({checkpoint, row, value: checkpoint.non_finite_differs > 0 ? Infinity : checkpoint.relative_l2 ?? Infinity}))
    .filter(point => point.checkpoint.positions > 0);
  const sizes = points.map(point => point.value).filter(value => value > 0 && Number.isFinite(value));
  if (points.length === 0) return hide("drift");
  if (sizes.length === 0 && points.every(point => point.value === 0)) {
    bodyOf("drift").append(element("p", {}, "Nowhere do the sides differ: there is no drift to draw."));
    return;
  }
  const band = data.page.explained;
  const shownBand = points.map(point => band[point.row]).filter(value => value > 0);
  const low = Math.floor(Math.log10(Math.min(...sizes, ...shownBand))), high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...sizes, ...shownBand))));
  const svg = frame("Relative L2 difference by checkpoint", DRIFT_WIDTH, DRIFT_HEIGHT);
  const x = row => DRIFT_LEFT + 10 + (DRIFT_WIDTH - DRIFT_LEFT - DRIFT_RIGHT - 20) * (data.names.length > 1 ? row / (data.names.length - 1) : 0.5);
  const y = value => DRIFT_HEIGHT - DRIFT_BOTTOM - (DRIFT_HEIGHT - DRIFT_TOP - DRIFT_BOTTOM) * Math.min(1, Math.max(0, (Math.log10(Math.max(value, 1e-300)) - low) / (high - low)));
  const edge = points.map(point => `${x(point.row).toFixed(1)},${y(band[point.row]).toFixed(1)}`);
  svg.append(shape("polygon", {class: "band", points: [`${x(points[0].row)},${DRIFT_HEIGHT - DRIFT_BOTTOM}`, ...edge, `${x(points.at(-1).row)},${DRIFT_HEIGHT - DRIFT_BOTTOM}`].join(" ")}));
  const every = Math.max(1, Math.ceil((high - low) / 6));
  for (let power = low; power <= high; power += every)
    svg.append(shape("line", {class: "grid", x1: DRIFT_LEFT, x2: DRIFT_WIDTH - DRIFT_RIGHT, y1: y(10 ** power), y2: y(10 ** power)}), written(DRIFT_LEFT - 6, y(10 ** power) + 4, power === 0 ? "1" : `1e${power}`, "end"));
  let free = 0, layer = null;
  for (const {checkpoint, row} of points) {
    if (checkpoint.layer !== null && checkpoint.layer !== layer && x(row) >= free) {
      svg.append(written(x(row), DRIFT_HEIGHT - DRIFT_BOTTOM + 16, `layer ${checkpoint.layer}`, "start"));
      free = x(row) + 62;
    }
    layer = checkpoint.layer;
  }
  const stations = points.filter(point => isStation(point.checkpoint.name));
  if (stations.length > 1) svg.append(shape("polyline", {class: "line", points: stations.map(point => `${x(point.row).toFixed(1)},${y(point.value).toFixed(1)}`).join(" ")}));
  const now = shape("line", {class: "now", y1: DRIFT_TOP, y2: DRIFT_HEIGHT - DRIFT_BOTTOM});
  svg.append(now);
  for (const {checkpoint, row, value} of points) {
    const at = x(row), up = y(value), bad = isBad(checkpoint.verdict), r = isStation(checkpoint.name) ? 4 : 2.4;
    svg.append(bad ? shape("path", {class: "cross", d: `M${at - 5},${up - 5}l10,10m0,-10l-10,10`}) : shape("circle", {class: "dot", cx: at.toFixed(1), cy: up.toFixed(1), r}),
               shape("circle", {class: "hit", cx: at.toFixed(1), cy: up.toFixed(1), r: 7, click: () => selection.move(row, worstPosition(checkpoint), true)},
                     shape("title", {}, `${checkpoint.name}: relative L2 ${shortNumber(value)}, ${checkpoint.verdict}; the declared types may explain ${shortNumber(band[row])}`)));
  }
  bodyOf("drift").append(element("p", {class: "hint"}, "Relative L2 difference of every checkpoint in order of execution; the line joins the outputs of the layers. " +
    "The band is about what rounding in the declared types explains. ✕: wrong."), element("div", {class: "plot"}, svg));
  selection.listen(() => {
    now.setAttribute("x1", x(selection.row));
    now.setAttribute("x2", x(selection.row));
  });
}
