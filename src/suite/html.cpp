#include "base/text.h"
#include "report/summary.h"
#include "suite/writers.h"

namespace lockstep::suite {
namespace {

constexpr const char* kStyle =
    "body{font:14px/1.5 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;"
    "color:#222;background:#fff}table{border-collapse:collapse;width:100%}"
    "th,td{text-align:left;padding:.3em .6em;border-bottom:1px solid #ddd;vertical-align:top}"
    "td.n{text-align:right;font-variant-numeric:tabular-nums}"
    ".failed,.error{color:#b00020}.passed{color:#1b7a33}.known{color:#8a6d00}"
    "td.why{overflow-wrap:anywhere}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}"
    "th,td{border-color:#444}.failed,.error{color:#ff7b7b}.passed{color:#6fcf83}"
    ".known{color:#e0c060}a{color:#8ab4f8}}";

std::string number_cell(const std::optional<double>& value) {
  return fmt::format("<td class=\"n\">{}</td>", value ? report::short_number(*value) : "");
}

}  // namespace

std::string link_to(const std::string& path) {
  std::string out;
  for (const char c : path) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-._~/").find(c) != std::string_view::npos;
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

std::string html_text(const Results& all, const std::string& reports) {
  using report::markup;
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width\"><title>{0}</title>"
      "<style>{1}</style></head><body>\n<h1>{0}</h1>\n<p>{2} passed, {3} failed, {4} known"
      "{5}; {6}, {7}, {8:.1f} s</p>\n",
      markup(all.name), kStyle, all.count(Status::kPassed),
      all.count(Status::kFailed) + all.count(Status::kError), all.count(Status::kKnown),
      all.complete ? "" : "; not all cases have run", markup(all.time), markup(all.program),
      all.seconds);
  out +=
      "<table><thead><tr><th>status</th><th>case</th><th>reference</th><th>verdict</th>"
      "<th>own error / bound</th><th>KL</th><th>coverage</th><th>s</th><th></th></tr></thead>"
      "<tbody>\n";
  for (const CaseResult& r : all.results) {
    const std::string why = r.status == Status::kKnown ? "known: " + r.known : r.reason;
    const std::string id =
        r.report.empty() || reports.empty()
            ? markup(r.id)
            : fmt::format("<a href=\"{}\">{}</a>", link_to(reports + "/" + r.report), markup(r.id));
    out += fmt::format(
        "<tr><td class=\"{0}\">{0}</td><td>{1}</td><td>{2}</td><td>{3}</td>{4}{5}{6}"
        "<td class=\"n\">{7:.2f}</td><td class=\"why\">{8}</td></tr>\n",
        name(r.status), id, markup(r.reference), markup(r.verdict), number_cell(r.worst_ratio),
        number_cell(r.kl_mean), number_cell(r.coverage), r.seconds, markup(why));
  }
  out += "</tbody></table>\n";
  for (const KnownUse* use : all.stale())
    out += fmt::format("<p>Stale: the known defect of line {} was not met: {}</p>\n",
                       use->entry.line, markup(use->entry.reason));
  return out + "</body></html>\n";
}

}  // namespace lockstep::suite
