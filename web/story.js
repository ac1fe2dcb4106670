// From the top: the verdict, its cause and proof, and what to do next.
import {bodyOf, commandLine, element, exactNumber, shellWord, shortNumber} from "./dom.js";

export const VERDICTS = {
  exact: ["=", "Both sides have the same bits."],
  rounding: ["≈", "The sides differ by what rounding of this operation explains."],
  drift: ["↘", "This operation is right by itself; the difference came in with its inputs."],
  close: ["~", "Nothing was replayed here; the difference is no larger than the declared types may explain."],
  defect: ["✕", "This operation is wrong: its own error is larger than rounding explains."],
  garbage: ["☒", "Numbers that no computation from the inputs gives, such as a NaN from finite inputs."],
  differs: ["≠", "Nothing was replayed here, and the difference is larger than the declared types may explain."],
  missing: ["–", "One side did not record it, or recorded it with another width; that is never a pass."],
};

const rangesText = numbers => {
  const out = [];
  for (let i = 0; i < numbers.length; ++i) {
    const first = numbers[i];
    while (i + 1 < numbers.length && numbers[i + 1] === numbers[i] + 1) ++i;
    out.push(first === numbers[i] ? `${first}` : `${first}–${numbers[i]}`);
  }
  return out.length > 12 ? `${out.slice(0, 12).join(", ")}, …` : out.join(", ");
};

// How one number comes about: its formula, and the parts that matter most.
function workingOf(title, value, working) {
  const lines = [element("p", {}, `${title} ${exactNumber(value)}`)];
  if (!working) return lines;
  lines.push(element("p", {class: "formula mono"}, working.formula));
  const partText = part => part.factors.length > 0 ? `${part.factors.map(shortNumber).join(" · ")} = ${shortNumber(part.value)}` : exactNumber(part.value);
  const rows = working.parts.map(part => [part.name, partText(part)]);
  if (working.others > 0) rows.push([`${working.others} smaller terms`, shortNumber(working.others_sum)]);
  lines.push(element("div", {class: "scroll"}, element("table", {}, element("tbody", {}, rows.map(row => element("tr", {}, row.map(text => element("td", {}, text))))))));
  return lines;
}

function workedOut(diagnosis, worst) {
  return element("details", {class: "worked-out"}, element("summary", {}, `The number that is furthest off, worked out: position ${worst.position}, ${worst.place}`),
    element("p", {}, `Recorded ${exactNumber(worst.recorded)}`),
    workingOf("Should be", worst.expected, worst.expected_from),
    worst.found === null ? null : workingOf(`Under ${diagnosis.cause}`, worst.found, worst.found_from));
}

function causeOf(diagnosis, worst) {
  const {evidence} = diagnosis;
  const parts = [element("p", {}, element("span", {class: "id"}, diagnosis.cause === "unknown" ? "Cause not known" : `Cause: ${diagnosis.cause}`), " ",
                         diagnosis.cause === "unknown" ? null : element("span", {class: "badge"}, diagnosis.proof), ` in the ${diagnosis.side}, at ${diagnosis.checkpoint}`),
                 element("p", {}, diagnosis.text)];
  if (evidence && evidence.rows > 0 && diagnosis.cause !== "unknown")
    parts.push(element("p", {}, `Proof: computed with this mistake, ${evidence.explained} of ${evidence.rows} wrong rows come out as recorded. ` +
                       `The worst error over its bound falls from ${shortNumber(evidence.ratio_before ?? Infinity)} to ${shortNumber(evidence.ratio_after ?? Infinity)}.`));
  const parameters = Object.entries(diagnosis.parameters ?? {});
  if (parameters.length > 0) parts.push(element("p", {class: "hint"}, parameters.map(([name, value]) => `${name}: ${Array.isArray(value) ? rangesText(value) : value}`).join(" · ")));
  if (diagnosis.layers?.length > 1) parts.push(element("p", {class: "hint"}, `Layers ${rangesText(diagnosis.layers)}`));
  if (diagnosis.alternatives?.length > 0) parts.push(element("p", {class: "hint"}, `Explains it as well: ${diagnosis.alternatives.join(", ")}`));
  if (diagnosis.fix) parts.push(element("p", {}, diagnosis.fix));
  if (worst) parts.push(workedOut(diagnosis, worst));
  return element("div", {class: "cause"}, parts);
}

export function showStory(data) {
  const unsure = ["inconclusive", "nothing to compare"].includes(data.verdict);
  const story = document.getElementById("story");
  if (data.parity) story.classList.add("good");
  else if (unsure) story.classList.add("unsure");
  story.append(element("h1", {}, element("span", {class: "mark", "aria-hidden": "true"}, data.parity ? "✓" : unsure ? "?" : "✕"), data.headline));
  if (data.page.evidence) story.append(element("p", {id: "evidence"}, data.page.evidence));
  (data.diagnoses ?? []).forEach((diagnosis, i) => story.append(causeOf(diagnosis, data.page.elements?.[i])));
  for (const sentence of data.page.left_out) story.append(element("p", {class: "hint left-out"}, sentence));
  showNext(data);
  showFacts(data);
  showLegend();
  document.querySelector("footer").append(`lockstep ${data.page.program}`);
}

// Commands that lead on from here: [sentence, words].
export function nextCommands(data) {
  const base = ["lockstep", "compare", shellWord(data.reference.path), shellWord(data.suspect.path)];
  const model = data.model === null ? [] : ["-m", shellWord(data.model)];
  const out = [];
  const defect = data.first_defect;
  if (!data.isJudged && data.unproved !== null)
    out.push(["Give the model file: every operation is then replayed, and it is known which side is wrong.", [...base, "-m", "model.gguf", "--html", "report.html"]]);
  if (defect !== null && defect.after !== null && data.isJudged)
    out.push([`What lies between ${defect.after || "the tokens"} and ${defect.checkpoint} was not recorded. Record it in your engine (docs/capture.md), then compare again.`,
              [...base, ...model, "--html", "report.html"]]);
  if (defect !== null && data.isJudged && defect.choice === null) {
    if (data.diagnoses?.length > 0) out.push(["See every experiment behind the cause.", ["lockstep", "doctor", ...base.slice(2), ...model]]);
    out.push([`Mend the operation, record again, and look at this position first.`, [...base, ...model, "--positions", String(defect.position)]]);
  }
  if (data.verdict === "inconclusive")
    out.push([`${data.evidence.missing ? `Missing: ${data.evidence.missing}. ` : ""}Record it, then compare again.`, [...base, ...model]]);
  if (data.verdict === "different prompts")
    out.push(["Feed both engines the same token ids, and record again. This prints what the file's own tokenizer gives.",
              ["lockstep", "tokenize", ...(model.length > 0 ? model : ["-m", "model.gguf"]), "'the prompt'"]]);
  const missing = data.checkpoints.filter(checkpoint => checkpoint.verdict === "missing").map(checkpoint => checkpoint.name);
  if (missing.length > 0 && data.verdict !== "inconclusive" && data.verdict !== "different prompts")
    out.push([`Not on both sides, so never a pass: ${missing.slice(0, 8).join(", ")}${missing.length > 8 ? ` and ${missing.length - 8} more` : ""}. Record them, then compare again.`,
              [...base, ...model, "--min-coverage", "1"]]);
  if (data.parity) out.push(["Keep it so: let CI make this comparison, with a test case for each checkpoint.", [...base, ...model, "--junit", "parity.xml"]]);
  if (out.length === 0) out.push(["The same as JSON, for scripts.", [...base, ...model, "--json"]]);
  return out;
}

function showNext(data) {
  for (const [sentence, words] of nextCommands(data)) bodyOf("next").append(element("p", {}, sentence), commandLine(words));
}

function showFacts(data) {
  bodyOf("facts").append(element("dl", {}, data.page.facts.map(fact => [element("dt", {}, fact.label), element("dd", {}, fact.text)])));
  if (data.notes.length > 0) bodyOf("facts").append(element("h3", {}, "Notes"), element("ul", {}, data.notes.map(note => element("li", {}, note))));
}

function showLegend() {
  bodyOf("legend").append(
    element("dl", {}, Object.entries(VERDICTS).map(([name, [mark, sentence]]) => [element("dt", {}, `${mark} ${name}`), element("dd", {}, sentence)])),
    element("dl", {}, [["own error", "How far an operation's recorded result is from what its own recorded inputs give in double precision."],
                       ["bound", "The largest own error that honest rounding explains in the types that the engine says it uses. Above 1 times the bound an operation is wrong."],
                       ["inherited", "The part of the difference between the sides that is left where the own errors of both are taken out."],
                       ["relative L2", "The size of the difference between the sides over the size of the reference."]]
      .map(([word, sentence]) => [element("dt", {}, word), element("dd", {}, sentence)])));
}
