#include <ctime>

#include "base/text.h"
#include "server/replies.h"
#include "server/reply.h"

namespace lockstep::server {
namespace {

using Json = nlohmann::ordered_json;

const char* finish_reason(engine::StopReason reason) {
  switch (reason) {
    case engine::StopReason::kEnd:
    case engine::StopReason::kStop:
      return "stop";
    case engine::StopReason::kLength:
    case engine::StopReason::kContext:
    case engine::StopReason::kCancelled:
      break;
  }
  return "length";
}

// JSON has no minus infinity; OpenAI's interface writes this for what cannot be.
double number(double logprob) {
  return logprob < -9999 ? -9999 : logprob;
}

// A token's text; one that is no UTF-8 by itself is shown as bytes.
std::string shown(const std::string& bytes) {
  if (find_invalid_utf8(bytes) == std::string::npos) return bytes;
  std::string text = "bytes:";
  for (const char c : bytes) text += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
  return text;
}

constexpr int64_t kMostGathered = 100'000;  // log-probabilities: about half a kilobyte each

class OpenAiReply : public Reply {
 public:
  OpenAiReply(std::shared_ptr<Responder> responder, const ServedModel& model,
              const JobFields& fields)
      : Reply(std::move(responder), model),
        chat_(!fields.messages.is_null()),
        stream_(fields.stream),
        include_usage_(fields.include_usage),
        wants_logprobs_(fields.logprobs >= 0),
        created_(std::time(nullptr)) {}

  void accepted(const Job& job) override {
    Reply::accepted(job);
    if (stream_) responder().begin_events();
  }

  void started(const Job& job) override {
    id_ = job.id;
    if (stream_ && chat_)
      send_choice({{"delta", {{"role", "assistant"}, {"content", ""}}}}, nullptr);
  }

  std::optional<ApiError> token(const Job&, const JobToken& token) override {
    if (!stream_) return gather(token);
    // Half a character: nothing to show yet.
    if (token.text.empty() && !wants_logprobs_) return std::nullopt;
    if (wants_logprobs_) {
      logprobs_ = nullptr;
      add_logprobs(token);
    }
    text_offset_ += utf8_length(token.text);
    send_choice(chat_ ? Json{{"delta", {{"content", token.text}}}} : Json{{"text", token.text}},
                nullptr);
    return std::nullopt;
  }

  void ended(const Job& job, const JobEnd& end) override {
    note(job, end);
    if (stream_) return end_stream(job, end);
    if (end.problem) return responder().respond(error_response(*end.problem));
    Json answer = head(chat_ ? "chat.completion" : "text_completion");
    answer["choices"] = Json::array({choice(
        chat_ ? Json{{"message", {{"role", "assistant"}, {"content", text_}, {"refusal", nullptr}}}}
              : Json{{"text", text_}},
        finish_reason(end.reason))});
    answer["usage"] = usage(job, end);
    responder().respond(json_response(200, answer));
  }

 private:
  // Of an answer that is not streamed, everything is held until its end.
  std::optional<ApiError> gather(const JobToken& token) {
    text_ += token.text;
    if (!wants_logprobs_) return std::nullopt;
    add_logprobs(token);
    text_offset_ += utf8_length(token.text);
    gathered_ += 1 + (token.logprobs ? std::ssize(token.logprobs->top) : 0);
    if (gathered_ <= kMostGathered) return std::nullopt;
    return ApiError{400, "ANSWER_TOO_LARGE",
                    fmt::format("the answer has more than {} log-probabilities; ask for a stream, "
                                "or for fewer tokens",
                                kMostGathered),
                    "stream"};
  }

  void end_stream(const Job& job, const JobEnd& end) {
    logprobs_ = nullptr;
    if (end.problem) {
      data({{"error", to_json(*end.problem)}});
    } else {
      send_choice(chat_ ? Json{{"delta", Json::object()}} : Json{{"text", ""}},
                  finish_reason(end.reason));
      if (include_usage_) {
        Json last = head(kind_of_chunk());
        last["choices"] = Json::array();
        last["usage"] = usage(job, end);
        data(last);
      }
      responder().send("data: [DONE]\n\n");
    }
    responder().end();
  }

  const char* kind_of_chunk() const { return chat_ ? "chat.completion.chunk" : "text_completion"; }

  Json head(const char* kind) const {
    return {{"id", id_},
            {"object", kind},
            {"created", created_},
            {"model", model().name},
            {"system_fingerprint", model().manifest.model.fingerprint}};
  }

  Json choice(Json content, const Json& reason) const {
    content["index"] = 0;
    content["logprobs"] = logprobs_;
    content["finish_reason"] = reason;
    return content;
  }

  void send_choice(Json content, const Json& reason) {
    Json answer = head(kind_of_chunk());
    answer["choices"] = Json::array({choice(std::move(content), reason)});
    if (include_usage_) answer["usage"] = nullptr;
    data(answer);
  }

  void data(const Json& json) { responder().send(fmt::format("data: {}\n\n", dump(json))); }

  static Json usage(const Job& job, const JobEnd& end) {
    return {{"prompt_tokens", job.tokens_in},
            {"completion_tokens", end.tokens_out},
            {"total_tokens", job.tokens_in + end.tokens_out},
            {"prompt_tokens_details", {{"cached_tokens", end.reused}}}};
  }

  // The token's bytes, as the two shapes of logprobs want them.
  Json with_bytes(engine::TokenId id, double logprob) const {
    const std::string bytes = model().tokenizer->piece(id, true);
    Json list = Json::array();
    for (const char c : bytes) list.push_back(static_cast<uint8_t>(c));
    return {{"token", shown(bytes)}, {"logprob", number(logprob)}, {"bytes", list}};
  }

  void add_logprobs(const JobToken& token) {
    if (!token.logprobs) return;
    if (chat_) {
      Json item = with_bytes(token.id, token.logprobs->chosen);
      item["top_logprobs"] = Json::array();
      for (const engine::Logprob& top : token.logprobs->top)
        item["top_logprobs"].push_back(with_bytes(top.id, top.value));
      if (logprobs_.is_null()) logprobs_ = {{"content", Json::array()}, {"refusal", nullptr}};
      logprobs_["content"].push_back(item);
      return;
    }
    if (logprobs_.is_null())
      logprobs_ = {{"tokens", Json::array()},
                   {"token_logprobs", Json::array()},
                   {"top_logprobs", Json::array()},
                   {"text_offset", Json::array()}};
    Json top = Json::object();
    for (const engine::Logprob& other : token.logprobs->top)
      top.emplace(shown(model().tokenizer->piece(other.id, true)), number(other.value));
    logprobs_["tokens"].push_back(shown(model().tokenizer->piece(token.id, true)));
    logprobs_["token_logprobs"].push_back(number(token.logprobs->chosen));
    logprobs_["top_logprobs"].push_back(top);
    logprobs_["text_offset"].push_back(text_offset_);
  }

  const bool chat_;
  const bool stream_;
  const bool include_usage_;
  const bool wants_logprobs_;
  const int64_t created_;
  std::string id_;
  std::string text_;  // of an answer that is not streamed
  int64_t text_offset_ = 0;
  int64_t gathered_ = 0;
  Json logprobs_;  // of the whole answer, or of the chunk
};

}  // namespace

std::shared_ptr<JobListener> openai_reply(std::shared_ptr<Responder> responder,
                                          const ServedModel& model, const JobFields& fields) {
  return std::make_shared<OpenAiReply>(std::move(responder), model, fields);
}

}  // namespace lockstep::server
