#include "cli/log_problems.h"

#include <algorithm>

#include "base/notice.h"

namespace lockstep::cli {

void print_problems(const std::vector<trace::JsonlProblem>& problems, const std::string& path,
                    std::string_view all) {
  constexpr size_t kShown = 20;
  for (size_t i = 0; i < std::min(problems.size(), kShown); ++i)
    notice("{}\n", to_text(problems[i], path));
  if (problems.size() > kShown)
    notice("... and {} more ({} has all)\n", problems.size() - kShown, all);
}

nlohmann::ordered_json problems_json(const std::vector<trace::JsonlProblem>& problems) {
  auto out = nlohmann::ordered_json::array();
  for (const trace::JsonlProblem& problem : problems)
    out.push_back({{"line", problem.line},
                   {"column", problem.column},
                   {"message", problem.message},
                   {"truncated", problem.truncated},
                   {"kept", problem.kept},
                   {"lines", problem.lines},
                   {"last_line", problem.last_line}});
  return out;
}

}  // namespace lockstep::cli
