#include "suite/key.h"

namespace lockstep::suite {
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
        key.add(prompt.tokens);
        for (const std::string& name : {one.reference, suspect}) {
          const std::optional<Engine> engine = suite.engine(name);
          LS_CHECK(engine.has_value());  // the reader has looked
          key.add(*engine);
        }
        out.push_back({.id = fmt::format("{}/{}/{}", one.name, p, suspect),
                       .key = key.finish().substr(0, 32),
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
  return key.finish().substr(0, 32);
}

}  // namespace lockstep::suite
