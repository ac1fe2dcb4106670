#include "gguf/fingerprint.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <new>

#include <xxhash.h>

#include "base/parallel.h"
#include "base/progress.h"
#include "gguf/fingerprint_cache.h"

namespace lockstep::gguf {
namespace {

constexpr size_t kChunkBytes = size_t{16} << 20;
constexpr int64_t kMegabyte = 1'000'000;
constexpr int64_t kHeldMegabytes = 256;  // read and not yet given back

// Part of how a model is stored, not of what it is.
bool is_storage(const std::string& key) {
  return key.starts_with("split.") || key == "general.alignment";
}

// Pointers to the items in the order of their names, which does not depend on the file's.
template <class T, class Name>
std::vector<const T*> by_name(std::span<const T> items, Name name) {
  std::vector<const T*> order;
  for (const T& item : items) order.push_back(&item);
  std::ranges::sort(order, {}, [&](const T* item) { return std::string_view(item->*name); });
  return order;
}

// Bytes in the canonical (big-endian) form of the hash.
std::string canonical(XXH128_hash_t hash) {
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, hash);
  return std::string(reinterpret_cast<const char*>(bytes.digest), sizeof bytes.digest);
}

template <class Advance>
std::string hash_data(std::span<const std::byte> data, const Advance& advance) {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              XXH3_freeState);
  if (state == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(state.get());
  while (!data.empty()) {
    const auto chunk = data.first(std::min(data.size(), kChunkBytes));
    XXH3_128bits_update(state.get(), chunk.data(), chunk.size());
    data = data.subspan(chunk.size());
    advance(chunk.size());
  }
  return canonical(XXH3_128bits_digest(state.get()));
}

// One hash a tensor, 16 bytes each.
std::vector<std::string> hash_tensors(const File& file, const std::vector<const Tensor*>& tensors) {
  int64_t total_bytes = 0;
  for (const Tensor* tensor : tensors) total_bytes += static_cast<int64_t>(tensor->data.size());
  Progress progress("fingerprint", total_bytes / kMegabyte, "MB");
  std::mutex mutex;
  int64_t done_bytes = 0;
  const auto advance = [&](size_t bytes) {
    const std::lock_guard lock(mutex);
    const int64_t before = done_bytes / kMegabyte;
    done_bytes += static_cast<int64_t>(bytes);
    progress.advance(done_bytes / kMegabyte - before);
    // A model may be larger than memory.
    if (before / kHeldMegabytes != done_bytes / kMegabyte / kHeldMegabytes) file.release_pages();
  };
  std::vector<std::string> hashes(tensors.size());
  parallel_for(static_cast<int64_t>(tensors.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      hashes[i] = hash_data(tensors[i]->data, advance);
  });
  return hashes;
}

template <class T>
void add_number(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

std::string compute_fingerprint(const File& file) {
  std::string text = "lockstep model";
  for (const Entry* entry : by_name(file.metadata(), &Entry::key)) {
    if (is_storage(entry->key)) continue;
    append_text(text, entry->key);
    append_value(text, entry->value);
  }
  const auto tensors = by_name(file.tensors(), &Tensor::name);
  add_number(text, static_cast<uint64_t>(tensors.size()));
  const auto hashes = hash_tensors(file, tensors);
  for (size_t i = 0; i < tensors.size(); ++i) {
    append_text(text, tensors[i]->name);
    add_number(text, tensors[i]->format->id);
    add_number(text, static_cast<uint32_t>(tensors[i]->dims.size()));
    for (const int64_t dim : tensors[i]->dims) add_number(text, dim);
    text += hashes[i];
  }
  std::string digits;
  for (const char c : canonical(XXH3_128bits(text.data(), text.size())))
    digits += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return digits;
}

std::string fingerprint(const File& file) {
  if (auto known = cached_fingerprint(file.parts())) return *known;
  std::string computed = compute_fingerprint(file);
  cache_fingerprint(file.parts(), computed);
  return computed;
}

}  // namespace lockstep::gguf
