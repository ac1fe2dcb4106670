#include "forge/forge.h"

#include <algorithm>
#include <filesystem>

#include <fmt/ranges.h>

#include "base/parallel.h"
#include "base/progress.h"
#include "forge/filling.h"
#include "forge/source.h"
#include "gguf/writer.h"
#include "model/model.h"

namespace lockstep::forge {
namespace {

constexpr int64_t kBatchBytes = int64_t{32} << 20;
constexpr int64_t kMegabyte = 1000 * 1000;

class Megabytes {
 public:
  explicit Megabytes(int64_t bytes) : bar_("forging", bytes / kMegabyte, "MB") {}

  void advance(int64_t bytes) {
    rest_ += bytes;
    bar_.advance(rest_ / kMegabyte);
    rest_ %= kMegabyte;
  }

 private:
  Progress bar_;
  int64_t rest_ = 0;  // bytes that are no whole megabyte yet
};

// The last chunk, exclusive, of a batch that starts at `begin`: at least one chunk.
int64_t batch_end(const TensorSource& source, int64_t begin) {
  int64_t end = begin + 1;
  while (end < source.chunks() &&
         source.first_byte(end + 1) - source.first_byte(begin) <= kBatchBytes)
    ++end;
  return end;
}

Result<void> write_tensor(const TensorSource& source, gguf::Writer& writer,
                          std::vector<std::byte>& buffer, Megabytes& progress) {
  for (int64_t begin = 0; begin < source.chunks();) {
    const int64_t end = batch_end(source, begin);
    const int64_t start = source.first_byte(begin);
    buffer.resize(static_cast<size_t>(source.first_byte(end) - start));
    parallel_for(end - begin, 1, [&](int64_t from, int64_t to) {
      source.make(begin + from, begin + to,
                  buffer.data() + source.first_byte(begin + from) - start);
    });
    LS_TRY_VOID(writer.write(buffer));
    progress.advance(static_cast<int64_t>(buffer.size()));
    begin = end;
  }
  return {};
}

Result<void> check_place(const std::string& path, Existing existing) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::is_directory(status)) return error("{} is a folder", path);
  if (std::filesystem::exists(status) && existing == Existing::kRefuse)
    return error("{} exists already; --force replaces it", path);
  return {};
}

}  // namespace

Result<void> write_model(const Spec& spec, const Plan& plan, const std::string& path,
                         Existing existing) {
  LS_TRY_VOID(check_place(path, existing));
  LS_TRY(gguf::Writer writer, gguf::Writer::create(path, plan.metadata, plan.tensors));
  {
    Megabytes progress(plan.data_bytes());
    Pools pools(spec.seed);
    std::vector<std::byte> buffer;
    for (const gguf::TensorPlan& tensor : plan.tensors) {
      const TensorSource source(tensor, filling_of(tensor, spec, plan.config), spec.seed, pools);
      LS_TRY_VOID(write_tensor(source, writer, buffer, progress));
    }
  }
  LS_TRY_VOID(writer.finish());

  // The plan came from the same forward pass: a problem here would be a mistake of ours.
  LS_TRY(const gguf::File file, gguf::File::open(path));
  const std::vector<std::string> problems = model::problems_of(file);
  LS_CHECK(problems.empty(), "{}: {}", path, fmt::join(problems, "; "));
  return {};
}

Result<void> write_model(const Spec& spec, const std::string& path, Existing existing) {
  LS_TRY(const Plan plan, plan_model(spec));
  return write_model(spec, plan, path, existing);
}

}  // namespace lockstep::forge
