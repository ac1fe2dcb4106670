// The data of the page: what `compare --json` prints, and `page` (docs/report-page.md).

export const MISSING = 0, NOT_JUDGED = 1, ZERO = 2, INFINITE = 65535;
export const ONE = 16384;
const STEPS = 16;

// The number that a code of the map stands for; null where there is none.
export function sizeOf(code) {
  if (code <= NOT_JUDGED) return null;
  if (code === ZERO) return 0;
  if (code === INFINITE) return Infinity;
  return 2 ** ((code - ONE) / STEPS);
}

export function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; ++i) bytes[i] = text.charCodeAt(i);
  return bytes;
}

async function codesOf(base64) {
  const stream = new Blob([bytesOf(base64)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint16Array(await new Response(stream).arrayBuffer());
}

export async function readData() {
  const block = document.getElementById("data");
  const data = JSON.parse(block.textContent);
  block.remove();  // it may be large
  const page = data.page;
  const rows = {};
  for (const name of Object.keys(page.rows)) {
    rows[name] = await codesOf(page.rows[name]);
    page.rows[name] = null;
  }
  const own = new Uint16Array(rows.own_reference.length);
  for (let i = 0; i < own.length; ++i) {
    const worse = Math.max(rows.own_reference[i], rows.own_suspect[i]);
    // A side that is right does not hide that the other one is missing.
    own[i] = worse <= ONE && rows.relative_l2[i] === MISSING ? MISSING : worse;
  }
  data.rows = {own, ...rows};
  const all = page.positions.flatMap(([first, last]) => Array.from({length: last - first + 1}, (_, i) => first + i));
  data.columns = [];  // positions of each
  for (let i = 0; i < all.length; i += page.group) data.columns.push(all.slice(i, i + page.group));
  data.columnOf = new Map(data.columns.flatMap((positions, column) => positions.map(position => [position, column])));
  data.names = data.checkpoints.map(checkpoint => checkpoint.name);
  data.rowOf = new Map(data.names.map((name, row) => [name, row]));
  data.opened = new Map();
  for (const row of page.opened) {
    const key = openKey(row.checkpoint, row.position);
    data.opened.set(key, [...(data.opened.get(key) ?? []), row]);
  }
  data.logits = new Map(page.logits.map(entry => [entry[0], entry]));
  data.isJudged = data.judged > 0 || data.reference.judged || data.suspect.judged;
  return data;
}

export function openKey(checkpoint, position) {
  return `${position} ${checkpoint}`;
}

export function codeAt(data, measure, row, column) {
  return data.rows[measure][row * data.columns.length + column];
}

export function isBad(verdict) {
  return verdict === "defect" || verdict === "garbage" || verdict === "differs";
}

// What is shown: one row (a checkpoint at a position). Parts of the page listen.
export class Selection {
  constructor() {
    this.row = -1;
    this.position = null;
    this.listeners = [];
  }
  listen(listener) {
    this.listeners.push(listener);
  }
  move(row, position, opens = false) {
    this.row = row;
    this.position = position;
    for (const listener of this.listeners) listener(opens);
  }
}

// The words of a text such as "token 5, 'rain'".
export function tokenText(data, side, index) {
  const tokens = data.page.tokens[side];
  if (index >= tokens.ids.length) return null;
  return tokens.texts === null ? String(tokens.ids[index]) : tokens.texts[index];
}
