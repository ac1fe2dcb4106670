#include "models/part_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "base/output_file.h"

namespace lockstep::models {
namespace {

namespace fs = std::filesystem;

Error failure(const std::string& path, const char* what) {
  return error("{}: cannot {}: {}", path, what, std::strerror(errno));
}

}  // namespace

Result<PartFile> PartFile::open(const std::string& final_path) {
  const std::string path = final_path + ".part";
  // A link could lead to any file of the user's, which would be overwritten.
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd < 0 && errno == ELOOP)
    return error("{}: is a symbolic link, expected a file or nothing", path);
  if (fd < 0) return failure(path, "open");
  PartFile part(path, fd);
  struct stat info {};
  if (::fstat(fd, &info) != 0) return failure(path, "read its size");
  if (!S_ISREG(info.st_mode)) return error("{}: is not a regular file", path);
  part.size_bytes_ = info.st_size;
  part.load_origin();
  if (part.origin_.url.empty()) LS_TRY_VOID(part.restart());
  return part;
}

void PartFile::load_origin() {
  std::ifstream file(origin_path());
  const auto json = nlohmann::json::parse(file, nullptr, false);
  if (!json.is_object()) return;
  const auto text = [&](const char* key) {
    const auto found = json.find(key);
    return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  origin_.url = text("url");
  origin_.validator = text("validator");
  const auto total = json.find("total_bytes");
  if (total != json.end() && total->is_number_integer() && *total > 0)
    origin_.total_bytes = total->get<int64_t>();
}

PartFile::PartFile(PartFile&& other) noexcept {
  *this = std::move(other);
}

PartFile& PartFile::operator=(PartFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(origin_, other.origin_);
  return *this;
}

PartFile::~PartFile() {
  if (fd_ >= 0) ::close(fd_);
}

Result<void> PartFile::restart() {
  if (::ftruncate(fd_, 0) != 0) return failure(path_, "empty");
  size_bytes_ = 0;
  origin_ = {};
  std::error_code ignored;  // an empty file needs no origin, so a stale one does no harm
  fs::remove(origin_path(), ignored);
  return {};
}

Result<void> PartFile::set_origin(PartOrigin origin) {
  origin_ = std::move(origin);
  const nlohmann::ordered_json json = {
      {"url", origin_.url}, {"validator", origin_.validator}, {"total_bytes", origin_.total_bytes}};
  const std::string text =
      json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
  LS_TRY(OutputFile file, OutputFile::create(origin_path()));
  LS_TRY_VOID(file.write(std::as_bytes(std::span(text))));
  return file.publish();
}

Result<void> PartFile::add(std::span<const char> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd_, bytes.data(), bytes.size(), size_bytes_);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return failure(path_, "write");
    size_bytes_ += written;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return {};
}

Result<void> PartFile::finish(const std::string& target) {
  // The bytes first, then the name, then the folder that holds the name: a crash at any moment
  // leaves the whole file or none.
  if (::fsync(fd_) != 0) return failure(path_, "write to the disk");
  if (::rename(path_.c_str(), target.c_str()) != 0) return failure(target, "rename to it");
  const std::string folder = fs::path(target).parent_path().string();
  const int folder_fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_fd >= 0) {
    ::fsync(folder_fd);  // some file systems cannot; the file is there all the same
    ::close(folder_fd);
  }
  std::error_code ignored;
  fs::remove(origin_path(), ignored);
  return {};
}

Result<void> PartFile::remove() {
  std::error_code ignored;
  fs::remove(origin_path(), ignored);
  if (::unlink(path_.c_str()) != 0 && errno != ENOENT) return failure(path_, "remove");
  return {};
}

}  // namespace lockstep::models
