// Tells a trace from others without reading all of it.
#include <algorithm>

#include "base/sha256.h"
#include "trace/trace.h"

namespace lockstep::trace {
namespace {

// Of numbers: all where there are few, else this many stretches of this size, evenly spread.
// Another run of an engine differs nearly everywhere, so that a sample shows it.
constexpr size_t kStretches = 64;
constexpr size_t kStretchBytes = size_t{1} << 20;

}  // namespace

std::string Trace::fingerprint() const {
  Sha256 hash;
  const auto add = [&](std::string_view text) { hash.add(std::as_bytes(std::span(text))); };
  add(to_json(manifest_));
  size_t all_bytes = 0;
  for (const MappedFile& shard : shards_) all_bytes += shard.bytes().size();
  // A stretch begins at each multiple of this, counted through all shards, and may go on in the
  // next shard.
  const size_t apart = std::max(kStretchBytes, all_bytes / kStretches);
  size_t begin = 0;  // of a shard, counted so
  for (const MappedFile& shard : shards_) {
    const auto bytes = shard.bytes();
    const size_t end = begin + bytes.size();
    add(fmt::format("\n{}\n", bytes.size()));
    for (size_t start = begin / apart * apart; start < end; start += apart) {
      const size_t first = std::max(start, begin);
      const size_t last = std::min(start + kStretchBytes, end);
      if (first < last) hash.add(bytes.subspan(first - begin, last - first));
    }
    shard.release_pages();
    begin = end;
  }
  return hash.finish();
}

}  // namespace lockstep::trace
