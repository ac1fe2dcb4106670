#include "server/job_fields.h"

#include "base/text.h"
#include "server/fields.h"

namespace lockstep::server {
namespace {

constexpr const char* kPromptExpected = "a text of 1 to 32768 characters";
constexpr const char* kIdExpected = "a text of 1 to 256 characters";

// What all endpoints that generate have in common. The ranges are those of OpenAI's interface where
// it has the field.
void read_sampling(Fields& fields, JobFields& out) {
  engine::Sampling& sampling = out.sampling;
  if (const auto value = fields.number("temperature", 0, 2)) sampling.temperature = *value;
  if (const auto value = fields.number_above("top_p", 0, 1)) sampling.top_p = *value;
  if (const auto value = fields.integer("top_k", 0, kMostTokens)) sampling.top_k = *value;
  if (const auto value = fields.number("min_p", 0, 1)) sampling.min_p = *value;
  if (const auto value = fields.number_above("repetition_penalty", 0, 100))
    sampling.repeat_penalty = *value;
  if (const auto value = fields.seed("seed")) {
    sampling.seed = *value;
    out.seeded = true;
  }
  if (const auto value = fields.integer("max_tokens", 1, kMostTokens)) out.max_tokens = *value;
  out.stops = fields.stops("stop");
  if (const auto value = fields.boolean("ignore_eos")) out.ignore_end = *value;
}

// Of what is known to be an array. By value: a loop over a temporary would outlive it.
std::vector<JsonReader> items_of(const JsonReader& array) {
  return array.items().value();
}

std::string read_id(Fields& fields) {
  std::optional<std::string> id = fields.text("job_id", kMostJobIdChars);
  if (!id || id->empty()) fields.missing("job_id", kIdExpected);
  return std::move(id).value_or("");
}

// What OpenAI's clients may send. What would change the answer and is not there is refused.
void read_openai(Fields& fields, JobFields& out) {
  out.sampling.temperature = 1;
  read_sampling(fields, out);
  fields.text("model", 1024);  // there is one model; the answer says which
  if (const auto value = fields.boolean("stream")) out.stream = *value;
  if (const auto options = fields.object("stream_options")) {
    Fields inner(*options, "stream_options");
    if (const auto value = inner.boolean("include_usage")) out.include_usage = *value;
    inner.boolean("include_obfuscation");
    fields.adopt(inner.finish());
  }
  fields.only("n", 1);
  fields.only("frequency_penalty", 0);
  fields.only("presence_penalty", 0);
  fields.only("logit_bias", nlohmann::json::object());
  fields.ignore({"user", "metadata", "store", "service_tier", "safety_identifier",
                 "prompt_cache_key", "prompt_cache_retention"});
}

// A prompt of OpenAI's completions: a text, token ids, or an array of one of these.
void read_prompt(Fields& fields, JobFields& out) {
  constexpr const char* kExpected =
      "a text of 1 to 32768 characters, or an array of token ids; one prompt a request";
  std::optional<JsonReader> found = fields.any("prompt");
  if (!found) return fields.missing("prompt", kExpected);
  if (found->value().is_array() && found->value().size() == 1 && !found->value()[0].is_number())
    found = items_of(*found)[0];
  if (found->value().is_string()) {
    out.prompt = *found->text();
    if (out.prompt.empty() || utf8_length(out.prompt) > kMostPromptChars)
      fields.wrong("prompt", *found, kExpected);
    return;
  }
  if (!found->value().is_array() || found->value().empty())
    return fields.wrong("prompt", *found, kExpected);
  if (std::ssize(found->value()) > kMostPromptChars)
    return fields.wrong("prompt", *found, "at most 32768 token ids");
  const std::vector<JsonReader> ids = items_of(*found);
  for (const JsonReader& item : ids) {
    const Result<int64_t> id = item.integer(0, std::numeric_limits<engine::TokenId>::max());
    if (!id.ok()) return fields.wrong("prompt", item, kExpected);
    out.prompt_tokens.push_back(static_cast<engine::TokenId>(*id));
  }
}

// The text of a message: a string, or parts of which all are text.
std::string read_content(Fields& message) {
  const std::optional<JsonReader> found = message.any("content");
  if (!found) {
    message.missing("content", "a text");
    return "";
  }
  if (found->value().is_string()) return *found->text();
  if (!found->value().is_array()) {
    message.wrong("content", *found, "a text, or an array of parts");
    return "";
  }
  std::string text;
  const std::vector<JsonReader> parts = items_of(*found);
  for (const JsonReader& item : parts) {
    const Result<std::string> type = item["type"].text();
    const Result<std::string> part = item["text"].text();
    if (type.ok() && *type == "text" && part.ok()) {
      text += *part;
    } else {
      message.wrong("content", item, "a part {type: \"text\", text}: only text is supported");
      return "";
    }
  }
  return text;
}

void read_messages(Fields& fields, JobFields& out) {
  constexpr const char* kExpected = "an array of at least one message {role, content}";
  const std::vector<JsonReader> items = fields.items("messages");
  if (items.empty()) return fields.missing("messages", kExpected);
  if (std::ssize(items) > kMostMessages)
    return fields.fail("messages", fmt::format("request: messages: found {}, expected at most {}",
                                               items.size(), kMostMessages));
  out.messages = nlohmann::ordered_json::array();
  int64_t chars = 0;
  for (size_t i = 0; i < items.size() && !fields.failed(); ++i) {
    if (!items[i].value().is_object()) return fields.wrong("messages", items[i], kExpected);
    Fields message(items[i], fmt::format("messages[{}]", i));
    std::string role = message.text("role", 64).value_or("");
    if (role == "developer") role = "system";
    if (role != "system" && role != "user" && role != "assistant")
      message.wrong("role", items[i]["role"], "system, developer, user or assistant");
    const std::string content = read_content(message);
    message.ignore({"name", "refusal", "annotations"});
    message.only("tool_calls", nlohmann::json::array());
    message.only("function_call", nullptr);
    message.only("audio", nullptr);
    fields.adopt(message.finish());
    chars += utf8_length(content);
    out.messages.push_back({{"role", role}, {"content", content}});
  }
  if (chars > kMostPromptChars)
    fields.fail("messages", fmt::format("request: messages: found {} characters in all, expected "
                                        "at most {}",
                                        chars, kMostPromptChars));
}

}  // namespace

std::optional<ApiError> read_execute(std::string_view body, JobFields& out) {
  nlohmann::json json;
  if (auto problem = parse_body(body, json)) return problem;
  Fields fields(JsonReader(json, "request"));
  out.id = read_id(fields);
  std::optional<std::string> prompt = fields.text("prompt", kMostPromptChars);
  if (!prompt || prompt->empty()) fields.missing("prompt", kPromptExpected);
  out.prompt = std::move(prompt).value_or("");
  read_sampling(fields, out);
  out.stream = true;
  return fields.finish();
}

std::optional<ApiError> read_completion(std::string_view body, JobFields& out) {
  nlohmann::json json;
  if (auto problem = parse_body(body, json)) return problem;
  Fields fields(JsonReader(json, "request"));
  read_prompt(fields, out);
  out.max_tokens = 16;
  read_openai(fields, out);
  if (const auto value = fields.integer("logprobs", 0, kMostLogprobs)) out.logprobs = *value;
  fields.only("best_of", 1);
  fields.only("echo", false);
  fields.only("suffix", "");
  return fields.finish();
}

std::optional<ApiError> read_chat(std::string_view body, JobFields& out) {
  nlohmann::json json;
  if (auto problem = parse_body(body, json)) return problem;
  Fields fields(JsonReader(json, "request"));
  read_messages(fields, out);
  out.max_tokens = kMostTokens;
  read_openai(fields, out);
  if (const auto value = fields.integer("max_completion_tokens", 1, kMostTokens))
    out.max_tokens = *value;
  const bool wanted = fields.boolean("logprobs").value_or(false);
  if (wanted) out.logprobs = 0;
  if (const auto value = fields.integer("top_logprobs", 0, kMostLogprobs)) {
    if (!wanted && *value > 0)
      fields.fail("top_logprobs", "request: top_logprobs: only where logprobs is true");
    if (wanted) out.logprobs = *value;
  }
  fields.only("response_format", {{"type", "text"}});
  fields.only("tools", nlohmann::json::array());
  fields.only("functions", nlohmann::json::array());
  fields.only("tool_choice", "none");
  fields.only("modalities", nlohmann::json::array({"text"}));
  fields.ignore({"parallel_tool_calls", "reasoning_effort", "verbosity"});
  return fields.finish();
}

std::optional<ApiError> read_job_id(std::string_view body, std::string& job_id) {
  nlohmann::json json;
  if (auto problem = parse_body(body, json)) return problem;
  Fields fields(JsonReader(json, "request"));
  job_id = read_id(fields);
  return fields.finish();
}

}  // namespace lockstep::server
