#include "base/sha256.h"
#include "suite/suite.h"

namespace lockstep::suite {
namespace {

// A hash of texts of any content, one after another.
class Key {
 public:
  void add(std::string_view text) {
    const std::string length = fmt::format("{}:", text.size());
    hash_.add(std::as_bytes(std::span(length)));
    hash_.add(std::as_bytes(std::span(text)));
  }
  template <class T>
  void add_number(const T& value) {
    add(fmt::format("{}", value));
  }
  void add(const std::vector<std::string>& texts) {
    add_number(texts.size());
    for (const std::string& text : texts) add(text);
  }
  void add(const Engine& engine) {
    add(engine.name);
    add_number(static_cast<int>(engine.kind));
    for (const std::string& text : {engine.target, engine.folder, engine.python, engine.kv})
      add(text);
    add(engine.command);
    add(engine.options);
    add_number(engine.shell);
    add_number(engine.threads);
  }
  std::string finish() { return hash_.finish().substr(0, 32); }

 private:
  Sha256 hash_;
};

}  // namespace

std::vector<Job> jobs_of(const Suite& suite) {
  std::vector<Job> out;
  int64_t group = 0;
  for (size_t c = 0; c < suite.cases.size(); ++c) {
    const Case& one = suite.cases[c];
    for (size_t p = 0; p < one.prompts.size(); ++p, ++group)
      for (const std::string& suspect : one.suspects) {
        const Prompt& prompt = one.prompts[p];
        Key key;
        for (const std::string& text : {one.name, one.model, one.checkpoints, prompt.text})
          key.add(text);
        key.add_number(one.n);
        key.add_number(static_cast<int>(prompt.kind));
        for (const int32_t token : prompt.tokens) key.add_number(token);
        for (const std::string& name : {one.reference, suspect}) {
          const std::optional<Engine> engine = suite.engine(name);
          LS_CHECK(engine.has_value());  // the reader has looked
          key.add(*engine);
        }
        out.push_back({.id = fmt::format("{}/{}/{}", one.name, p, suspect),
                       .key = key.finish(),
                       .index = std::ssize(out),
                       .group = group,
                       .case_at = c,
                       .prompt = p,
                       .suspect = suspect});
      }
  }
  return out;
}

std::string key_of(const std::vector<Job>& jobs) {
  Key key;
  for (const Job& job : jobs) {
    key.add(job.id);
    key.add(job.key);
  }
  return key.finish();
}

}  // namespace lockstep::suite
