#include "base/output_file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

// Small pieces are gathered; copying a large one would cost more than the call that it saves.
constexpr size_t kBufferBytes = size_t{128} << 10;

std::string temporary_name(const std::string& path) {
  static std::atomic<int> counter{0};
  return fmt::format("{}.part-{}-{}", path, ::getpid(), counter++);
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// What the system calls a file that this process has open.
std::string own_link(int fd) {
  return fmt::format("/proc/self/fd/{}", fd);
}

}  // namespace

OutputFile::OutputFile(OutputFile&& other) noexcept {
  *this = std::move(other);
}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(temporary_, other.temporary_);
  std::swap(part_name_, other.part_name_);
  std::swap(fd_, other.fd_);
  std::swap(buffer_, other.buffer_);
  return *this;
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Error OutputFile::failed(const char* what, int code) const {
  return error("{}: cannot {}: {}", printable(path_), what, std::strerror(code));
}

Result<OutputFile> OutputFile::create(const std::string& path) {
  struct stat info {};
  // Found now rather than when everything is written.
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    return error("{}: cannot write: found {}, expected a file or nothing", printable(path),
                 S_ISDIR(info.st_mode) ? "a folder" : "something that is no regular file");
  OutputFile file;
  file.path_ = path;
  file.buffer_.reserve(kBufferBytes);
  file.open_unnamed();
  if (file.fd_ < 0) LS_TRY_VOID(file.open_named());
  return file;
}

// Leaves it closed where the file system or the way to name it later is missing.
void OutputFile::open_unnamed() {
  fd_ = ::open(folder_of(path_).c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
  if (fd_ >= 0 && ::access(own_link(fd_).c_str(), F_OK) != 0) ::close(std::exchange(fd_, -1));
}

Result<void> OutputFile::open_named() {
  set_temporary();
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ >= 0) return {};
  const int code = errno;
  temporary_.clear();  // it is not ours
  part_name_ = {};
  return error("{}: cannot write: {}", printable(path_), std::strerror(code));
}

void OutputFile::set_temporary() {
  temporary_ = temporary_name(path_);
  part_name_ = PartName(temporary_);
}

// A link never takes the place of another file: where there is one, it gets another name first, and
// then the other's by renaming.
Result<void> OutputFile::name_it() {
  const std::string link = own_link(fd_);
  const auto link_as = [&](const std::string& name) {
    return ::linkat(AT_FDCWD, link.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
  };
  if (link_as(path_)) return {};
  if (errno != EEXIST) return failed("name", errno);
  set_temporary();
  if (link_as(temporary_)) return {};
  const int code = errno;
  temporary_.clear();
  part_name_ = {};
  return failed("name", code);
}

Result<void> OutputFile::reserve(int64_t bytes) {
  if (bytes == 0 || ::fallocate(fd_, FALLOC_FL_KEEP_SIZE, 0, bytes) == 0) return {};
  if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINTR) return {};
  const int code = errno;
  return error("{}: cannot write {} bytes: {}", printable(path_), bytes, std::strerror(code));
}

Result<void> OutputFile::write(std::span<const std::byte> bytes) {
  if (buffer_.size() + bytes.size() > kBufferBytes) LS_TRY_VOID(flush());
  if (bytes.size() >= kBufferBytes) return write_all(bytes);
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  return {};
}

Result<void> OutputFile::write_zeros(int64_t bytes) {
  static constexpr std::byte kZeros[4096] = {};
  while (bytes > 0) {
    const int64_t piece = std::min<int64_t>(bytes, sizeof kZeros);
    LS_TRY_VOID(write(std::span(kZeros, static_cast<size_t>(piece))));
    bytes -= piece;
  }
  return {};
}

Result<void> OutputFile::write_at(int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::pwrite(fd_, bytes.data(), bytes.size(), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return failed("write", errno);
    bytes = bytes.subspan(static_cast<size_t>(done));
    offset += done;
  }
  return {};
}

Result<void> OutputFile::flush() {
  LS_TRY_VOID(write_all(buffer_));
  buffer_.clear();
  return {};
}

Result<void> OutputFile::write_all(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::write(fd_, bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return failed("write", errno);
    bytes = bytes.subspan(static_cast<size_t>(done));
  }
  return {};
}

Result<void> OutputFile::publish() {
  LS_TRY_VOID(flush());
  if (temporary_.empty()) LS_TRY_VOID(name_it());
  if (::close(std::exchange(fd_, -1)) != 0) return failed("write", errno);
  if (temporary_.empty()) return {};
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return failed("rename", errno);
  temporary_.clear();
  part_name_ = {};
  return {};
}

Result<void> OutputFile::publish_new() {
  LS_TRY_VOID(flush());
  const bool unnamed = temporary_.empty();
  const std::string from = unnamed ? own_link(fd_) : temporary_;
  if (::linkat(AT_FDCWD, from.c_str(), AT_FDCWD, path_.c_str(), unnamed ? AT_SYMLINK_FOLLOW : 0) ==
      0) {
    ::close(std::exchange(fd_, -1));
    if (!unnamed) ::unlink(temporary_.c_str());
    temporary_.clear();
    part_name_ = {};
    return {};
  }
  if (errno == EEXIST || unnamed) return failed("write", errno);
  // A file system without links: an empty file holds the place.
  const int place = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (place < 0) return failed("write", errno);
  ::close(place);
  return publish();
}

Result<void> OutputFile::sync() {
  LS_TRY_VOID(flush());
  if (::fsync(fd_) != 0) return failed("write", errno);
  return {};
}

Result<void> OutputFile::finish() {
  LS_TRY_VOID(sync());
  LS_TRY_VOID(publish());
  // Where the folder cannot be opened, the file is still whole.
  (void)sync_folder(folder_of(path_)).ok();
  return {};
}

Result<void> sync_folder(const std::string& path) {
  const auto failed = [&](const char* what) {
    return error("{}: cannot {}: {}", printable(path), what, std::strerror(errno));
  };
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return failed("open the folder");
  Result<void> done;
  // Some file systems have no such call for folders: their names need none.
  if (::fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP) done = failed("sync the folder");
  ::close(fd);
  return done;
}

Result<void> make_folders(const std::string& path, bool durable, std::vector<std::string>& made) {
  std::error_code failed;
  for (fs::path missing = path; !missing.empty() && !fs::exists(missing, failed);
       missing = missing.parent_path())
    made.push_back(missing.string());
  fs::create_directories(path, failed);
  if (failed) return error("{}: cannot create the folder: {}", printable(path), failed.message());
  if (!durable) return {};
  for (const std::string& folder : made) LS_TRY_VOID(sync_folder(folder_of(folder)));
  return {};
}

}  // namespace lockstep
