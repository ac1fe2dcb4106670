#include "models/pull.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>

#include "base/file_lock.h"
#include "base/mapped_file.h"
#include "base/notice.h"
#include "base/progress.h"
#include "base/text.h"
#include "models/check_file.h"
#include "models/http.h"
#include "models/part_file.h"
#include "models/zip_member.h"

namespace lockstep::models {
namespace {

namespace fs = std::filesystem;

bool stopped(const PullOptions& options) {
  return options.interrupted != nullptr && *options.interrupted;
}

// Sleeps, but not through a Ctrl-C.
void pause(const PullOptions& options, int seconds) {
  for (int tenths = 10 * seconds; tenths > 0 && !stopped(options); --tenths)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

// Counts whole megabytes of what is still to come, so that the time left is right after a resume.
class Bar {
 public:
  Bar(std::string label, int64_t from_bytes) : label_(std::move(label)), from_bytes_(from_bytes) {}

  void show(int64_t done_bytes, int64_t total_bytes) {
    if (total_bytes <= 0) return;  // a bar without an end says nothing
    if (!bar_) {
      from_bytes_ = std::min(from_bytes_, done_bytes);  // the server may have begun anew
      const int64_t to_come = (total_bytes - from_bytes_ + kMega - 1) / kMega;
      bar_ = std::make_unique<Progress>(label_, to_come, "MB");
    }
    const int64_t now = (done_bytes - from_bytes_) / kMega;
    if (now > shown_) bar_->advance(now - shown_);
    shown_ = std::max(shown_, now);
  }

 private:
  static constexpr int64_t kMega = 1'000'000;
  std::string label_;
  int64_t from_bytes_;
  int64_t shown_ = 0;
  std::unique_ptr<Progress> bar_;
};

// How much the server has, where that is known beforehand.
int64_t transfer_bytes(const PullSource& source) {
  return source.member.empty() ? source.size_bytes : 0;
}

// Fills the part file. What comes back is the hash that the hub states, or "".
Result<std::string> download(const PullSource& source, const PullOptions& options, PartFile& part) {
  int failures = 0;
  for (;;) {
    const int64_t before = part.size_bytes();
    Bar bar(source.name, before);
    HttpRequest request;
    request.url = source.url;
    request.expected_bytes = transfer_bytes(source);
    request.most_bytes = options.most_bytes;
    request.stall_seconds = options.stall_seconds;
    request.interrupted = options.interrupted;
    request.on_bytes = [&](int64_t done, int64_t total) { bar.show(done, total); };
    const HttpOutcome outcome = http_fetch(request, part);
    if (outcome.ending == HttpEnding::kWhole) return outcome.stated_sha256;

    // A server that sends a few bytes each time would otherwise be asked for ever.
    const bool went_on = part.size_bytes() - before >= kLeastBytesASecond * options.stall_seconds;
    failures = went_on && options.retries > 0 ? 1 : failures + 1;
    const bool again = outcome.ending == HttpEnding::kRetry && failures <= options.retries;
    if (!again || stopped(options)) {
      const std::string kept =
          part.size_bytes() == 0
              ? ""
              : fmt::format("; {}B are kept in {}, the same command goes on from there",
                            human(part.size_bytes()), part.path());
      return error("{}: {}{}", source.url, outcome.problem, kept);
    }
    const int seconds = 1 << std::min(failures - 1, 4);
    notice("{}; trying again in {} s\n", outcome.problem, seconds);
    pause(options, seconds);
  }
}

// Whether the part file already holds all, so that only the checks are left.
bool all_there(const PullSource& source, const PartFile& part) {
  const int64_t known = transfer_bytes(source);
  const int64_t total = known > 0 ? known : part.origin().total_bytes;
  return total > 0 && part.size_bytes() == total;
}

// What is left from before may be of another file, or too long; then it is dropped.
Result<void> drop_if_useless(const PullSource& source, PartFile& part) {
  const int64_t known = transfer_bytes(source);
  const bool too_long = known > 0 && part.size_bytes() > known;
  if (part.origin().url == source.url && !too_long) return {};
  return part.restart();
}

// The model out of the archive, into a part file of its own. An archive that does not have it whole
// is of no use, and goes.
Result<PartFile> unpack_member(const PullSource& source, const PullOptions& options,
                               PartFile& archive, const std::string& target) {
  LS_TRY(PartFile model, PartFile::open(target + ".member"));
  LS_TRY_VOID(model.restart());
  bool ours = false;  // a full disk or a Ctrl-C, not the archive, is at fault
  const auto copy = [&]() -> Result<void> {
    LS_TRY(const MappedFile file, MappedFile::open(archive.path()));
    LS_TRY(const ZipMember member, find_zip_member(file.bytes(), source.member));
    Bar bar("unpacking", 0);
    return unpack(member, [&](std::span<const char> piece) -> Result<void> {
      Result<void> added = stopped(options) ? error("interrupted") : model.add(piece);
      ours = !added.ok();
      if (ours) return added;
      bar.show(model.size_bytes(), member.size_bytes);
      return {};
    });
  };
  if (const Result<void> copied = copy(); !copied.ok()) {
    LS_TRY_VOID(model.remove());
    if (ours) return copied.error();
    LS_TRY_VOID(archive.remove());
    return error("{}: {}; nothing was kept", source.url, copied.error().message);
  }
  return model;
}

}  // namespace

bool is_model_name(const std::string& name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= 200 && name.front() != '.' && name.front() != '-' &&
         std::all_of(name.begin(), name.end(), allowed);
}

Result<Pulled> pull(const PullSource& source, const PullOptions& options) {
  LS_CHECK(is_model_name(source.name), "'{}' is no name for a model", source.name);
  std::error_code failed;
  fs::create_directories(options.folder, failed);
  if (failed) return error("{}: cannot make the folder: {}", options.folder, failed.message());
  const std::string target = (fs::path(options.folder) / (source.name + ".gguf")).string();
  LS_TRY(const FileLock lock, FileLock::take(target + ".lock", "a download of " + source.name));

  const Expected expected{source.size_bytes, source.sha256};
  if (fs::exists(target, failed)) {
    const FileCheck check = check_file(target, expected, options.interrupted);
    if (check.ok()) return Pulled{target, true, !source.sha256.empty(), check.sha256};
    if (check.verdict == FileVerdict::kInterrupted) return error("interrupted");
    notice("{} is there but not right ({}); downloading it again\n", target, check.problem);
  }

  LS_TRY(PartFile part, PartFile::open(target));
  LS_TRY_VOID(drop_if_useless(source, part));
  Expected wanted = expected;
  if (!all_there(source, part)) {
    notice("{} {}\n", part.size_bytes() > 0 ? "going on with" : "downloading", source.url);
    LS_TRY(const std::string stated, download(source, options, part));
    if (wanted.sha256.empty() && source.member.empty()) wanted.sha256 = stated;
  }
  std::optional<PartFile> archive;
  if (!source.member.empty()) {
    archive.emplace(std::move(part));
    LS_TRY(part, unpack_member(source, options, *archive, target));
  }

  const FileCheck check = check_file(part.path(), wanted, options.interrupted);
  if (check.verdict == FileVerdict::kInterrupted)
    return error("interrupted; the same command goes on from there");
  // The right bytes that this program cannot read stay: another version of it may.
  if (check.verdict == FileVerdict::kWrongBytes) {
    LS_TRY_VOID(part.remove());
    if (archive) LS_TRY_VOID(archive->remove());
  }
  if (!check.ok())
    return error("{}: {}{}", source.url, check.problem,
                 check.verdict == FileVerdict::kWrongBytes ? "; nothing was kept" : "");
  LS_TRY_VOID(part.finish(target));
  if (archive) LS_TRY_VOID(archive->remove());
  return Pulled{target, false, !wanted.sha256.empty(), check.sha256};
}

}  // namespace lockstep::models
