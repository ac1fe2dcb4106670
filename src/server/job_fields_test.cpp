#include "server/job_fields.h"

#include <random>

#include <gtest/gtest.h>

namespace lockstep::server {
namespace {

using Json = nlohmann::json;
using Reader = std::optional<ApiError> (*)(std::string_view, JobFields&);

std::optional<ApiError> read(Reader reader, const Json& body) {
  JobFields fields;
  return reader(body.dump(), fields);
}

TEST(JobFields, EveryFieldArrives) {
  JobFields fields;
  const auto problem = read_execute(
      R"({"job_id": "j", "prompt": "p", "max_tokens": 3, "temperature": 0.5, "top_p": 0.9,
          "top_k": 4, "min_p": 0.1, "repetition_penalty": 1.5, "stop": ["a", "b"], "seed": 9,
          "ignore_eos": true})",
      fields);
  ASSERT_FALSE(problem) << problem->message;
  EXPECT_EQ(fields.id, "j");
  EXPECT_EQ(fields.prompt, "p");
  EXPECT_EQ(fields.max_tokens, 3);
  EXPECT_EQ(fields.sampling.temperature, 0.5);
  EXPECT_EQ(fields.sampling.top_p, 0.9);
  EXPECT_EQ(fields.sampling.top_k, 4);
  EXPECT_EQ(fields.sampling.min_p, 0.1);
  EXPECT_EQ(fields.sampling.repeat_penalty, 1.5);
  EXPECT_EQ(fields.sampling.seed, 9u);
  EXPECT_TRUE(fields.seeded && fields.ignore_end && fields.stream);
  EXPECT_EQ(fields.stops, (std::vector<std::string>{"a", "b"}));
}

TEST(JobFields, DefaultsAreThoseOfTheInterfaces) {
  JobFields execute, completion, chat;
  ASSERT_FALSE(read_execute(R"({"job_id": "j", "prompt": "p"})", execute));
  ASSERT_FALSE(read_completion(R"({"prompt": "p"})", completion));
  ASSERT_FALSE(read_chat(R"({"messages": [{"role": "user", "content": "x"}]})", chat));
  EXPECT_EQ(execute.sampling.temperature, 0);
  EXPECT_EQ(completion.sampling.temperature, 1);
  EXPECT_EQ(completion.max_tokens, 16);
  EXPECT_EQ(chat.max_tokens, kMostTokens);
  EXPECT_FALSE(execute.seeded || completion.stream || chat.stream);
  EXPECT_EQ(chat.logprobs, -1);
}

TEST(JobFields, LimitsAreExact) {
  const auto with = [](const char* field, const Json& value) {
    Json body = {{"job_id", "j"}, {"prompt", "p"}};
    body[field] = value;
    return read(read_execute, body);
  };
  const auto text = [](int64_t chars) {  // of three bytes each
    std::string out;
    for (int64_t i = 0; i < chars; ++i) out += "漢";
    return out;
  };
  EXPECT_FALSE(with("prompt", text(kMostPromptChars)));
  EXPECT_TRUE(with("prompt", text(kMostPromptChars + 1)));
  EXPECT_FALSE(with("job_id", text(kMostJobIdChars)));
  EXPECT_TRUE(with("job_id", text(kMostJobIdChars + 1)));
  for (const auto& [field, least, most] :
       {std::tuple("temperature", 0.0, 2.0), std::tuple("min_p", 0.0, 1.0)}) {
    EXPECT_FALSE(with(field, least)) << field;
    EXPECT_FALSE(with(field, most)) << field;
    EXPECT_TRUE(with(field, std::nextafter(most, 1e9))) << field;
    EXPECT_TRUE(with(field, -1e-300)) << field;
  }
  EXPECT_TRUE(with("top_p", 0));
  EXPECT_FALSE(with("top_p", 1e-300));
  EXPECT_FALSE(with("seed", std::numeric_limits<uint64_t>::max()));
  EXPECT_FALSE(with("seed", std::numeric_limits<int64_t>::min()));
  EXPECT_EQ(with("max_tokens", 0)->field, "max_tokens");
}

TEST(JobFields, ValuesAreCountedBeforeTheyAreParsed) {
  const auto body = [](const std::string& item, int64_t count) {
    std::string text = R"({"prompt": "a, [b", "user": [)";
    for (int64_t i = 0; i < count; ++i) text += (i > 0 ? "," : "") + item;
    return text + "]}";
  };
  JobFields fields;
  EXPECT_FALSE(read_completion(body("1", 39'997), fields));
  EXPECT_FALSE(read_completion(body(R"("[,\"{")", 39'997), fields));
  EXPECT_FALSE(read_completion(body("[]", 39'997), fields));
  for (const auto& [item, count] : {std::pair("1", 39'998), {"[]", 39'998}, {"{", 500'000}}) {
    const auto problem = read_completion(body(item, count), fields);
    ASSERT_TRUE(problem) << item;
    EXPECT_EQ(problem->code, "INVALID_JSON");
    if (count < 100'000) {
      EXPECT_EQ(problem->message, "request: found more than 40000 values, expected fewer");
    }
  }
}

TEST(JobFields, LongTextsAreShownByTheirStart) {
  for (const auto& [unit, shown] : {std::pair<std::string, std::string>("x", std::string(56, 'x')),
                                    {"\xc3\xa9",
                                     "\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9"
                                     "\\u00e9\\u00e9\\u"}}) {
    std::string text;
    for (int i = 0; i < 100'000; ++i) text += unit;
    const auto problem = read(read_completion, {{"prompt", text}});
    ASSERT_TRUE(problem);
    EXPECT_TRUE(
        problem->message.starts_with("request: prompt: found \"" + shown + "..., expected a text"))
        << problem->message.substr(0, 200);
  }
}

TEST(JobFields, UnknownFieldsAreNamedWithTheNearestOne) {
  const auto problem = read(read_execute, {{"job_id", "j"}, {"prompt", "p"}, {"max_token", 5}});
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->code, "UNKNOWN_FIELD");
  EXPECT_EQ(problem->field, "max_token");
  EXPECT_NE(problem->message.find("did you mean max_tokens?"), std::string::npos)
      << problem->message;
}

TEST(JobFields, TheFirstProblemIsTold) {
  const auto problem = read(read_execute, {{"prompt", 5}, {"temperature", "x"}});
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->field, "job_id");
  EXPECT_EQ(problem->code, "MISSING_FIELD");
}

TEST(JobFields, PromptsAsTokens) {
  JobFields fields;
  ASSERT_FALSE(read_completion(R"({"prompt": [5, 6]})", fields));
  EXPECT_EQ(fields.prompt_tokens, (std::vector<engine::TokenId>{5, 6}));
  EXPECT_TRUE(fields.prompt.empty());
  EXPECT_TRUE(read(read_completion, {{"prompt", {1, 2.5}}}));
  EXPECT_TRUE(read(read_completion, {{"prompt", {int64_t{1} << 31}}}));
}

// Values of the wrong type and size in the places of right ones: always an error that names a field
// that is there, or fine; never anything else.
TEST(JobFields, RandomValues) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto below = [&](size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(random);
  };
  const std::vector<Json> values = {nullptr,
                                    true,
                                    0,
                                    -1,
                                    1,
                                    2.5,
                                    1e300,
                                    "",
                                    "x",
                                    Json::array(),
                                    Json::object(),
                                    Json::array({"x", 1}),
                                    Json::array({Json::object()}),
                                    "user",
                                    Json{{"role", "user"}, {"content", "x"}}};
  const std::vector<std::string> names = {"job_id",      "prompt",         "messages", "max_tokens",
                                          "temperature", "top_p",          "top_k",    "min_p",
                                          "stop",        "seed",           "logprobs", "n",
                                          "stream",      "stream_options", "nonsense"};
  for (int i = 0; i < 4'000; ++i) {
    Json body = Json::object();
    for (size_t n = below(6); n > 0; --n)
      body[names[below(names.size())]] = values[below(values.size())];
    if (below(2) == 0) body["prompt"] = "p";
    if (below(2) == 0) body["messages"] = Json::array({values.back()});
    for (const Reader reader : {&read_execute, &read_completion, &read_chat}) {
      const auto problem = read(reader, body);
      if (!problem) continue;
      EXPECT_EQ(problem->status, 400);
      EXPECT_FALSE(problem->message.empty());
      EXPECT_FALSE(problem->field.empty()) << problem->message;
    }
  }
}

}  // namespace
}  // namespace lockstep::server
