#include "suite/trace_files.h"

#include <filesystem>

#include "base/output_file.h"
#include "base/text.h"
#include "report/compared.h"
#include "trace/jsonl_import.h"

namespace lockstep::suite {

namespace fs = std::filesystem;

Result<void> make_folder(const std::string& path) {
  std::vector<std::string> made;
  return make_folders(path, false, made);
}

Result<void> write_text(const std::string& path, const std::string& text) {
  LS_TRY(OutputFile file, OutputFile::create(path));
  LS_TRY_VOID(file.write(std::as_bytes(std::span(text))));
  return file.publish();
}

Result<trace::Trace> open_recorded(const std::string& path, const std::string& unpacked) {
  std::string folder = path;
  std::error_code failed;
  if (fs::is_regular_file(path, failed)) {
    LS_TRY(const trace::ImportOutcome outcome, trace::import_jsonl(path, unpacked));
    if (!outcome.problems.empty() && !outcome.problems.front().kept)
      return error("the log has {} lines that cannot be read, first: {}", outcome.problems.size(),
                   trace::to_text(outcome.problems.front(), path));
    folder = unpacked;
  }
  LS_TRY(trace::Trace trace, trace::Trace::open(folder));
  if (!trace.manifest().complete) return error("the trace says that it is not complete");
  report::rename_checkpoints(std::nullopt, trace);
  return trace;
}

Result<void> copy_folder(const std::string& from, const std::string& to, bool link) {
  std::error_code failed;
  fs::remove_all(to, failed);
  LS_TRY_VOID(make_folder(fs::path(to).parent_path().string()));
  if (link) {
    fs::copy(from, to, fs::copy_options::recursive | fs::copy_options::create_hard_links, failed);
    if (!failed) return {};
    fs::remove_all(to, failed);
  }
  fs::copy(from, to, fs::copy_options::recursive, failed);
  if (failed) return error("{}: cannot copy the trace: {}", printable(to), failed.message());
  return {};
}

}  // namespace lockstep::suite
