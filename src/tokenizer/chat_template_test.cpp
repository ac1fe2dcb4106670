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
  // Templates may name filters of other engines where they are not used.
  EXPECT_EQ(render("{% if a %}{{ a | from_json }}{{ a is nice }}{% endif %}b", empty).second, "b");
  EXPECT_EQ(
      render("{{ none | selectattr('x') | list }}{{ none | map('upper') | list }}", empty).second,
      "[][]");
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

// As much as a worker takes: 1024 messages, and 32768 characters of four bytes.
TEST(ChatTemplate, LongConversationsAreWithinTheLimits) {
  const Json all = fixture();
  int64_t rendered = 0;
  for (const Json& chat : all["chats"]) {
    for (const size_t count : {size_t{1}, size_t{31}, size_t{1023}}) {
      Json messages = Json::array();
      std::string content;
      for (size_t i = 0; i < 32768 / count; ++i)
        content += i % 9 == 0 ? " \xF0\x9F\x98\x80" : "<a>";
      for (size_t i = 0; i < count; ++i)
        messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", content}});
      const auto [ok, text] = render(chat["template"], {{"messages", messages},
                                                        {"add_generation_prompt", true},
                                                        {"bos_token", "<s>"},
                                                        {"eos_token", "</s>"}});
      EXPECT_TRUE(ok || text.find("allowed") == std::string::npos)
          << text << " with " << count << " messages: " << chat["template"];
      rendered += ok;
    }
  }
  EXPECT_GT(rendered, 0);
}

// Each of them would take seconds, or hundreds of megabytes. They fail by what is counted, so they
// fail on every machine.
TEST(ChatTemplate, BombsAreDefused) {
  const std::string in_loop = "{% for i in range(100000) %}{% set x = ";
  const std::string bombs[] = {
      "{{ 'ab1 '*15000000 }}",
      "{% for i in range(100000) %}{% macro f() %}{% endmacro %}{% endfor %}",
      "{% set t = 'a'*500000 %}{% set u = 'a'*250000 ~ 'b' %}{% set x = u in t %}",
      "{% set t = 'a'*500000 %}{% set u = 'a'*9000 ~ 'b' %}{% set x = t.replace(u, 'c') %}",
      "{% set t = 'a'*500000 %}{% set u = 'a'*9000 ~ 'b' %}{% set x = t.split(u) %}",
      "{% set t = 'a'*500000 %}{% set u = 'a'*9000 ~ 'b' %}{% set x = t.count(u) %}",
      "{% set t = 'a'*500000 %}{% set u = 'a'*9000 ~ 'b' %}{% set x = t.rpartition(u) %}",
      "{% set x = ('a '*2000000).split() %}",
      "{% set x = ('\n'*2000000).splitlines() %}",
      "{% set x = ('\n'*2000000) | indent %}",
      "{% set x = 'ab'.join('c'*500000) %}",
      "{% set x = ('ab'*100000).strip('xyz'*100000 ~ 'ab') %}",
      "{% set t = 'aB'*100000 %}" + in_loop + "t.upper() %}{% endfor %}",
      "{% set t = 'aB'*100000 %}" + in_loop + "t | title %}{% endfor %}",
      "{% set t = 'aB'*100000 %}" + in_loop + "t.isalpha() %}{% endfor %}",
      "{% set t = 'aB'*100000 %}" + in_loop + "t is upper %}{% endfor %}",
      "{% set t = 'aB'*100000 %}" + in_loop + "t[7] %}{% endfor %}",
      "{% set t = 'aB'*100000 %}" + in_loop + "t[::-1] %}{% endfor %}",
      "{% set t = 'aB'*100000 %}" + in_loop + "t | length %}{% endfor %}",
      "{% set t = 'aB'*100000 %}" + in_loop + "t is sameas t %}{% endfor %}",
      "{% set t = ' '*100000 %}" + in_loop + "t | int %}{% endfor %}",
      "{% set t = ' '*100000 %}" + in_loop + "t | float %}{% endfor %}",
      "{% set t = 'ab'*100000 %}{% set d = {t: 1} %}" + in_loop + "d[t] %}{% endfor %}",
      "{% set l = range(900) | list %}" + in_loop + "l | unique | list %}{% endfor %}",
      "{% set l = range(9000) | list %}" + in_loop + "l | sort %}{% endfor %}",
      "{% set t = '\x01'*300000 %}{% set x = t | tojson %}{% set y = [t] | string %}",
      "{% set t = 'a,'*100000 %}{% set x = [{}, {}] | sort(attribute=t) | list %}",
      in_loop + "strftime_now('%c%c%c%c') %}{% endfor %}",
  };
  for (const std::string& text : bombs) {
    SCOPED_TRACE(text);
    const auto [ok, message] = render(text, Json::object());
    EXPECT_FALSE(ok);
    EXPECT_NE(message.find("does more work than is allowed"), std::string::npos) << message;
  }
  EXPECT_NE(render("{% for i in range(30000) %}{{ 'x'*40 }}{% endfor %}", Json::object())
                .second.find("writes more than"),
            std::string::npos);
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
