#include "suite/check.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "base/text.h"

namespace lockstep::suite {
namespace {

using Clock = std::chrono::steady_clock;

// Between two looks at what there is so far: at least this, and so long that a look costs little.
constexpr double kPartialSeconds = 1;
constexpr double kPartialShare = 0.02;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Those of the part, or all.
std::vector<Job> jobs_of_part(const Suite& suite, const std::vector<Job>& jobs,
                              const std::optional<Part>& part) {
  if (!part) return jobs;
  const std::vector<int64_t> owners = deal_jobs(suite, jobs, part->of);
  std::vector<Job> out;
  for (size_t i = 0; i < jobs.size(); ++i)
    if (owners[i] == part->index) out.push_back(jobs[i]);
  return out;
}

// The results of an earlier run that are still of use.
Result<std::map<int64_t, CaseResult>> earlier(const Results* resume, const std::vector<Job>& jobs,
                                              const std::vector<Job>& own) {
  std::map<int64_t, CaseResult> out;
  if (resume == nullptr) return out;
  std::map<std::string, const Job*> by_id;
  for (const Job& job : jobs) by_id[job.id] = &job;
  std::set<int64_t> wanted;
  for (const Job& job : own) wanted.insert(job.index);
  bool related = resume->results.empty();  // a part may have none of the results
  for (const CaseResult& result : resume->results) {
    const auto found = by_id.find(result.id);
    if (found == by_id.end() || found->second->key != result.key) continue;
    related = true;
    if (!wanted.contains(found->second->index)) continue;
    CaseResult& kept = out[found->second->index] = result;
    kept.index = found->second->index;
    kept.known.clear();
    // What is known, and what the baseline says, is decided anew.
    if (kept.status != Status::kError)
      kept.status = kept.parity ? Status::kPassed : Status::kFailed;
    if (kept.status == Status::kPassed) kept.reason.clear();
  }
  if (!related)
    return error("no result to go on with is of this suite: {} are of another one",
                 resume->results.size());
  return out;
}

}  // namespace

Result<Results> check(const Suite& suite, const CheckOptions& options, const Watching& watching) {
  const auto start = Clock::now();
  const std::vector<Job> jobs = jobs_of(suite);
  const std::vector<Job> own = jobs_of_part(suite, jobs, options.part);
  LS_TRY(auto done, earlier(options.resume, jobs, own));
  Results out;
  out.name = suite.name;
  out.program = "lockstep " LOCKSTEP_VERSION;
  out.time = utc_time();
  out.commit = current_commit();
  out.suite = key_of(jobs);
  out.jobs = std::ssize(jobs);
  out.part = options.part;
  LS_TRY(const std::unique_ptr<Runner> runner, Runner::create(suite, options.run));

  int64_t planned = 0;
  for (const Job& job : own) planned += done.contains(job.index) ? 0 : 1;
  if (watching.on_plan) watching.on_plan(planned);
  const auto cancelled = [&] { return options.run.cancel != nullptr && *options.run.cancel; };
  auto last_partial = start;
  double pause = kPartialSeconds;
  for (const Job& job : own) {
    if (const auto found = done.find(job.index); found != done.end()) {
      out.results.push_back(std::move(found->second));
      continue;
    }
    if (cancelled()) {
      out.complete = false;
      continue;
    }
    if (watching.on_begin) watching.on_begin(job);
    CaseResult result =
        options.give_up.empty() ? runner->run(job) : runner->give_up(job, options.give_up);
    if (cancelled() && result.status == Status::kError) {  // by the cancelling, perhaps
      out.complete = false;
      continue;
    }
    if (watching.on_end) watching.on_end(result);
    out.results.push_back(std::move(result));
    if (!watching.on_partial || seconds_since(last_partial) < pause) continue;
    const auto look = Clock::now();
    Results partial = out;
    partial.complete = false;
    partial.seconds = seconds_since(start);
    apply_known(suite.known, partial);
    watching.on_partial(partial);
    last_partial = Clock::now();
    pause = std::max(kPartialSeconds, seconds_since(look) / kPartialShare);
  }
  apply_known(suite.known, out);
  if (options.baseline != nullptr) hold_against(*options.baseline, out);
  out.seconds = seconds_since(start);
  return out;
}

}  // namespace lockstep::suite
