// Talks to the worker.

export async function ask(path) {
  return answerOf(await fetch(path));
}

export async function tell(path, body) {
  return answerOf(await post(path, body));
}

export function post(path, body, signal) {
  return fetch(path, {method: "POST", signal, headers: {"Content-Type": "application/json"}, body: JSON.stringify(body)});
}

// The answer's JSON; what the worker refuses is thrown as {code, message}.
async function answerOf(response) {
  const json = await response.json();
  if (!response.ok) throw json.error;
  return json;
}

// Server-sent events of an answer: calls on(name, data) for each.
export async function events(response, on) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    text += value;
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const lines = text.slice(0, end).split("\n");
      const field = name => lines.find(line => line.startsWith(name + ": "))?.slice(name.length + 2);
      const data = field("data");
      if (data && data !== "[DONE]") on(field("event"), JSON.parse(data));
    }
  }
}

// The tokens of a piece of the answer, with what else might have come: [{token, log, others}].
export function tokensOf(choice) {
  const chat = choice.logprobs?.content;
  if (chat) return chat.map(one => ({token: one.token, log: one.logprob, others: one.top_logprobs.map(other => [other.token, other.logprob])}));
  return (choice.logprobs?.tokens ?? []).map((token, i) => ({token, log: choice.logprobs.token_logprobs[i], others: Object.entries(choice.logprobs.top_logprobs[i] ?? {})}));
}
