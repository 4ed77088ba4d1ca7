// An archive has a member KEY.npy for each array. NumPy also reads other members as arrays if they
// begin like one, and returns the rest as bytes; ckptfs lists those in meta.json only. A key may be
// any text.
//
// NumPy looks up keys among the names of members first, so of an archive with the members `a` and
// `a.npy` it shows one twice and the other not at all. ckptfs rejects such an archive.

#include "parser/format/numpy/npz.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "parser/base/error.h"
#include "parser/base/json.h"
#include "parser/format/common/placeholder.h"
#include "parser/format/numpy/array.h"
#include "parser/format/torch/reader.h"

namespace ckptfs::numpy {
namespace {

constexpr std::string_view kSuffix = ".npy";

std::string_view KeyOf(const zip::Member& member) {
  std::string_view key = member.name;
  if (key.ends_with(kSuffix)) key.remove_suffix(kSuffix.size());
  return key;
}

// NumPy detects an archive by its first bytes, not by its last ones.
void RefuseOtherBeginning(const ByteSource& file) {
  std::array<std::byte, 2> head = {};
  file.ReadAt(0, head);
  if (head[0] == std::byte{'P'} && head[1] == std::byte{'K'}) return;
  Fail(EBADMSG, "zip: the file does not begin with the archive");
}

// Reads one archive.
class Reader {
 public:
  Reader(const Source& source, const Members& members, const ReadOptions& options)
      : members_(members), budget_(members.budget()), pickles_(budget_, source, options) {
    pickles_.is_part = true;
  }

  Checkpoint Read() {
    constexpr size_t kAtOnce = 512;
    constexpr uint64_t kHead = 1024;  // Bytes.
    for (auto rest = members_.list(); !rest.empty();) {
      const auto next = rest.first(std::min(kAtOnce, rest.size()));
      members_.PrefetchHeads(next, kHead);
      for (const zip::Member& member : next) Add(member);
      rest = rest.subspan(next.size());
    }
    if (first_damage_ && !has_readable_) throw Error(*first_damage_);
    RefuseEqualKeys();
    if (members_.list().empty()) checkpoint_.warnings.emplace_back("zip: the archive is empty");
    if (!others_.empty()) {
      others_.back() = ']';
      checkpoint_.annotations.emplace_back("not_arrays", std::move(others_));
    }
    pickles_.Report(checkpoint_);
    return std::move(checkpoint_);
  }

 private:
  void Add(const zip::Member& member) {
    const Record saved = members_.Open(member, member.name);
    Tensor tensor;
    try {
      const std::vector<std::byte> head = members_.ReadHead(saved, npy::kHead);
      if (!npy::IsNpy(head)) {
        AddOther(member.name);
        return;
      }
      const auto read_head = [&](size_t most) {
        return most <= npy::kHead ? head : members_.ReadHead(saved, most);
      };
      npy::ArrayHeader header = npy::ReadHeader(read_head, saved.data.length, budget_);
      if (header.type.has_objects) {
        AddObjects(member, ElementsOf(header, saved));
      } else {
        FillSaved(std::move(header), saved, members_.blocks(), tensor);
        AddMember(member, std::move(tensor));
      }
      has_readable_ = true;
    } catch (const Error& e) {
      if (IsFatal(e)) throw;
      if (saved.data.source == nullptr && !member.name.ends_with(kSuffix)) {
        AddOther(member.name);
        return;
      }
      const std::string_view key = KeyOf(member);
      if (!first_damage_) first_damage_ = WithContext("tensor " + Quoted(key), e);
      WarnOfUnreadable(key, e, budget_, checkpoint_);
      tensor.member = member.name;
      Content placeholder = MakePlaceholder(tensor, e);
      if (auto* value = std::get_if<Value>(&placeholder)) {
        value->annotations.insert(value->annotations.begin(), tensor.annotations.begin(),
                                  tensor.annotations.end());
      }
      AddMember(member, std::move(placeholder));
    }
  }

  // Adds an array of Python objects, which is a pickle.
  void AddObjects(const zip::Member& member, const Record& pickle) {
    Checkpoint objects = torch::ReadPlainPickle(pickle, pickles_);
    AddMember(member, std::move(objects.root.members.at(0).content));
    std::ranges::move(objects.warnings, std::back_inserter(checkpoint_.warnings));
  }

  void AddMember(const zip::Member& member, Content content) {
    constexpr uint64_t kCost = 1024;  // Bytes: a tensor, its annotations, and its file in the tree.
    const std::string_view key = KeyOf(member);
    budget_.Charge(kCost + 2 * member.name.size() + key.size());
    checkpoint_.root.members.push_back({{std::string(key)}, std::move(content)});
  }

  void AddOther(std::string_view name) {
    if (others_.empty()) others_ = "[";
    const size_t size = others_.size();
    json::AppendString(others_, name);
    others_ += ',';
    budget_.Charge(2 * (others_.size() - size));
  }

  void RefuseEqualKeys() const {
    const auto& arrays = checkpoint_.root.members;
    budget_.Charge(arrays.size() * sizeof(std::string_view));
    std::vector<std::string_view> keys(arrays.size());
    std::ranges::transform(arrays, keys.begin(),
                           [](const Member& m) { return std::string_view(m.key.text); });
    std::ranges::sort(keys);
    const auto twice = std::ranges::adjacent_find(keys);
    if (twice != keys.end()) {
      Fail(EBADMSG, "zip: the members {} and {} are the same array", Quoted(*twice),
           Quoted(fmt::format("{}{}", *twice, kSuffix)));
    }
  }

  const Members& members_;
  Budget& budget_;
  torch::Reading pickles_;  // Of the arrays of objects.
  Checkpoint checkpoint_;
  std::string others_;  // Members that are no arrays, as JSON without its end.
  std::optional<Error> first_damage_;
  bool has_readable_ = false;
};

}  // namespace

bool IsZip(const Members& members) {
  return members.list().empty() ||
         std::ranges::any_of(members.list(), [](const zip::Member& member) {
           return member.name.ends_with(kSuffix);
         });
}

Checkpoint ReadZip(const Source& source, Members members, const ReadOptions& options) {
  RefuseOtherBeginning(*source.file);
  return Reader(source, members, options).Read();
}

}  // namespace ckptfs::numpy
