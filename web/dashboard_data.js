// The runs of the page (docs/dashboard.md), and how two of them differ.

// By their numbers in the data. `rank`: the largest of several results is what a cell shows.
export const STATUSES = [
  {word: "passed", mark: "✓", rank: 0, text: "In parity with the reference: no operation is wrong, and the same tokens were chosen."},
  {word: "failed", mark: "✕", rank: 3, text: "Judged, and not in parity; or worse than the baseline allows."},
  {word: "known", mark: "≈", rank: 1, text: "Not in parity, by defects that the suite lists as known."},
  {word: "error", mark: "?", rank: 2, text: "Could not be judged: a crash, a hang, a trace that is missing or broken. Never a pass."},
];

// Of a result against the one of the same name in another run.
export const CHANGES = {
  worse: {mark: "▼", word: "worse"},
  larger: {mark: "▼", word: "larger error"},
  other: {mark: "◆", word: "other verdict"},
  gone: {mark: "−", word: "gone"},
  added: {mark: "+", word: "new"},
  better: {mark: "▲", word: "better"},
};

const LEAST_GROWTH = 1.25, LEAST_STEP = 0.05;  // of error over bound, as `check --baseline` has it

export function readRuns() {
  const block = document.getElementById("data");
  const data = JSON.parse(block.textContent);
  block.remove();
  const texts = data.texts;
  data.runs.forEach((run, number) => {
    run.number = number;
    run.group = run.part === null ? run.name : `${run.name}, part ${run.part[0]} of ${run.part[1]}`;
    run.results = run.results.map(([id, model, suspect, reference, status, verdict, why, ratio, kl, seconds, report]) => ({
      id: texts[id], model: texts[model], status: STATUSES[status], verdict: texts[verdict], why: texts[why], ratio, kl, seconds, report,
      engine: texts[reference] === "reference" ? texts[suspect] : `${texts[suspect]} against ${texts[reference]}`}));
    run.byId = new Map(run.results.map(result => [result.id, result]));
    run.counts = STATUSES.map(status => run.results.filter(result => result.status === status).length);
    run.good = run.complete && run.counts[1] === 0 && run.counts[3] === 0;
  });
  return data;
}

// Suites that have runs; the one with the newest run first.
export function groupsOf(runs) {
  const groups = new Map();
  for (const run of runs.toReversed()) groups.set(run.group, [run, ...(groups.get(run.group) ?? [])]);
  return groups;
}

export function nameOf(run) {
  const commit = run.commit === null ? "" : `, ${run.commit.slice(0, 10)}`;
  return `${run.time.replace("T", " ").replace(/Z$/, "")}${commit}`;
}

export function changeOf(was, is) {
  if (was === undefined) return CHANGES.added;
  if (is === undefined) return CHANGES.gone;
  if (is.status.rank !== was.status.rank) return is.status.rank > was.status.rank ? CHANGES.worse : CHANGES.better;
  if (is.verdict !== was.verdict) return CHANGES.other;
  if (is.ratio !== null && was.ratio !== null && is.ratio > LEAST_GROWTH * was.ratio && is.ratio > was.ratio + LEAST_STEP) return CHANGES.larger;
  return null;
}

// All results of either run: {is, was, change}; without another run nothing is a change.
export function pairsOf(run, before) {
  const pairs = run.results.map(is => ({is, was: before?.byId.get(is.id), any: is}));
  for (const was of before?.results ?? []) if (!run.byId.has(was.id)) pairs.push({is: undefined, was, any: was});
  for (const pair of pairs) pair.change = before === null ? null : changeOf(pair.was, pair.is);
  return pairs;
}

// What is shown: a run, the one that it is held against, and a cell of the matrix or none.
export class Shown {
  constructor(groups) {
    this.groups = groups;
    this.listeners = [];
    this.group = [...groups.keys()][0];
    this.cell = null;
    this.run = this.runs.at(-1);
    this.before = this.runs.at(-2) ?? null;
  }
  get runs() {
    return this.groups.get(this.group);
  }
  includes(result) {
    return this.cell === null || (result.model === this.cell.model && result.engine === this.cell.engine);
  }
  listen(listener) {
    this.listeners.push(listener);
    listener();
  }
  tell() {
    for (const listener of this.listeners) listener();
  }
  // The run that lies before in time is what it is held against, until another one is chosen.
  choose(run) {
    this.run = run;
    this.before = this.runs[this.runs.indexOf(run) - 1] ?? null;
    this.tell();
  }
  step(by) {
    const at = this.runs.indexOf(this.run) + by;
    this.choose(this.runs[Math.min(this.runs.length - 1, Math.max(0, at))]);
  }
}
