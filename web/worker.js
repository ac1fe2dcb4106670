const $ = id => document.getElementById(id);
const bytes = n => n >= 1e9 ? (n / 1e9).toFixed(2) + " GB" : (n / 1e6).toFixed(1) + " MB";
const lasted = s => s < 60 ? s.toFixed(0) + " s" : s < 3600 ? (s / 60).toFixed(0) + " min"
  : (s / 3600).toFixed(1) + " h";
const reasons = {end: "the model ended it", stop: "the model ended it",
  length: "as many tokens as asked for", context: "the context is full"};
const post = (path, body, signal) => fetch(path, {method: "POST", signal,
  headers: {"Content-Type": "application/json"}, body: JSON.stringify(body)});

async function about() {
  try {
    const h = await (await fetch("/health")).json();
    $("name").textContent = document.title = h.model;
    $("status").className = h.status === "ok" ? "ok" : "bad";
    $("status").textContent = h.status === "ok" ? (h.active_job ? "busy" : "ready") : h.status;
    if (h.queue_length) $("status").textContent += `, ${h.queue_length} waiting`;
    $("status").textContent += `, up ${lasted(h.uptime_seconds)}`;
    if (h.chat && $("chat-label").hidden) $("chat").checked = true;
    $("chat-label").hidden = !h.chat;
    const rows = {Architecture: h.architecture, Quantization: h.quantization, Device: h.device,
      Context: h.context_length + " tokens", Vocabulary: h.vocabulary_size + " tokens",
      Memory: bytes(h.memory_used_bytes), Fingerprint: h.fingerprint};
    $("card").replaceChildren(...Object.entries(rows).map(([name, value]) => {
      const row = document.createElement("div");
      row.append(Object.assign(document.createElement("dt"), {textContent: name}),
        Object.assign(document.createElement("dd"), {textContent: value}));
      return row;
    }));
  } catch {
    $("status").className = "bad";
    $("status").textContent = "not reachable";
  }
}

// Server-sent events of an answer: calls on(name, data) for each.
async function events(answer, on) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    text += value;
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const lines = text.slice(0, end).split("\n");
      const field = name => lines.find(l => l.startsWith(name + ": "))?.slice(name.length + 2);
      const data = field("data");
      if (data && data !== "[DONE]") on(field("event"), JSON.parse(data));
    }
  }
}

let job = null;
let abort = null;
let turns = [];  // {prompt, chat, shown, answer, text}; of a chat, all of them are sent

// Tokens that might have come instead, as shares of one.
function alternatives(choice) {
  const chat = choice.logprobs?.content;
  if (chat) return chat.map(one => ({token: one.token, log: one.logprob, others: one.top_logprobs.map(other => [other.token, other.logprob])}));
  return (choice.logprobs?.tokens ?? []).map((token, i) => ({token, log: choice.logprobs.token_logprobs[i], others: Object.entries(choice.logprobs.top_logprobs[i] ?? {})}));
}
const share = log => { const p = 100 * Math.exp(log); return p >= 99.995 ? "100%" : p >= 0.01 ? p.toPrecision(3) + "%" : "below 0.01%"; };

function put(turn, text, tokens) {
  const span = document.createElement("span");
  span.textContent = text;
  span.title = tokens.map(({token, log, others}) => [`${JSON.stringify(token)} ${share(log)}`,
    ...others.filter(([other]) => other !== token).map(([other, its]) => `  ${JSON.stringify(other)} ${share(its)}`)].join("\n")).join("\n");
  if (tokens.some(({log}) => log < Math.log(0.5))) span.className = "unsure";
  turn.answer.append(span);
  turn.text += text;
}

function begin(prompt, chat) {
  if (!chat || turns.some(turn => !turn.chat)) forget();
  const made = (name, text) => Object.assign(document.createElement(name === "said" ? "p" : "pre"), {className: name, textContent: text});
  const turn = {prompt, chat, shown: document.createElement("div"), answer: made("answer", ""), text: ""};
  turn.shown.append(made("said", prompt), turn.answer);
  $("talk").append(turn.shown);
  turns.push(turn);
  return turn;
}

function forget() {
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

async function generate(turn = begin($("prompt").value, $("chat").checked && !$("chat-label").hidden)) {
  turn.answer.replaceChildren();
  turn.text = "";
  turn.answer.classList.add("running");
  $("speed").className = "";
  $("speed").textContent = "waiting";
  $("go").disabled = $("again").disabled = $("anew").disabled = true;
  $("stop").disabled = false;
  abort = new AbortController();
  job = null;
  const asked = performance.now();
  let count = 0, first = 0, ended = "";
  const show = () => {
    const seconds = (performance.now() - first) / 1e3;
    const rate = count > 1 && seconds > 0 ? ((count - 1) / seconds).toFixed(1) : "–";
    $("speed").textContent = `${count} tokens, ${rate} tokens/s, first after ` +
      `${(first - asked).toFixed(0)} ms` + (ended && `; ${ended}`);
  };
  const failed = problem => {
    ended = problem.code === "CANCELLED" ? "stopped" : problem.message;
    if (count) show(); else $("speed").textContent = ended;
    if (problem.code !== "CANCELLED") $("speed").className = "bad";
  };
  try {
    const answer = await post(...request(turn), abort.signal);
    if (!answer.ok) throw (await answer.json()).error;
    await events(answer, (name, data) => {
      if (data.error || name === "error") return failed(data.error ?? data);
      job = data.id;
      const choice = data.choices?.[0];
      if (!choice) return;
      const tokens = alternatives(choice);
      const text = choice.text ?? choice.delta?.content ?? "";
      if (tokens.length > 0 && !count) first = performance.now();
      count += tokens.length;
      if (text) put(turn, text, tokens);
      if (choice.finish_reason) ended = reasons[choice.finish_reason] ?? choice.finish_reason;
      if (count) show();
    });
  } catch (problem) {
    failed(problem.name === "AbortError" ? {code: "CANCELLED"} : problem);
  }
  turn.answer.classList.remove("running");
  $("go").disabled = $("again").disabled = $("anew").disabled = false;
  $("stop").disabled = true;
  about();
}

$("form").addEventListener("submit", event => { event.preventDefault(); generate(); });
$("prompt").addEventListener("keydown", event => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("form").requestSubmit();
});
$("stop").addEventListener("click", () => job ? post("/cancel", {job_id: job}) : abort.abort());
$("again").addEventListener("click", () => generate(turns.at(-1)));
$("anew").addEventListener("click", forget);
about();
setInterval(about, 5000);
