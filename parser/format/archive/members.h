// The members of a zip archive as byte sources, stored or compressed.

#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "parser/base/budget.h"
#include "parser/codec/zip.h"
#include "parser/format/archive/record.h"
#include "parser/io/byte_source.h"
#include "parser/layer/block_cache.h"
#include "parser/layer/decompressed.h"
#include "parser/read_options.h"

namespace ckptfs {

// Belongs to one thread. Sources of members may outlive this.
class Members {
 public:
  // Reads the directory of the archive `data`. It is charged to `budget`, which must outlive this.
  // If `options` have a verification, members with a recorded hash are checked. `blocks` caches
  // decoded data. Throws Error as zip::ReadDirectory does.
  Members(Extent data, Budget& budget, const ReadOptions& options,
          std::shared_ptr<BlockCache> blocks);

  const zip::Directory& directory() const { return directory_; }
  std::span<const zip::Member> list() const { return directory_.members(); }

  // Returns the member `name`; null if there is none.
  const zip::Member* Find(std::string_view name) const { return directory_.Find(name); }

  // Opens `member`, one of these members. Returns the same extent each time, so that tensors that
  // share it can be recognized. Messages call it `name`. If it is corrupt, the error is in the
  // record. Throws Error(EFBIG).
  Record Open(const zip::Member& member, std::string_view name) const;

  // Prefetches `members` of this archive completely; they may be null.
  void Prefetch(std::span<const zip::Member* const> members) const;

  // Prefetches the first `most` bytes of each of `members` of this archive.
  void PrefetchHeads(std::span<const zip::Member> members, uint64_t most) const;

  // Returns all bytes of a record; they stay charged to the budget. Throws Error.
  std::vector<std::byte> Read(const Record& record) const;

  // Returns up to `most` bytes from the begin of a record returned by Open. A compressed member is
  // decoded no further, and nothing is cached; the decoding counts as work. Throws Error.
  std::vector<std::byte> ReadHead(const Record& record, size_t most) const;

  Budget& budget() const { return budget_; }
  const std::shared_ptr<BlockCache>& blocks() const { return blocks_; }

 private:
  ByteSourcePtr SourceOf(const zip::Member& member, std::string_view name) const;
  ByteSourcePtr Deferred(const zip::Member& member) const;
  Compressed CompressedOf(const zip::Member& member) const;

  Extent data_;
  Budget& budget_;
  std::shared_ptr<const Verification> verification_;
  std::shared_ptr<ScratchSpace> scratch_;
  std::shared_ptr<BlockCache> blocks_;
  zip::Directory directory_;
  mutable std::shared_ptr<Decoding> decoding_;  // Null until a compressed member is opened.
  mutable std::unordered_map<const zip::Member*, ByteSourcePtr> sources_;  // By member.
};

}  // namespace ckptfs
