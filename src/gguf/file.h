// A GGUF model file (or the set that its first split file opens), mapped for reading.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/aligned.h"
#include "base/mapped_file.h"
#include "base/result.h"
#include "gguf/value.h"
#include "quant/format.h"

namespace lockstep::gguf {

struct Tensor {
  std::string name;
  const quant::FormatInfo* format = nullptr;
  std::vector<int64_t> dims;        // first dimension fastest, as in the file; 1 to 4 of them
  std::span<const std::byte> data;  // in the map, at a multiple of the file's alignment
  int64_t file_offset = 0;          // of the data, in the file that holds it
  bool made = false;                // the data lies in no file as it is here, but in memory of ours

  int64_t values() const;     // product of dims
  std::string shape() const;  // "[896, 151936]"
};

// A file on disk, as it was when it was opened.
struct Part {
  std::string path;
  int64_t size_bytes = 0;
  FileStamp stamp;
};

// A model from elsewhere in the shape of a GGUF file: what its tensors lie in, and what they are.
struct Assembly {
  std::string path;
  std::vector<MappedFile> files;
  std::vector<AlignedVector<std::byte>> memory;  // of the tensors that are made
  std::vector<Entry> metadata;
  std::vector<Tensor> tensors;
};

class File {
 public:
  // Touches the header only: tensor data comes in as it is read. Of a split model, `path` is the
  // first file; the others lie beside it.
  static Result<File> open(const std::string& path);
  // The same with all bytes in memory of our own, whatever becomes of the files.
  static Result<File> read(const std::string& path);

  // One file from bytes in memory, parts of split ones included; `path` is for messages. `bytes`
  // must outlive it.
  static Result<File> parse(std::span<const std::byte> bytes, const std::string& path);

  // Of no GGUF file: version() is 0. Names and keys that stand twice, and sizes that do not agree
  // with the data, are errors.
  static Result<File> assemble(Assembly parts);

  File(File&&) noexcept;
  File& operator=(File&&) noexcept;
  ~File();

  const std::string& path() const;  // of the first file
  uint32_t version() const;         // 0: no GGUF file
  int64_t alignment() const;
  int64_t size_bytes() const;               // all split files together
  std::span<const Part> parts() const;      // one unless split; none where parsed from memory
  std::span<const Entry> metadata() const;  // in file order; of the first where split
  std::span<const Tensor> tensors() const;  // in file order, those of all split files

  bool is_mapped() const;
  // An error where a file on disk is no longer what was opened; cut() where a read has met that.
  Result<void> check_unchanged() const;
  bool cut() const;

  // Memory that was touched goes back to the system; it comes in again when needed.
  void release_pages() const;

  const Value* find(std::string_view key) const;  // nullptr where absent
  const Tensor* tensor(std::string_view name) const;

  // The value of a key, or an error that names the file, the key, and what was found instead.
  // Integers of any width are accepted where they fit; floats from f32 and f64.
  Result<int64_t> integer(std::string_view key) const;
  Result<double> real(std::string_view key) const;
  Result<bool> boolean(std::string_view key) const;
  Result<std::string_view> text(std::string_view key) const;

  // The same where absence is fine: the given default then; a wrong type is still an error.
  Result<int64_t> integer_or(std::string_view key, int64_t otherwise) const;
  Result<std::string_view> text_or(std::string_view key, std::string_view otherwise) const;

  // Arrays; integers and floats of any width are converted. Pointers stay valid with the File.
  Result<const std::vector<std::string>*> texts(std::string_view key) const;
  Result<std::vector<int64_t>> integers(std::string_view key) const;
  Result<std::vector<int64_t>> flags(std::string_view key) const;  // 0 or 1; bools or integers
  Result<std::vector<float>> reals(std::string_view key) const;

 private:
  struct State;
  static Result<File> open(const std::string& path, bool map);
  explicit File(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::gguf
