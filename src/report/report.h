// The outcome of a comparison, for people and for programs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/terminal.h"
#include "doctor/diagnosis.h"
#include "parity/compare.h"

namespace lockstep::report {

// One of the two that were compared.
struct Party {
  std::string path;    // of its trace
  std::string engine;  // "llama.cpp b4567 on cpu, f32"
};

// The first token that differs; a side that has ended there has none.
struct TokenPair {
  int64_t index = 0;
  std::optional<int32_t> reference;
  std::optional<int32_t> suspect;
  std::optional<std::string> reference_text;  // where the model's tokenizer is at hand
  std::optional<std::string> suspect_text;
};

// What was compared, and what is known of it besides.
struct Subject {
  Party reference;
  Party suspect;
  std::string model;          // the file that was replayed; empty: none
  std::string suspect_model;  // the suspect's, where it ran another one
  std::optional<TokenPair> difference;
  std::vector<doctor::Diagnosis> diagnoses;  // of what is wrong
};

Party describe(const trace::Trace& trace);

// Lines of at most `width` characters.
std::string terminal_report(const parity::Comparison& comparison, const Subject& subject,
                            int64_t width, const Paint& paint);
std::string json_report(const parity::Comparison& comparison,
                        const Subject& subject);  // docs/compare-json.md
std::string junit_report(const parity::Comparison& comparison, const Subject& subject);
std::string markdown_report(const parity::Comparison& comparison, const Subject& subject);
std::string csv_report(const parity::Comparison& comparison);  // a line a checkpoint
// Every experiment of the doctor, with its score.
std::string diagnosis_report(const Subject& subject, int64_t width, const Paint& paint);
// `diagnoses` alone, as in json_report.
std::string diagnosis_json(const parity::Comparison& comparison, const Subject& subject);
// One page that needs nothing from elsewhere (web/, docs/report-page.md). Its data take about
// `limit` bytes. It shows rows where CompareOptions::rows had them kept.
inline constexpr int64_t kHtmlLimit = 20'000'000;
std::string html_report(const parity::Comparison& comparison, const Subject& subject,
                        int64_t limit = kHtmlLimit);

}  // namespace lockstep::report
