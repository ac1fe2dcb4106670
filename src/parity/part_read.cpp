// Reads the file of a part, which may come from anywhere.
#include <bit>
#include <charconv>
#include <limits>

#include "base/json_reader.h"
#include "base/mapped_file.h"
#include "parity/part.h"

namespace lockstep::parity {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
// Far beyond any text; what positions add up to fits 64 bits.
constexpr int64_t kMostPosition = 1'000'000'000'000;
constexpr size_t kDigits = 8;  // of a float

Result<double> read_exact(const JsonReader& in) {
  if (in.present() && in.value().is_string()) {
    const std::string text = in.value().get<std::string>();
    if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (text == "inf") return std::numeric_limits<double>::infinity();
    if (text == "-inf") return -std::numeric_limits<double>::infinity();
    return in.wrong("a number, nan, inf or -inf");
  }
  return in.number();
}

Result<int64_t> read_count(const JsonReader& in) {
  return in.integer(0, kMost);
}

// Items of an array of a known length, one after another.
class Items {
 public:
  static Result<Items> of(const JsonReader& in, size_t count) {
    LS_TRY(std::vector<JsonReader> items, in.items());
    if (items.size() != count) return in.wrong(fmt::format("an array of {}", count));
    return Items(std::move(items));
  }
  const JsonReader& next() { return items_[next_++]; }
  Result<void> number(double& out) {
    LS_TRY(out, read_exact(next()));
    return {};
  }
  Result<void> count(int64_t& out) {
    LS_TRY(out, read_count(next()));
    return {};
  }

 private:
  explicit Items(std::vector<JsonReader> items) : items_(std::move(items)) {}
  std::vector<JsonReader> items_;
  size_t next_ = 0;
};

Result<OwnError> read_own(const JsonReader& in) {
  LS_TRY(Items items, Items::of(in, 8));
  OwnError out;
  LS_TRY_VOID(items.count(out.position));
  LS_TRY_VOID(items.number(out.error));
  LS_TRY_VOID(items.number(out.expected));
  LS_TRY_VOID(items.count(out.worst_index));
  LS_TRY_VOID(items.number(out.worst_ratio));
  LS_TRY_VOID(items.number(out.recorded));
  LS_TRY_VOID(items.number(out.replayed));
  LS_TRY(out.non_finite, items.next().boolean());
  return out;
}

Result<Metrics> read_metrics(const JsonReader& in) {
  LS_TRY(Items items, Items::of(in, 13));
  Metrics out;
  for (int64_t* field : {&out.elements, &out.differing, &out.non_finite_differs})
    LS_TRY_VOID(items.count(*field));
  LS_TRY_VOID(items.number(out.max_difference));
  LS_TRY_VOID(items.count(out.max_index));
  for (double* field : {&out.sum_difference, &out.squares_difference, &out.squares_reference,
                        &out.squares_suspect, &out.products})
    LS_TRY_VOID(items.number(*field));
  LS_TRY_VOID(items.count(out.sign_flips));
  for (Counts* side : {&out.reference, &out.suspect}) {
    LS_TRY(Items counts, Items::of(items.next(), 4));
    for (int64_t* field : {&side->nan, &side->infinite, &side->negative_zero, &side->denormal})
      LS_TRY_VOID(counts.count(*field));
  }
  return out;
}

Result<Runs> read_runs(const JsonReader& in) {
  LS_TRY(const auto runs, in.items());
  Runs out;
  for (const JsonReader& run : runs) {
    LS_TRY(Items ends, Items::of(run, 2));
    const int64_t least = out.empty() ? 0 : out.back().second + 1;
    LS_TRY(const int64_t first, ends.next().integer(least, kMostPosition));
    LS_TRY(const int64_t last, ends.next().integer(first, kMostPosition));
    out.emplace_back(first, last);
  }
  return out;
}

// At most `most` of them: a few digits may tell of more than any memory holds.
Result<std::vector<int64_t>> read_positions(const JsonReader& in, size_t most) {
  LS_TRY(const Runs runs, read_runs(in));
  std::vector<int64_t> out;
  for (const auto& [first, last] : runs) {
    if (static_cast<uint64_t>(last - first) >= most - out.size())
      return in.wrong(fmt::format("{} positions at most", most));
    for (int64_t i = first; i <= last; ++i) out.push_back(i);
  }
  return out;
}

Result<void> read_floats(const JsonReader& in, std::vector<float>& out) {
  LS_TRY(const std::string text, in.text());
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end; at += kDigits) {
    uint32_t bits = 0;
    const char* const stop = at + std::min<ptrdiff_t>(kDigits, end - at);
    const auto [read, failed] = std::from_chars(at, stop, bits, 16);
    if (failed != std::errc() || read != at + kDigits)
      return in.wrong("hexadecimal digits, 8 for each number");
    out.push_back(std::bit_cast<float>(bits));
  }
  return {};
}

template <class Row>
Result<std::vector<Row>> read_rows(const JsonReader& in, float Row::*first, float Row::*second) {
  LS_TRY(Items items, Items::of(in["numbers"], 2));
  std::vector<float> numbers[2];
  for (std::vector<float>& each : numbers) LS_TRY_VOID(read_floats(items.next(), each));
  LS_TRY(const auto positions, read_positions(in["positions"], numbers[0].size()));
  if (numbers[0].size() != positions.size() || numbers[1].size() != positions.size())
    return in.wrong("two numbers for each position");
  std::vector<Row> out(positions.size());
  for (size_t i = 0; i < out.size(); ++i) {
    out[i].position = positions[i];
    out[i].*first = numbers[0][i];
    out[i].*second = numbers[1][i];
  }
  return out;
}

template <class T, class F>
Result<void> read_if_there(const JsonReader& in, std::optional<T>& out, const F& read) {
  if (!in.present()) return {};
  LS_TRY(out, read(in));
  return {};
}

Result<SideJudgement> read_judgement(const JsonReader& in) {
  SideJudgement out;
  LS_TRY(out.rows, read_rows(in["rows"], &RowError::ratio, &RowError::error));
  LS_TRY(out.defects, read_positions(in["defects"], out.rows.size()));
  LS_TRY_VOID(read_if_there(in["worst"], out.worst, read_own));
  LS_TRY_VOID(read_if_there(in["first_defect"], out.first_defect, read_own));
  return out;
}

Result<Beyond> read_beyond(const JsonReader& in) {
  Beyond out;
  LS_TRY(out.position, read_count(in["position"]));
  LS_TRY(out.metrics, read_metrics(in["metrics"]));
  return out;
}

Result<CheckpointResult> read_checkpoint(const JsonReader& in) {
  LS_TRY_VOID(in.object());
  CheckpointResult out;
  LS_TRY(out.name, in["name"].text());
  LS_TRY(out.metrics, read_metrics(in["metrics"]));
  LS_TRY(out.worst_position, read_count(in["worst_position"]));
  LS_TRY(out.worst_relative_l2, read_exact(in["worst_relative_l2"]));
  LS_TRY_VOID(read_if_there(in["first_beyond"], out.first_beyond, read_beyond));
  LS_TRY(out.rows.compared,
         read_rows(in["rows"], &RowDifference::relative_l2, &RowDifference::difference));
  LS_TRY(out.reference, read_judgement(in["reference"]));
  LS_TRY(out.suspect, read_judgement(in["suspect"]));
  LS_TRY(out.seconds, read_exact(in["seconds"]));
  return out;
}

Result<PositionLogits> read_logits(const JsonReader& in) {
  LS_TRY(Items items, Items::of(in, 7));
  PositionLogits out;
  LogitMetrics& m = out.metrics;
  LS_TRY_VOID(items.count(out.position));
  for (int32_t* token : {&m.reference_choice, &m.suspect_choice}) {
    LS_TRY(const int64_t id, items.next().integer(0, std::numeric_limits<int32_t>::max()));
    *token = static_cast<int32_t>(id);
  }
  LS_TRY_VOID(items.number(m.reference_margin));
  LS_TRY_VOID(items.number(m.suspect_margin));
  LS_TRY_VOID(read_if_there(items.next(), m.kl_divergence, read_exact));
  LS_TRY_VOID(items.number(m.top10_overlap));
  return out;
}

Result<DerivedChoices> read_experts(const JsonReader& in) {
  LS_TRY(const auto choices, in.items());
  DerivedChoices out;
  for (const JsonReader& each : choices) {
    LS_TRY(Items items, Items::of(each, 3));
    LS_TRY(const std::string name, items.next().text());
    DerivedChoices::Of& of = out.by_checkpoint[name];
    LS_TRY(of.all, read_runs(items.next()));
    LS_TRY(of.open, read_runs(items.next()));
  }
  return out;
}

}  // namespace

Result<Findings> parse_findings(std::string_view text, const std::string& source) {
  LS_TRY(const nlohmann::json document, parse_json(text, source));
  const JsonReader in(document, source);
  LS_TRY_VOID(in.document("lockstep-part", 1));
  Findings out;
  out.source = source;
  Identity& identity = out.identity;
  LS_TRY(identity.program, in["program"].text());
  LS_TRY(out.part.of, in["part"]["of"].integer(1, kMost));
  LS_TRY(out.part.index, in["part"]["index"].integer(1, out.part.of));
  LS_TRY(identity.reference, in["reference"]["fingerprint"].text());
  LS_TRY(identity.suspect, in["suspect"]["fingerprint"].text());
  LS_TRY(identity.model, in["model"]["fingerprint"].text_or(""));
  LS_TRY(identity.other_model, in["suspect_model"]["fingerprint"].text_or(""));
  LS_TRY(out.paths.suspect_model, in["suspect_model"]["path"].text_or(""));
  LS_TRY(out.paths.reference, in["reference"]["path"].text_or(""));
  LS_TRY(out.paths.suspect, in["suspect"]["path"].text_or(""));
  LS_TRY(out.paths.model, in["model"]["path"].text_or(""));
  LS_TRY(out.paths.names, in["names"].text_or(""));
  LS_TRY(identity.checkpoints, in["selected"]["checkpoints"].text());
  LS_TRY(const auto positions, in["selected"]["positions"].items());
  for (const JsonReader& position : positions) {
    LS_TRY(identity.positions.emplace_back(), read_count(position));
  }
  LS_TRY(out.seconds, read_exact(in["seconds"]));
  LS_TRY(out.failure, in["gpu_failure"].text_or(""));
  LS_TRY(Items choices, Items::of(in["choices"], 5));
  for (int64_t* field : {&out.choices.compared, &out.choices.same, &out.choices.divergences})
    LS_TRY_VOID(choices.count(*field));
  LS_TRY_VOID(choices.number(out.choices.sum_kl));
  LS_TRY_VOID(choices.number(out.choices.worst_kl));
  LS_TRY(const auto logits, in["logits"].items());
  for (const JsonReader& each : logits) {
    LS_TRY(out.logits.emplace_back(), read_logits(each));
  }
  LS_TRY(out.reference_experts, read_experts(in["experts"]["reference"]));
  LS_TRY(out.suspect_experts, read_experts(in["experts"]["suspect"]));
  LS_TRY(const auto checkpoints, in["checkpoints"].items());
  for (const JsonReader& each : checkpoints) {
    LS_TRY(out.checkpoints.emplace_back(), read_checkpoint(each));
  }
  return out;
}

Result<Findings> read_findings(const std::string& path) {
  LS_TRY(const MappedFile file, MappedFile::open(path));
  const auto bytes = file.bytes();
  return parse_findings({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
}

}  // namespace lockstep::parity
