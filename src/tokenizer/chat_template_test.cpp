#include "tokenizer/chat_template.h"

#include <fstream>

#include <gtest/gtest.h>

namespace lockstep::tokenizer {
namespace {

using Json = nlohmann::ordered_json;

Json fixture() {
  const std::string path = LOCKSTEP_FIXTURES "/chat_template/cases.json";
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return Json::parse(file);
}

// The text, or the message of the error.
std::pair<bool, std::string> render(const std::string& text, const Json& context) {
  auto chat = ChatTemplate::parse(text);
  if (!chat.ok()) return {false, chat.error().message};
  auto result = chat->render(context);
  return result.ok() ? std::pair(true, *result) : std::pair(false, result.error().message);
}

void expect_like_jinja(const std::string& text, const Json& context, const Json& want) {
  SCOPED_TRACE(text);
  const auto [ok, got] = render(text, context);
  if (want.contains("text")) {
    EXPECT_TRUE(ok) << got;
    EXPECT_EQ(got, want["text"].get<std::string>());
    return;
  }
  std::string error = want["error"];
  EXPECT_FALSE(ok) << "Jinja raises " << error << ", ours gives: " << got;
  const std::string raised = "TemplateError: ";  // by raise_exception: the words must be the same
  if (error.starts_with(raised)) {
    EXPECT_TRUE(got.ends_with(error.substr(raised.size()))) << got << " for " << error;
  }
  EXPECT_TRUE(got.starts_with("chat template")) << got;
}

TEST(ChatTemplate, ConstructsAreLikeJinjas) {
  const Json all = fixture();
  ASSERT_GT(all["cases"].size(), 300u);
  for (const Json& item : all["cases"]) expect_like_jinja(item["template"], all["data"], item);
}

TEST(ChatTemplate, ConversationsAreLikeJinjas) {
  const Json all = fixture();
  for (const Json& chat : all["chats"]) {
    for (const auto& [name, want] : chat["results"].items()) {
      SCOPED_TRACE(name);
      expect_like_jinja(chat["template"], all["contexts"][name], want);
    }
  }
}

TEST(ChatTemplate, ErrorsNameThePlaceAndTheCause) {
  const Json empty = Json::object();
  EXPECT_EQ(render("a\n  {% include 'x' %}", empty).second,
            "chat template, line 2, column 6: the tag 'include' is not supported");
  EXPECT_EQ(render("{{ 'a' | wordwrap }}", empty).second,
            "chat template, line 1, column 10: the filter 'wordwrap' is not supported");
  EXPECT_EQ(render("{{ 'a' is nice }}", empty).second,
            "chat template, line 1, column 11: the test 'nice' is not supported");
  EXPECT_EQ(render("x\n{{ a.b }}", empty).second,
            "chat template, line 2, column 5: 'a' is undefined");
  EXPECT_EQ(render("{{ raise_exception('Stop here.') }}", empty).second,
            "chat template, line 1, column 19: Stop here.");
  EXPECT_FALSE(render("x", Json::array()).first);
}

TEST(ChatTemplate, HostileTemplatesAreErrors) {
  const std::string deep(100000, '(');
  std::string chain = "{{ x";
  for (int i = 0; i < 100000; ++i) chain += ".a";
  std::string blocks;
  for (int i = 0; i < 10000; ++i) blocks += "{% if true %}";
  const std::string hostile[] = {
      "{{ " + deep,
      chain + " }}",
      blocks,
      "{{ 'a' * 10 ** 12 }}",
      "{{ [1] * 10 ** 15 }}",
      "{{ range(10 ** 9) | list }}",
      "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
      "{% set ns = namespace(x='a') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}"
      "{% endfor %}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% endfor %}{{ ns.x }}",
      "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}",
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
      "{{ ('a' * 1000000).replace('a', 'b' * 1000000) }}",
  };
  for (const std::string& text : hostile) {
    SCOPED_TRACE(text.substr(0, 80));
    EXPECT_FALSE(render(text, Json::object()).first);
  }
}

TEST(ChatTemplate, CirclesOfNamespacesAndMacrosAreFreed) {
  const auto [ok, text] = render(
      "{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}{% set a.a = a %}"
      "{% macro f() %}{% macro g() %}{{ a.b.a.g is callable }}{% endmacro %}{% set a.g = g %}"
      "{{ g() }}{% endmacro %}{% set a.f = f %}{{ a.f() }}",
      Json::object());
  EXPECT_TRUE(ok) << text;
  EXPECT_EQ(text, "True");
}

}  // namespace
}  // namespace lockstep::tokenizer
