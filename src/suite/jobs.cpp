#include <algorithm>
#include <map>

#include "base/part.h"
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

std::vector<int64_t> deal_jobs(const Suite& suite, const std::vector<Job>& jobs, int64_t parts) {
  std::map<std::string, size_t> first;  // case of a model
  for (size_t i = 0; i < suite.cases.size(); ++i) first.try_emplace(suite.cases[i].model, i);
  struct Group {
    size_t model;  // by its first case
    int64_t group;
    double engines = 1;  // the reference, and a suspect for each job
  };
  std::vector<Group> groups;  // jobs of one are neighbours
  for (const Job& job : jobs) {
    if (groups.empty() || groups.back().group != job.group)
      groups.push_back({first.at(suite.cases[job.case_at].model), job.group});
    groups.back().engines += 1;
  }
  std::ranges::stable_sort(groups, {}, &Group::model);
  std::vector<double> work;
  for (const Group& each : groups) work.push_back(each.engines);
  const std::vector<int64_t> owners = deal(work, parts);
  std::map<int64_t, int64_t> owner_of;
  for (size_t i = 0; i < groups.size(); ++i) owner_of[groups[i].group] = owners[i];
  std::vector<int64_t> out;
  for (const Job& job : jobs) out.push_back(owner_of.at(job.group));
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
