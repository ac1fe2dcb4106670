#include "cli/python_environment.h"

#include <cstdio>
#include <filesystem>
#include <iostream>

#include <fmt/ranges.h>
#include <unistd.h>

#include "base/file_lock.h"
#include "base/notice.h"
#include "base/places.h"
#include "base/process.h"
#include "base/text.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSystemPython = "python3";
constexpr const char* kOldestPython = "3.9";

// Prints a line for each module that is missing, or "old" and the version. Looks without importing,
// which takes seconds for some.
constexpr const char* kProbe =
    "import sys\n"
    "sys.path[:] = [p for p in sys.path if p]\n"
    "from importlib.util import find_spec\n"
    "if sys.version_info < (3, 9): print('old', sys.version.split()[0])\n"
    "for name in sys.argv[1:]:\n"
    "    if find_spec(name) is None: print('missing', name)\n";

// What keeps `python` from serving; empty where it does. An error where it cannot be started.
Result<std::vector<std::string>> lacks(const std::string& python, const PythonNeeds& needs) {
  std::vector<std::string> command = {python, "-c", kProbe};
  command.insert(command.end(), needs.modules.begin(), needs.modules.end());
  LS_TRY(const ProcessOutcome outcome, run_process(command, ProcessOutput::kCapture));
  if (outcome.status != 0)
    return error("{}: is no Python that works: exit status {} of a small program", python,
                 outcome.status);
  std::vector<std::string> problems;
  std::string_view rest = outcome.output;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (line.starts_with("missing "))
      problems.push_back(fmt::format("lacks {}", printable(line.substr(8), 100)));
    else if (line.starts_with("old "))
      problems.push_back(fmt::format("is version {}, expected {} or later",
                                     printable(line.substr(4), 40), kOldestPython));
  }
  return problems;
}

bool serves(const std::string& python, const PythonNeeds& needs) {
  const auto problems = lacks(python, needs);
  return problems.ok() && problems->empty();
}

// For a shell: versions are given with > and <.
std::string quoted(const std::vector<std::string>& packages) {
  return fmt::format("'{}'", fmt::join(packages, "' '"));
}

Result<void> check_given(const std::string& python, const PythonNeeds& needs) {
  LS_TRY(const std::vector<std::string> problems, lacks(python, needs));
  if (problems.empty()) return {};
  return error("{} {}; to install: {} -m pip install {}", printable(python),
               fmt::join(problems, ", "), printable(python), quoted(needs.packages));
}

// Asked where somebody can answer.
Result<void> agree(const PythonNeeds& needs, const std::string& folder, bool yes) {
  const std::string what = fmt::format("{} into {}", fmt::join(needs.packages, ", "), folder);
  if (yes) return {};
  if (::isatty(STDIN_FILENO) != 1 || ::isatty(STDERR_FILENO) != 1)
    return error(
        "no Python here has what capturing from {} needs; --yes installs {} ({}), --python PATH "
        "names one that has it",
        needs.name, what, needs.cost);
  notice("Install {} ({})? [y/N] ", what, needs.cost);
  std::string answer;
  std::getline(std::cin, answer);
  if (answer == "y" || answer == "Y" || answer == "yes") return {};
  return error("nothing was installed; --python PATH names a Python that has {}",
               fmt::join(needs.packages, ", "));
}

Result<void> run_step(int number, const std::string& what,
                      const std::vector<std::string>& command) {
  notice("[{}/2] {}\n", number, what);
  LS_TRY(const ProcessOutcome outcome, run_process(command, ProcessOutput::kToStderr));
  if (outcome.status == 0) return {};
  return error("exit status {} of: {}", outcome.status, fmt::join(command, " "));
}

Result<void> make_environment(const PythonNeeds& needs, const std::string& folder,
                              const std::string& python) {
  std::error_code failed;
  fs::create_directories(fs::path(folder).parent_path(), failed);
  if (failed) return error("{}: cannot make the folder: {}", folder, failed.message());
  LS_TRY(const FileLock lock, FileLock::take(folder + ".lock", "the making of an environment"));
  // One that was left half-made is made again; one that works is added to.
  if (!lacks(python, needs).ok()) {
    PythonNeeds nothing;
    LS_TRY_VOID(check_given(kSystemPython, nothing));
    LS_TRY_VOID(run_step(1, "making a Python environment in " + folder,
                         {kSystemPython, "-m", "venv", "--clear", folder}));
  }
  std::vector<std::string> install = {python, "-m", "pip", "install",
                                      "--disable-pip-version-check"};
  install.insert(install.end(), needs.packages.begin(), needs.packages.end());
  return run_step(2, fmt::format("installing {} ({})", fmt::join(needs.packages, ", "), needs.cost),
                  install);
}

}  // namespace

Result<std::string> package_folder() {
  const std::vector<std::string> folders = shipped_folders("python");
  for (const std::string& folder : folders) {
    std::error_code failed;
    if (fs::is_directory(fs::path(folder) / "lockstep/capture", failed)) return folder;
  }
  return error("the Python package 'lockstep' is not there: looked in {}",
               fmt::join(folders, ", "));
}

Result<std::string> find_python(const PythonNeeds& needs, const std::string& given, bool yes) {
  if (!given.empty()) {
    LS_TRY_VOID(check_given(given, needs));
    return given;
  }
  if (serves(kSystemPython, needs)) return std::string(kSystemPython);
  LS_TRY(const std::string root, cache_root());
  const std::string folder = (fs::path(root) / "python" / needs.name).string();
  const std::string python = (fs::path(folder) / "bin/python").string();
  if (serves(python, needs)) return python;
  LS_TRY_VOID(agree(needs, folder, yes));
  LS_TRY_VOID(make_environment(needs, folder, python));
  LS_TRY_VOID(check_given(python, needs));
  return python;
}

std::vector<std::string> module_command(const std::string& python, const std::string& folder,
                                        const std::string& module) {
  return {python, "-c",
          "import sys\n"
          "sys.path[:] = [sys.argv.pop(1)] + [p for p in sys.path if p]\n"
          "import runpy\n"
          "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)\n",
          folder, module};
}

}  // namespace lockstep::cli
