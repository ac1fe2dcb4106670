#include <algorithm>

#include "report/summary.h"

namespace lockstep::report {
namespace {

using parity::CheckpointResult;
using parity::Verdict;

enum class Outcome { kPassed, kFailed, kSkipped };

// A difference that could not be judged fails only where it is what the whole verdict rests on.
Outcome outcome(const parity::Comparison& c, const CheckpointResult& result) {
  switch (result.verdict) {
    case Verdict::kExact:
    case Verdict::kRounding:
    case Verdict::kDrift:
    case Verdict::kClose:
      return Outcome::kPassed;
    case Verdict::kDefect:
    case Verdict::kGarbage:
      return Outcome::kFailed;
    case Verdict::kMissing:
      return Outcome::kSkipped;
    case Verdict::kDiffers:
      break;
  }
  if (c.parity) return Outcome::kPassed;
  return c.verdict == parity::name(Verdict::kDiffers) ? Outcome::kFailed : Outcome::kSkipped;
}

std::string detail(const CheckpointResult& result) {
  std::string out =
      fmt::format("relative L2 {}, NMSE {}, largest difference {}, worst at position {}",
                  short_number(result.metrics.relative_l2()), short_number(result.metrics.nmse()),
                  short_number(result.metrics.max_difference), result.worst_position);
  const auto side = [&](const char* label, const parity::SideJudgement& judged) {
    if (!judged.first_defect) return;
    const BoundedError own = bounded(*judged.first_defect);
    out += fmt::format("; the {} is wrong from position {}: own error {}, bound {}", label,
                       judged.first_defect->position, short_number(own.error),
                       short_number(own.bound));
  };
  side("reference", result.reference);
  side("suspect", result.suspect);
  return out;
}

class Suite {
 public:
  void add(std::string_view group, std::string_view name, double seconds, Outcome outcome,
           std::string_view type, const std::string& message) {
    ++tests_;
    cases_ += fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"{:.6f}\"",
                          markup(group), markup(name), seconds);
    if (outcome == Outcome::kPassed) {
      cases_ += "/>\n";
      return;
    }
    const bool failed = outcome == Outcome::kFailed;
    (failed ? failures_ : skipped_) += 1;
    cases_ += failed ? fmt::format(">\n      <failure type=\"{}\" message=\"{}\"/>\n", markup(type),
                                   markup(message))
                     : fmt::format(">\n      <skipped message=\"{}\"/>\n", markup(message));
    cases_ += "    </testcase>\n";
  }

  std::string render(const std::string& headline, double seconds) const {
    const std::string counts =
        fmt::format("tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\" time=\"{:.6f}\"",
                    tests_, failures_, skipped_, seconds);
    return fmt::format(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<testsuites name=\"lockstep compare\" {0}>\n"
        "  <testsuite name=\"lockstep compare\" {0}>\n"
        "{1}"
        "    <system-out>{2}</system-out>\n"
        "  </testsuite>\n"
        "</testsuites>\n",
        counts, cases_, markup(headline));
  }

 private:
  std::string cases_;
  int64_t tests_ = 0;
  int64_t failures_ = 0;
  int64_t skipped_ = 0;
};

}  // namespace

std::string junit_report(const parity::Comparison& c, const Subject& subject) {
  Suite suite;
  std::string sentence = headline(c) + ". ";
  for (const std::string& cause : causes(subject)) sentence += cause + " ";
  sentence += evidence(c, subject);
  // The whole, so that a failure without a failing checkpoint (other prompts, a fork) shows.
  double replays = 0;
  for (const CheckpointResult& result : c.checkpoints) replays += result.seconds;
  suite.add("lockstep", "parity", std::max(0.0, c.seconds - replays),
            c.parity ? Outcome::kPassed : Outcome::kFailed, c.verdict, sentence);
  for (const CheckpointResult& result : c.checkpoints) {
    const std::string group =
        result.layer >= 0 ? fmt::format("lockstep.blk.{}", result.layer) : "lockstep";
    std::string message = detail(result);
    if (result.verdict == Verdict::kMissing)
      message = !result.comparable     ? "of another width on the two sides"
                : !result.in_reference ? "missing in the reference"
                : !result.in_suspect   ? "missing in the suspect"
                                       : "no position is on both sides";
    else if (outcome(c, result) == Outcome::kSkipped)
      message = fmt::format("not judged: {}", message);
    suite.add(group, result.name, result.seconds, outcome(c, result), parity::name(result.verdict),
              message);
  }
  std::string notes = sentence;
  for (const std::string& note : c.notes) notes += fmt::format(" Note: {}.", note);
  return suite.render(notes, c.seconds);
}

}  // namespace lockstep::report
