#include "cli/path_checks.h"

#include <filesystem>

#include "base/text.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDash =
    "found '-', expected the name of a file or folder (./- where it is called so)";

bool exists(const std::string& path) {
  std::error_code failed;
  return fs::exists(path, failed);
}

bool is_folder(const std::string& path) {
  std::error_code failed;
  return fs::is_directory(path, failed);
}

Result<void> check_there(const std::string& path, const char* expected) {
  LS_TRY_VOID(check_no_dash(path));
  if (exists(path)) return {};
  return error("{}: no such file or folder; expected {}", printable(path), expected);
}

Result<void> check_manifest(const std::string& folder) {
  if (exists((fs::path(folder) / "manifest.json").string())) return {};
  return error("{} has no manifest.json, expected the folder of a trace", printable(folder));
}

// The folder that will hold `path`.
Result<void> check_parent(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  if (parent.empty() || is_folder(parent)) return {};
  return error("{}: {}", printable(parent),
               exists(parent) ? "is a file, expected a folder" : "no such folder");
}

}  // namespace

Result<void> check_no_dash(const std::string& path) {
  if (path != "-") return {};
  return error("{}", kDash);
}

Result<void> check_input_file(const std::string& path) {
  LS_TRY_VOID(check_there(path, "a file"));
  if (!is_folder(path)) return {};
  return error("{} is a folder, expected a file", printable(path));
}

Result<void> check_input_file_or_stdin(const std::string& path) {
  if (path == "-") return {};
  return check_input_file(path);
}

Result<void> check_output_file(const std::string& path) {
  LS_TRY_VOID(check_no_dash(path));
  if (is_folder(path)) return error("{} is a folder, expected a file to write", printable(path));
  if (path.ends_with('/'))
    return error("{} ends in a slash, expected a file to write", printable(path));
  std::error_code failed;
  if (exists(path) && !fs::is_regular_file(path, failed))
    return error("{} is no regular file, expected a file to write", printable(path));
  return check_parent(path);
}

Result<void> check_trace(const std::string& path) {
  constexpr const char* kExpected = "the folder of a trace";
  LS_TRY_VOID(check_there(path, kExpected));
  if (is_folder(path)) return check_manifest(path);
  return error("{} is a file, expected {}", printable(path), kExpected);
}

Result<void> check_trace_or_log(const std::string& path) {
  LS_TRY_VOID(check_there(path, "the folder of a trace, or a JSON Lines log"));
  return is_folder(path) ? check_manifest(path) : Result<void>();
}

Result<void> check_new_folder(const std::string& path) {
  LS_TRY_VOID(check_no_dash(path));
  if (!exists(path) || is_folder(path)) return {};
  return error("{} is a file, expected a folder", printable(path));
}

}  // namespace lockstep::cli
