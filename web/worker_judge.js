// "Judge this answer": the worker computes it again, records it and holds it against double precision.
import {element, shortNumber} from "./dom.js";
import {ask, tell} from "./worker_talk.js";

const PAUSE_MS = 400;
const UNSURE_VERDICTS = ["inconclusive", "nothing to compare"];

const lastedSeconds = seconds => `${seconds < 10 ? seconds.toFixed(1) : seconds.toFixed(0)} s`;

function progressOf({status, tokens, tokens_recorded: recorded, seconds}) {
  const now = lastedSeconds(seconds[status] ?? 0);
  if (status === "waiting") return `waiting for its turn, ${now}`;
  if (status === "recording") return `computing it again and recording: ${recorded} of ${tokens} tokens`;
  if (status === "computing") return `computing the same tokens in double precision, ${now}`;
  return `replaying every operation, ${now}`;
}

function verdictOf(judged) {
  const unsure = UNSURE_VERDICTS.includes(judged.verdict);
  const {waiting, ...parts} = judged.seconds;
  const costs = [`${lastedSeconds(Object.values(parts).reduce((sum, each) => sum + each, 0))} for ${judged.positions} tokens`];
  if (judged.worst_ratio !== null) costs.push(`largest own error ${shortNumber(judged.worst_ratio)} of its bound`);
  if (judged.mean_kl !== null) costs.push(`mean KL ${shortNumber(judged.mean_kl)}`);
  return [element("span", {class: judged.parity ? "good" : unsure ? "unsure" : "bad"},
    element("span", {class: "mark", "aria-hidden": "true"}, judged.parity ? "✓" : unsure ? "?" : "✕"), judged.headline),
  element("a", {href: judged.report, target: "_blank", rel: "noopener"}, "Report"),
  judged.cause && element("span", {class: "costs"}, judged.cause), element("span", {class: "costs"}, costs.join(", "))];
}

// Shows a button in `place`, then what becomes of the job's judgement. `place` may leave the page meanwhile.
export function offerJudgement(place, job) {
  const offer = (...words) => place.replaceChildren(...words, element("button", {type: "button", click: run}, "Judge this answer"));
  async function run() {
    const words = element("span", {class: "costs"}), hold = element("button", {type: "button"}, "Cancel");
    place.replaceChildren(words, hold);
    try {
      let judged = await tell("/judge", {job_id: job});
      hold.addEventListener("click", () => tell("/cancel", {job_id: judged.id}).catch(() => {}));
      while (judged.status !== "done") {
        if (judged.status === "failed") throw judged.error;
        words.textContent = `Judging: ${progressOf(judged)}`;
        await new Promise(wake => setTimeout(wake, PAUSE_MS));
        if (!place.isConnected) return;
        judged = await ask(`/judge/${judged.id}`);
      }
      place.replaceChildren(...verdictOf(judged).filter(part => part));
    } catch (problem) {
      offer(element("span", {class: problem.code === "CANCELLED" ? "costs" : "bad"}, problem.code === "CANCELLED" ? "Not judged." : `Not judged: ${problem.message}`));
    }
  }
  place.setAttribute("role", "status");
  offer();
}
