// The worker's page: conversations with the model.
import {element} from "./dom.js";
import {offerJudgement} from "./worker_judge.js";
import {ask, events, post, tell, tokensOf} from "./worker_talk.js";
import {putTokens, takeTokens, watchTokens} from "./worker_tokens.js";

const $ = id => document.getElementById(id);
const bytes = n => n >= 1e9 ? (n / 1e9).toFixed(2) + " GB" : (n / 1e6).toFixed(1) + " MB";
const lasted = s => s < 60 ? s.toFixed(0) + " s" : s < 3600 ? (s / 60).toFixed(0) + " min" : (s / 3600).toFixed(1) + " h";
const reasons = {stop: "the model ended it", length: "as many tokens as asked for, or as the context has"};

let judges = false;

async function about() {
  try {
    const h = await ask("/health");
    judges = h.judge;
    $("name").textContent = document.title = h.model;
    $("status").className = h.status === "ok" ? "ok" : "bad";
    $("status").textContent = `${h.status === "ok" ? (h.active_job ? "busy" : "ready") : h.status}${h.queue_length ? `, ${h.queue_length} waiting` : ""}, up ${lasted(h.uptime_seconds)}`;
    $("dashboard").hidden = !h.dashboard;
    if (h.chat && $("chat-label").hidden) $("chat").checked = true;
    $("chat-label").hidden = !h.chat;
    const rows = {Architecture: h.architecture, Quantization: h.quantization, Device: h.device,
      Context: h.context_length + " tokens", Vocabulary: h.vocabulary_size + " tokens",
      Memory: bytes(h.memory_used_bytes), Fingerprint: h.fingerprint};
    $("card").replaceChildren(...Object.entries(rows).map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
  } catch {
    $("status").className = "bad";
    $("status").textContent = "not reachable";
  }
}

let abort = null;
let turns = [];  // {prompt, chat, shown, answer, judge, text, job}; of a chat, all of them are sent

function begin(prompt, chat) {
  if (!chat || turns.some(turn => !turn.chat)) forget();
  const turn = {prompt, chat, answer: element("pre", {class: "answer", tabindex: 0, "aria-label": "Answer; the arrow keys show the probability of each token"}),
    judge: element("div", {class: "judge"}), text: "", job: null};
  watchTokens(turn.answer);
  turn.shown = element("div", {}, element("p", {class: "said"}, prompt), turn.answer, turn.judge);
  $("talk").append(turn.shown);
  turns.push(turn);
  if (chat) $("prompt").value = "";
  return turn;
}

function forget() {
  for (const turn of turns) takeTokens(turn.answer);
  turns = [];
  $("talk").replaceChildren();
  $("speed").textContent = "";
  $("again").disabled = $("anew").disabled = true;
}

function request(turn) {
  const body = {temperature: Number($("temperature").value), stream: true};
  if ($("tokens").value) body.max_tokens = Number($("tokens").value);
  if ($("seed").value) body.seed = Number($("seed").value);
  if (!turn.chat) return ["/v1/completions", {...body, prompt: turn.prompt, logprobs: 5}];
  const messages = turns.filter(each => each === turn || each.text).flatMap(each => each === turn ? [{role: "user", content: each.prompt}]
    : [{role: "user", content: each.prompt}, {role: "assistant", content: each.text}]);
  return ["/v1/chat/completions", {...body, messages, logprobs: true, top_logprobs: 5}];
}

async function generate(turn) {
  takeTokens(turn.answer);
  turn.judge.replaceChildren();
  turn.text = "";
  turn.job = null;
  turn.answer.classList.add("running");
  $("speed").className = "";
  $("speed").textContent = "waiting";
  $("go").disabled = $("again").disabled = $("anew").disabled = true;
  $("stop").disabled = false;
  abort = new AbortController();
  const asked = performance.now();
  let count = 0, first = 0, ended = "";
  const show = () => {
    const seconds = (performance.now() - first) / 1e3;
    const rate = count > 1 && seconds > 0 ? ((count - 1) / seconds).toFixed(1) : "–";
    $("speed").textContent = `${count} tokens, ${rate} tokens/s, first after ${(first - asked).toFixed(0)} ms` + (ended && `; ${ended}`);
  };
  const failed = problem => {
    ended = problem.code === "CANCELLED" ? "stopped" : problem.message;
    if (count) show(); else $("speed").textContent = ended;
    if (problem.code !== "CANCELLED") $("speed").className = "bad";
  };
  try {
    const response = await post(...request(turn), abort.signal);
    if (!response.ok) throw (await response.json()).error;
    await events(response, (name, data) => {
      if (data.error || name === "error") return failed(data.error ?? data);
      turn.job = data.id;
      const choice = data.choices?.[0];
      if (!choice) return;
      const tokens = tokensOf(choice);
      const text = choice.text ?? choice.delta?.content ?? "";
      if (tokens.length > 0 && !count) first = performance.now();
      count += tokens.length;
      if (text) putTokens(turn.answer, text, tokens);
      turn.text += text;
      if (choice.finish_reason) ended = reasons[choice.finish_reason] ?? choice.finish_reason;
      if (count) show();
    });
  } catch (problem) {
    failed(problem.name === "AbortError" ? {code: "CANCELLED"} : problem);
  }
  turn.answer.classList.remove("running");
  if (judges && count) offerJudgement(turn.judge, turn.job);
  $("go").disabled = $("again").disabled = $("anew").disabled = false;
  $("stop").disabled = true;
  about();
}

$("form").addEventListener("submit", event => {
  event.preventDefault();
  if (!$("go").disabled) generate(begin($("prompt").value, $("chat").checked && !$("chat-label").hidden));
});
$("prompt").addEventListener("keydown", event => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("form").requestSubmit();
});
$("stop").addEventListener("click", () => turns.at(-1).job ? tell("/cancel", {job_id: turns.at(-1).job}) : abort.abort());
$("again").addEventListener("click", () => generate(turns.at(-1)));
$("anew").addEventListener("click", forget);
about();
setInterval(about, 5000);
