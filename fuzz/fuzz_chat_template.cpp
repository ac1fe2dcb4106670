// Any text as a template, and a template's text as a part of the conversation too.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "jinja/interpreter.h"
#include "jinja/parser.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const nlohmann::ordered_json context = {
      {"messages",
       {{{"role", "system"}, {"content", "Be \"brief\".\n"}},
        {{"role", "user"}, {"content", std::string(text.substr(0, 64))}},
        {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", {{{"name", "f"}}}}}}},
      {"tools", {{{"name", "f"}, {"n", 1.5}, {"list", {1, 2, 3}}}}},
      {"add_generation_prompt", true},
      {"bos_token", "<s>"},
      {"eos_token", "</s>"}};
  // Smaller than in use, so that an input which uses them up is no slow one.
  const jinja::Limits limits{.work = 1 << 22, .output_bytes = 1 << 20, .recursion = 1000};
  try {
    const jinja::Body body = jinja::Parser(jinja::tokenize(text)).parse();
    jinja::Interpreter(limits).run(body, context);
  } catch (const jinja::TemplateError&) {
  }
  return 0;
}
