#include "server/judgements.h"

#include <algorithm>
#include <filesystem>

#include <boost/asio/post.hpp>

#include "base/no_throw.h"
#include "base/text.h"
#include "trace/checkpoints.h"

namespace lockstep::server {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostWaiting = 4;
constexpr ptrdiff_t kMostKept = 16;
constexpr int64_t kReportBytes = 20'000'000;  // what compare --html-limit allows
constexpr int64_t kMostPositions = 16'000;    // as many ids as an argument of a program can have
constexpr const char* kCheckpoints = "ops";
constexpr const char* kFolderKind = "lockstep-judged-";

std::string gigabytes(int64_t bytes) {
  return fmt::format("{:.3g} GB", static_cast<double>(bytes) / 1e9);
}

// Of one position in the recordings of both sides: what the executor shows, and doubles.
int64_t bytes_of_position(const ServedModel& model) {
  const op::Program& program = model.session->program();
  const auto shown = trace::select_checkpoints(program, kCheckpoints);
  int64_t width = 0;
  if (shown.ok())
    for (const op::ValueId id : *shown) {
      const op::Value& value = program.value(id);
      width +=
          value.width * (value.shape == op::Value::Shape::kScores ? program.context_length : 1);
    }
  return width * (size_bytes(model.session->executor().dtype()) + size_bytes(DType::kF64));
}

ApiError cancelled() {
  return {499, "CANCELLED", "the judgement was cancelled", ""};
}

}  // namespace

Judgements::Judgements(boost::asio::io_context& network, Worker& worker, const ServedModel& model,
                       Metrics& metrics, JudgeOptions options)
    : network_(network),
      worker_(worker),
      model_(model),
      metrics_(metrics),
      options_(std::move(options)),
      position_bytes_(bytes_of_position(model)) {
  if (!possible()) return;
  reports_ = std::make_unique<PageThread>(network, "reports");
  thread_ = std::make_unique<SideThread>(network, /*background=*/true);
}

Judgements::~Judgements() {
  cancel_ = true;
}

void Judgements::keep(const Job& job, bool ended) noexcept {
  if (!possible() || job.record) return;
  static_cast<void>(no_throw([&]() -> Result<void> {
    answers_.keep(job, ended);
    return {};
  }));
}

Judgements::One Judgements::find(const std::string& id) const {
  const auto found = std::ranges::find(all_, id, [](const One& one) { return one->id; });
  return found != all_.end() ? *found : nullptr;
}

HttpResponse Judgements::begin(const std::string& job_id) {
  const auto refused = [](int status, const char* code, std::string message, const char* field) {
    HttpResponse out = error_response({status, code, std::move(message), field});
    if (status == 503) out.headers.emplace_back("Retry-After", "10");
    return out;
  };
  if (!possible())
    return refused(404, "NOT_FOUND", "this server judges nothing (--judge-disk 0)", "");
  if (stopping_) return refused(503, "SHUTTING_DOWN", "the server is stopping", "");
  const std::shared_ptr<const Answer> answer = answers_.find(job_id);
  // A judgement outlasts what else is kept of its answer.
  const auto known = std::ranges::find_if(all_, [&](const One& one) {
    return one->stage != Stage::kFailed &&
           (answer != nullptr ? one->answer == answer : one->answer->job_id == job_id);
  });
  if (known != all_.end()) return json_response((*known)->over() ? 200 : 202, to_json(**known));
  if (answer == nullptr)
    return refused(404, "NOT_FOUND",
                   fmt::format("no answer of job '{}' is kept; the last {} are, where they have "
                               "tokens and are not too large",
                               printable(job_id, 100), answers_.most()),
                   "job_id");
  if (answer->positions() > kMostPositions)
    return refused(400, "ANSWER_TOO_LARGE",
                   fmt::format("the answer and its prompt have {} tokens; at most {} are judged",
                               answer->positions(), kMostPositions),
                   "job_id");
  auto one = std::make_shared<Judgement>();
  one->id = random_id("judge");
  one->answer = answer;
  one->bytes = answer->positions() * position_bytes_ + kReportBytes;
  if (one->bytes > options_.disk_bytes)
    return refused(
        400, "ANSWER_TOO_LARGE",
        fmt::format("recordings of these {} tokens take {}; there may be {} "
                    "(--judge-disk)",
                    answer->positions(), gigabytes(one->bytes), gigabytes(options_.disk_bytes)),
        "job_id");
  const auto waiting = static_cast<size_t>(std::ranges::count_if(
      all_, [&](const One& other) { return !other->over() && other != active_; }));
  if (waiting >= kMostWaiting)
    return refused(503, "QUEUE_FULL",
                   fmt::format("{} judgements wait already; try again later", waiting), "");
  all_.push_back(one);
  next();
  return json_response(202, to_json(*one));
}

// The oldest that are over give way. Their folders, which the thread removes.
std::vector<std::string> Judgements::make_room(const Judgement& wanted) {
  std::vector<std::string> out;
  for (;;) {
    const auto over = [](const One& one) { return one->over(); };
    int64_t bytes = wanted.bytes;
    for (const One& one : all_)
      if (over(one)) bytes += one->bytes;
    const auto oldest = std::ranges::find_if(all_, over);
    if (oldest == all_.end() ||
        (bytes <= options_.disk_bytes && std::ranges::count_if(all_, over) < kMostKept))
      return out;
    out.push_back((*oldest)->folder);
    all_.erase(oldest);
  }
}

// What throws, for want of memory, ends the judgement.
template <class Step>
void Judgements::guard(const One& one, const Step& step) noexcept {
  try {
    if (!one->over()) step();
  } catch (...) {
    finish(one, out_of_memory());
  }
}

void Judgements::next() noexcept {
  if (active_ != nullptr || stopping_) return;
  const auto found = std::ranges::find_if(all_, [](const One& one) { return !one->over(); });
  if (found == all_.end()) return;
  const One one = active_ = *found;
  cancel_ = false;
  guard(one, [&] {
    thread_->add([this, one, dropped = make_room(*one)] { prepare(*one, dropped); },
                 [this, one](bool failed) {
                   guard(one, [&] {
                     if (failed) return finish(one, out_of_memory());
                     if (cancel_) return finish(one, cancelled());
                     if (!one->why_not.empty())
                       return finish(one, ApiError{500, "INTERNAL", one->why_not, ""});
                     record(one);
                   });
                 });
  });
}

void Judgements::prepare(Judgement& one, const std::vector<std::string>& dropped) {
  std::error_code failed;
  for (const std::string& folder : dropped)
    if (!folder.empty()) fs::remove_all(folder, failed);
  if (!root_) {
    auto made = TemporaryFolder::create_of_kind(kFolderKind);
    if (!made.ok()) {
      one.why_not = made.error().message;
      return;
    }
    root_.emplace(std::move(*made));
  }
  const fs::path folder = root_->path() / one.id;
  const fs::space_info space = fs::space(root_->path(), failed);
  if (!failed && space.available < static_cast<uintmax_t>(one.bytes)) {
    one.why_not = fmt::format(
        "{} of disk are needed in {}, and {} are free (TMPDIR chooses "
        "another place)",
        gigabytes(one.bytes), root_->path().parent_path().string(),
        gigabytes(static_cast<int64_t>(space.available)));
    return;
  }
  if (!fs::create_directory(folder, failed))
    one.why_not =
        fmt::format("{}: cannot create the folder: {}", folder.string(), failed.message());
  else
    one.folder = folder.string();
}

void Judgements::record(const One& one) {
  auto job = std::make_shared<Job>();
  job->id = one->id;
  job->fields = one->answer->fields;
  job->prompt_text = one->answer->prompt_text;
  job->listener = repeats_answer(
      one, [this, one](const std::optional<ApiError>& problem) { recorded(one, problem); });
  job->record.emplace();
  job->record->folder = (fs::path(one->folder) / kAnswerTrace).string();
  job->record->checkpoints = kCheckpoints;
  if (const auto problem = worker_.submit(job)) finish(one, problem);
}

void Judgements::recorded(const One& one, const std::optional<ApiError>& problem) {
  if (one->over()) return;
  if (problem || cancel_) return finish(one, problem ? *problem : cancelled());
  one->enter(Stage::kComputing);
  const Answer& answer = *one->answer;
  JudgeTask task{one->folder, model_.manifest.model.path, model_.manifest.model.fingerprint,
                 model_.context_length(), answer.fields.prompt_tokens};
  task.tokens.insert(task.tokens.end(), answer.tokens.begin(), answer.tokens.end());
  // The last token was chosen, and nothing was computed from it.
  if (answer.fields.max_tokens == std::ssize(answer.tokens)) task.tokens.pop_back();
  const auto judging = [this, one] {
    boost::asio::post(network_, [one] { one->enter(Stage::kJudging); });
  };
  const auto result = std::make_shared<std::optional<Result<JudgeVerdict>>>();
  thread_->add([this, task = std::move(task), judging,
                result] { result->emplace(judge(task, options_, cancel_, judging)); },
               [this, one, result](bool failed) {
                 guard(one, [&] {
                   if (failed) return finish(one, out_of_memory());
                   if (cancel_) return finish(one, cancelled());
                   if (!(*result)->ok())
                     return finish(one, ApiError{500, "INTERNAL", (*result)->error().message, ""});
                   one->verdict = std::move((*result)->value());
                   finish(one, std::nullopt);
                 });
               });
}

void Judgements::finish(const One& one, std::optional<ApiError> problem) noexcept {
  if (one->over()) return;
  one->enter(problem ? Stage::kFailed : Stage::kDone);
  ++(problem                ? metrics_.judgements.failed
     : one->verdict->parity ? metrics_.judgements.parity
                            : metrics_.judgements.no_parity);
  one->problem = std::move(problem);
  if (active_ == one) active_ = nullptr;
  next();
}

void Judgements::cancel(const std::string& id) {
  const One one = find(id);
  if (one == nullptr || one->over()) return;
  // The worker ends a recording, and its listener tells; the thread ends what it does.
  if (one == active_)
    cancel_ = true;
  else
    finish(one, cancelled());
}

void Judgements::stop() {
  stopping_ = true;
  cancel_ = true;
}

void Judgements::show(const std::string& path, const std::shared_ptr<Responder>& responder) {
  constexpr std::string_view kPath = "/judge/", kReport = "/report";
  std::string id = path.substr(std::min(path.size(), kPath.size()));
  const bool report = id.ends_with(kReport);
  if (report) id.resize(id.size() - kReport.size());
  next();  // where there was no memory before
  const One one = find(id);
  if (one == nullptr)
    return responder->respond(error_response(
        {404, "NOT_FOUND",
         fmt::format("no such judgement: {}; the last {} are kept", printable(id, 100), kMostKept),
         ""}));
  if (!report) {
    HttpResponse response = json_response(200, to_json(*one));
    response.headers.emplace_back("Cache-Control", "no-store");
    return responder->respond(std::move(response));
  }
  if (one->stage != Stage::kDone)
    return responder->respond(error_response(
        {404, "NOT_FOUND", "the judgement has no report: it is not done, or it failed", ""}));
  reports_->answer(responder, [file = (fs::path(one->folder) / kReportPage).string()] {
    return report_response(file);
  });
}

}  // namespace lockstep::server
