#include "parser/format/zanj/externals.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <span>
#include <string>

#include "parser/base/error.h"
#include "parser/io/byte_source.h"

namespace ckptfs::zanj {
namespace {

// A text deflates to a thousandth at best, and honest ones to a tenth or so.
constexpr uint64_t kAllowance = uint64_t{64} << 20;
constexpr uint64_t kAllowancePerByte = 16;

// Rows up to this are looked at in any case.
constexpr uint64_t kMostToSearch = uint64_t{16} << 20;

constexpr std::string_view kRowsEnding = ".jsonl";

}  // namespace

Externals::Externals(const Members& members, uint64_t size)
    : members_(members), allowance_(kAllowance) {
  uint64_t more = 0;
  const bool is_large = __builtin_mul_overflow(size, kAllowancePerByte, &more) ||
                        __builtin_add_overflow(allowance_, more, &allowance_);
  if (is_large) allowance_ = ~uint64_t{};
}

Record Externals::Open(std::string_view reference) {
  constexpr uint64_t kCost = 128;  // In bytes, of remembering it.
  const zip::Member* const member = members_.Find(reference);
  if (member == nullptr) {
    return {.data = {},
            .member = std::string(reference),
            .is_in_file = false,
            .error = fmt::format("there is no member {}", Quoted(reference))};
  }
  if (opened_.insert(member).second) budget().Charge(kCost);
  return members_.Open(*member, reference);
}

void Externals::TakeAllowance(const Record& record) {
  if (!record.error.empty()) throw Error(record.error_code, record.error);
  const uint64_t size = record.data.length;
  if (!Allows(size)) {
    Fail(EFBIG, "{}: has {} bytes of JSON, but only {} more may be read of a file of this size",
         record.member, size, allowance_);
  }
  allowance_ -= size;
  budget().Grow(StoredSize(record.data));
}

json::Document Externals::ReadValue(const Record& record) {
  TakeAllowance(record);
  try {
    return json::Document::Of(record.data, budget());
  } catch (const Error& e) {
    throw WithContext(record.member, e);
  }
}

json::Document Externals::ReadRows(const Record& record) {
  TakeAllowance(record);
  try {
    return json::Document::OfLines(record.data, budget());
  } catch (const Error& e) {
    throw WithContext(record.member, e);
  }
}

uint64_t Externals::CountRows(const Record& record) {
  TakeAllowance(record);
  std::array<char, 65536> buffer = {};
  uint64_t count = 0;
  for (uint64_t done = 0; done < record.data.length;) {
    const auto length = std::min<uint64_t>(buffer.size(), record.data.length - done);
    const std::span block(buffer.data(), static_cast<size_t>(length));
    record.data.source->ReadAt(record.data.offset + done, std::as_writable_bytes(block));
    count += static_cast<uint64_t>(std::ranges::count(block, '\n'));
    done += length;
    const bool is_cut = done == record.data.length && block.back() != '\n';
    if (is_cut) ++count;
  }
  return count;
}

bool Externals::IsWorthReading(const Record& record) const {
  if (record.data.length <= kMostToSearch) return true;
  std::string_view stem = record.member;
  if (stem.ends_with(kRowsEnding)) stem.remove_suffix(kRowsEnding.size());
  return std::ranges::any_of(members_.list(), [&](const zip::Member& member) {
    return member.name.size() > stem.size() && member.name.starts_with(stem) &&
           member.name[stem.size()] == '/';
  });
}

bool Externals::Enter(std::string_view reference) {
  const zip::Member* const member = members_.Find(reference);
  return member != nullptr && entered_.insert(member).second;
}

size_t Externals::CountUnused() const { return members_.list().size() - opened_.size(); }

}  // namespace ckptfs::zanj
