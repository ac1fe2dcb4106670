#include <algorithm>
#include <map>

#include "base/text.h"
#include "suite/results.h"

namespace lockstep::suite {

Result<Results> merge(std::vector<Results> parts, const std::vector<std::string>& sources,
                      bool partial) {
  LS_CHECK(!parts.empty() && parts.size() == sources.size());
  const auto source = [&](size_t i) { return printable(sources[i]); };
  std::vector<Part> which;
  std::map<int64_t, size_t> order;  // by part
  for (size_t i = 0; i < parts.size(); ++i) {
    const Results& one = parts[i];
    if (!one.part)
      return error("{}: results of a whole suite, expected those of a part (--part K/N)",
                   source(i));
    if (one.suite != parts[0].suite || one.jobs != parts[0].jobs)
      return error("{}: of another suite than {} (or of another version of it)", source(i),
                   source(0));
    if (!one.complete && !partial)
      return error("{}: the part was ended before its end; --resume goes on with it", source(i));
    which.push_back(*one.part);
    order[one.part->index] = i;
  }
  LS_TRY_VOID(check_parts(which, sources, partial));

  const size_t first = order.begin()->second;
  Results out = parts[first];
  out.part.reset();
  out.reports.clear();  // each part has its own
  for (const auto& [k, i] : order) {
    if (i == first) continue;
    Results& one = parts[i];
    out.time = std::min(out.time, one.time);
    out.seconds += one.seconds;
    if (one.known.size() != out.known.size())
      return error("{}: other known defects than {}", source(i), source(first));
    for (size_t e = 0; e < out.known.size(); ++e) {
      out.known[e].matched += one.known[e].matched;
      out.known[e].possible += one.known[e].possible;
    }
    std::ranges::move(one.results, std::back_inserter(out.results));
  }
  std::ranges::sort(out.results, {}, &CaseResult::index);
  for (size_t i = 1; i < out.results.size(); ++i)
    if (out.results[i].index == out.results[i - 1].index)
      return error("the results have comparison {} twice", out.results[i].index);
  if (!out.results.empty() && out.results.back().index >= out.jobs)
    return error("the results have comparison {}, expected at most {}", out.results.back().index,
                 out.jobs - 1);
  out.complete = std::ssize(out.results) == out.jobs;
  if (!out.complete && !partial)
    return error("{} results, expected {}", out.results.size(), out.jobs);
  return out;
}

}  // namespace lockstep::suite
