#include <algorithm>

#include "base/json_reader.h"
#include "base/mapped_file.h"
#include "base/shown_text.h"
#include "report/json.h"
#include "suite/results.h"

namespace lockstep::suite {
namespace {

using nlohmann::ordered_json;
using report::number;

ordered_json text_or_null(const std::string& text) {
  return text.empty() ? ordered_json(nullptr) : ordered_json(text);
}

ordered_json number_or_null(const std::optional<double>& value) {
  return value ? number(*value) : ordered_json(nullptr);
}

ordered_json result_json(const CaseResult& r) {
  return {{"id", r.id},
          {"index", r.index},
          {"key", r.key},
          {"case", r.case_name},
          {"model", r.model},
          {"prompt", r.prompt},
          {"reference", r.reference},
          {"suspect", r.suspect},
          {"status", name(r.status)},
          {"verdict", r.verdict},
          {"parity", r.parity},
          {"headline", r.headline},
          {"first_defect", r.first_defect},
          {"diagnoses", r.diagnoses},
          {"defects", r.defects},
          {"reference_wrong", r.reference_wrong},
          {"worst_ratio", number_or_null(r.worst_ratio)},
          {"kl_mean", number_or_null(r.kl_mean)},
          {"kl_worst", number_or_null(r.kl_worst)},
          {"kl_positions", r.kl_positions},
          {"coverage", number_or_null(r.coverage)},
          {"judged", number_or_null(r.judged)},
          {"known", text_or_null(r.known)},
          {"reason", text_or_null(r.reason)},
          {"report", text_or_null(r.report)},
          {"output", text_or_null(r.output)},
          {"seconds", number(r.seconds)},
          {"engine_seconds", number(r.engine_seconds)}};
}

Result<std::optional<double>> optional_number(const JsonReader& in) {
  if (!in.present()) return std::optional<double>();
  LS_TRY(const double value, in.number());
  return std::optional(value);
}

Result<Status> read_status(const JsonReader& in) {
  LS_TRY(const std::string text, in.text());
  for (const Status status : {Status::kPassed, Status::kFailed, Status::kKnown, Status::kError})
    if (name(status) == text) return status;
  return in.wrong("passed, failed, known or error");
}

Result<bool> boolean_or(const JsonReader& in, bool otherwise) {
  if (!in.present()) return otherwise;
  return in.boolean();
}

// `ordered`: the same, for what is handed on as it is.
Result<CaseResult> read_result(const JsonReader& in, const ordered_json& ordered) {
  LS_TRY_VOID(in.object());
  CaseResult r;
  LS_TRY(r.id, in["id"].text());
  LS_TRY(r.index, in["index"].integer(0, kMostJobs));
  LS_TRY(r.key, in["key"].text());
  LS_TRY(r.case_name, in["case"].text());
  LS_TRY(r.model, in["model"].text());
  LS_TRY(r.prompt, in["prompt"].text_or(""));
  LS_TRY(r.reference, in["reference"].text());
  LS_TRY(r.suspect, in["suspect"].text());
  LS_TRY(r.status, read_status(in["status"]));
  LS_TRY(r.verdict, in["verdict"].text());
  LS_TRY(r.parity, in["parity"].boolean());
  LS_TRY(r.headline, in["headline"].text_or(""));
  if (in["first_defect"].present()) r.first_defect = ordered["first_defect"];
  if (in["diagnoses"].present()) r.diagnoses = ordered["diagnoses"];
  if (in["defects"].present()) {
    LS_TRY(const auto defects, in["defects"].items());
    for (const JsonReader& defect : defects) {
      LS_TRY(r.defects.emplace_back(), defect.text());
    }
  }
  LS_TRY(r.reference_wrong, boolean_or(in["reference_wrong"], false));
  LS_TRY(r.worst_ratio, optional_number(in["worst_ratio"]));
  LS_TRY(r.kl_mean, optional_number(in["kl_mean"]));
  LS_TRY(r.kl_worst, optional_number(in["kl_worst"]));
  LS_TRY(r.kl_positions, in["kl_positions"].integer_or(0, 0, INT64_MAX));
  LS_TRY(r.coverage, optional_number(in["coverage"]));
  LS_TRY(r.judged, optional_number(in["judged"]));
  LS_TRY(r.known, in["known"].text_or(""));
  LS_TRY(r.reason, in["reason"].text_or(""));
  LS_TRY(r.report, in["report"].text_or(""));
  LS_TRY(r.output, in["output"].text_or(""));
  LS_TRY(r.seconds, in["seconds"].number());
  LS_TRY(r.engine_seconds, in["engine_seconds"].number());
  return r;
}

Result<KnownUse> read_known_use(const JsonReader& in) {
  KnownUse use;
  LS_TRY(use.entry.suspect, in["suspect"].text_or(""));
  LS_TRY(use.entry.checkpoint, in["checkpoint"].text_or(""));
  LS_TRY(use.entry.model, in["model"].text_or(""));
  LS_TRY(use.entry.case_name, in["case"].text_or(""));
  LS_TRY(use.entry.reason, in["reason"].text_or(""));
  LS_TRY(use.entry.line, in["line"].integer_or(0, 0, INT32_MAX));
  LS_TRY(use.matched, in["matched"].integer(0, kMostJobs));
  LS_TRY(use.possible, in["possible"].integer(0, kMostJobs));
  return use;
}

}  // namespace

std::string to_json(const Results& all) {
  ordered_json out;
  out["format"] = "lockstep-check";
  out["version"] = 1;
  out["name"] = all.name;
  out["program"] = all.program;
  out["time"] = all.time;
  out["commit"] = text_or_null(all.commit);
  out["seconds"] = number(all.seconds);
  out["suite"] = all.suite;
  out["jobs"] = all.jobs;
  out["part"] = all.part ? ordered_json{{"index", all.part->index}, {"of", all.part->of}}
                         : ordered_json(nullptr);
  out["complete"] = all.complete;
  out["reports"] = text_or_null(all.reports);
  out["passed"] = all.count(Status::kPassed);
  out["failed"] = all.count(Status::kFailed) + all.count(Status::kError);
  out["known"] = all.count(Status::kKnown);
  out["errors"] = all.count(Status::kError);
  const auto stale = all.stale();
  out["known_defects"] = ordered_json::array();
  for (const KnownUse& use : all.known)
    out["known_defects"].push_back({{"suspect", text_or_null(use.entry.suspect)},
                                    {"checkpoint", text_or_null(use.entry.checkpoint)},
                                    {"model", text_or_null(use.entry.model)},
                                    {"case", text_or_null(use.entry.case_name)},
                                    {"reason", use.entry.reason},
                                    {"line", use.entry.line},
                                    {"matched", use.matched},
                                    {"possible", use.possible},
                                    {"stale", std::ranges::find(stale, &use) != stale.end()}});
  out["results"] = ordered_json::array();
  for (const CaseResult& result : all.results) out["results"].push_back(result_json(result));
  return json_text(out, 1) + "\n";
}

Result<Results> parse_results(std::string_view text, const std::string& source) {
  LS_TRY(const nlohmann::json document, parse_json(text, source));
  const JsonReader in(document, source);
  LS_TRY_VOID(in.document("lockstep-check", 1));
  Results out;
  LS_TRY(out.name, in["name"].text());
  LS_TRY(out.program, in["program"].text_or(""));
  LS_TRY(out.time, in["time"].text_or(""));
  LS_TRY(out.commit, in["commit"].text_or(""));
  LS_TRY(out.seconds, in["seconds"].number());
  LS_TRY(out.suite, in["suite"].text());
  LS_TRY(out.jobs, in["jobs"].integer(0, kMostJobs));
  if (const JsonReader part = in["part"]; part.present()) {
    out.part.emplace();
    LS_TRY(out.part->of, part["of"].integer(1, kMostJobs));
    LS_TRY(out.part->index, part["index"].integer(1, out.part->of));
  }
  LS_TRY(out.complete, in["complete"].boolean());
  LS_TRY(out.reports, in["reports"].text_or(""));
  if (in["known_defects"].present()) {
    LS_TRY(const auto entries, in["known_defects"].items());
    for (const JsonReader& entry : entries) {
      LS_TRY(out.known.emplace_back(), read_known_use(entry));
    }
  }
  LS_TRY(const auto results, in["results"].items());
  const ordered_json again = ordered_json::parse(text, nullptr, false);
  for (size_t i = 0; i < results.size(); ++i) {
    LS_TRY(out.results.emplace_back(), read_result(results[i], again["results"][i]));
  }
  std::ranges::sort(out.results, {}, &CaseResult::index);
  return out;
}

Result<Results> read_results(const std::string& path) {
  LS_TRY(const MappedFile file, MappedFile::open(path));
  const auto bytes = file.bytes();
  return parse_results({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
}

}  // namespace lockstep::suite
