// From numbers to colours. Blue is right and orange is wrong, which colour-blind people tell apart; the map marks what is
// wrong with crosses too.
import {INFINITE, MISSING, NOT_JUDGED, ONE, ZERO, sizeOf} from "./data.js";

export const MEASURES = {
  own: {title: "own error over bound, worse side", judges: true},
  own_reference: {title: "own error over bound, reference", judges: true},
  own_suspect: {title: "own error over bound, suspect", judges: true},
  relative_l2: {title: "relative L2 difference", judges: false},
  inherited: {title: "inherited difference", judges: false},
};

const PALETTES = {
  light: {missing: [190, 196, 204], notJudged: [226, 221, 206], zero: [244, 247, 251], right: [[219, 233, 246], [31, 95, 168]],
    wrong: [[247, 168, 60], [158, 20, 10]], apart: [[239, 233, 247], [74, 20, 134]], ink: [28, 33, 39]},
  dark: {missing: [70, 76, 84], notJudged: [58, 53, 42], zero: [27, 35, 44], right: [[31, 52, 73], [111, 177, 245]],
    wrong: [[232, 150, 40], [255, 92, 70]], apart: [[43, 35, 64], [199, 169, 245]], ink: [228, 231, 235]},
};
export const RIGHT_FROM = 1e-2, WRONG_TO = 1e4;

export function palette() {
  return PALETTES[matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"];
}

function between([from, to], share) {
  const t = Math.min(1, Math.max(0, share));
  return from.map((part, i) => Math.round(part + t * (to[i] - part)));
}

// Smallest and largest number of a measure that is neither 0 nor infinite.
export function rangeOf(codes) {
  let least = INFINITE, most = 0;
  for (let i = 0; i < codes.length; ++i) {
    const code = codes[i];
    if (code <= ZERO || code === INFINITE) continue;
    if (code < least) least = code;
    if (code > most) most = code;
  }
  return most === 0 ? [1e-9, 1] : [sizeOf(least), sizeOf(most)];
}

export function colourOf(code, measure, range, colours = palette()) {
  if (code === MISSING) return colours.missing;
  if (code === NOT_JUDGED) return colours.notJudged;
  if (code === ZERO) return colours.zero;
  const size = sizeOf(code);
  if (size === Infinity) return colours.wrong[1];
  if (!MEASURES[measure].judges) {
    const [least, most] = range.map(Math.log10);
    return between(colours.apart, most > least ? (Math.log10(size) - least) / (most - least) : 1);
  }
  if (size <= 1) return between(colours.right, 1 - Math.log10(size) / Math.log10(RIGHT_FROM));
  return between(colours.wrong, Math.log10(size) / Math.log10(WRONG_TO));
}

export function isWrong(code, measure) {
  return code === INFINITE || (MEASURES[measure].judges && code > ONE);
}

export const css = ([r, g, b]) => `rgb(${r}, ${g}, ${b})`;
