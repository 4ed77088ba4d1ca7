// The members of a zip archive as sources of bytes, whatever they are compressed by.

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

// Belongs to one thread; the sources that it gives out do not need it any more.
class Members {
 public:
  // Reads the directory of the archive that `data` is. What is kept is charged to `budget`, which
  // must outlive this. Members whose hash was recorded are checked if `options` have a
  // verification; `blocks` keeps what is decoded. Throws Error as zip::ReadDirectory does.
  Members(Extent data, Budget& budget, const ReadOptions& options,
          std::shared_ptr<BlockCache> blocks);

  const zip::Directory& directory() const { return directory_; }
  std::span<const zip::Member> list() const { return directory_.members(); }

  // Returns null if there is no member of that name.
  const zip::Member* Find(std::string_view name) const { return directory_.Find(name); }

  // Where the bytes of `member`, which is one of these, are: the same extent each time, so that
  // tensors which share it can be seen to. Messages call it `name`. What is wrong with it is its
  // error. Throws Error(EFBIG) if that is too much to keep.
  Record Open(const zip::Member& member, std::string_view name) const;

  // Says that all of `members`, which are of these or null, will be read soon and whole.
  void Prefetch(std::span<const zip::Member* const> members) const;

  // Says that up to `most` bytes of the beginnings of `members`, which are of these, will be read
  // soon.
  void PrefetchHeads(std::span<const zip::Member> members, uint64_t most) const;

  // The bytes of a record that is read whole, charged to the budget for good. Throws Error.
  std::vector<std::byte> Read(const Record& record) const;

  // Up to `most` bytes from the beginning of a record that Open has given out by its whole name.
  // What is compressed is decoded no farther than that and left nowhere; the time that this takes
  // is counted as work. Throws Error.
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
  mutable std::shared_ptr<Decoding> decoding_;  // Null as long as no member is compressed.
  mutable std::unordered_map<const zip::Member*, ByteSourcePtr> sources_;  // That were made.
};

}  // namespace ckptfs
