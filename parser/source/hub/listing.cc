#include "parser/source/hub/listing.h"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <unordered_set>
#include <utility>

#include "parser/base/budget.h"
#include "parser/base/encoding.h"
#include "parser/base/error.h"
#include "parser/base/hash.h"
#include "parser/base/text.h"
#include "parser/codec/json_document.h"
#include "parser/io/folder.h"
#include "parser/io/simple_sources.h"
#include "parser/source/hub/location.h"

namespace ckptfs::hub {
namespace {

constexpr uint64_t kMostMemory = uint64_t{32} << 20U;

constexpr size_t kLongestPath = 4096;  // PATH_MAX.

// Servers return 1000 entries per page. Folders count, too.
constexpr size_t kMostPages = 500;

[[noreturn]] void FailMalformed(std::string_view what) {
  Fail(EBADMSG, "malformed listing: {}", what);
}

// Returns the end of the paths that begin with `folder`, which is not empty: '0' follows '/'.
std::string EndOf(std::string_view folder) {
  return std::string(folder.substr(0, folder.size() - 1)) + '0';
}

std::optional<uint8_t> DigitOf(char c) {
  const size_t digit = kHexDigits.find(c);
  if (digit == std::string_view::npos) return std::nullopt;
  return static_cast<uint8_t>(digit);
}

ContentId ParseId(std::optional<json::Node> node, size_t size) {
  if (!node || !node->is_text() || node->text().size() != 2 * size) {
    FailMalformed("missing or invalid oid");
  }
  ContentId id{.size = size};
  for (size_t i = 0; i < size; ++i) {
    const auto high = DigitOf(node->text()[2 * i]);
    const auto low = DigitOf(node->text()[2 * i + 1]);
    if (!high || !low) FailMalformed("missing or invalid oid");
    id.bytes.at(i) = static_cast<std::byte>(*high * 16 + *low);
  }
  return id;
}

std::string_view FindText(const json::Node& entry, std::string_view key) {
  const auto node = entry.Find(key);
  if (!node || !node->is_text()) FailMalformed("entry without type or path");
  return node->text();
}

uint64_t FindSize(const json::Node& node) {
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  const auto size = node.Find("size");
  if (!size || size->kind() != json::Node::Kind::kWhole || size->whole() > kMost) {
    FailMalformed("missing or invalid size");
  }
  return size->whole();
}

// Collects the pages of one listing.
class Collector {
 public:
  explicit Collector(std::string_view folder) : folder_(folder) {}

  void Add(std::string page) {
    const auto source = std::make_shared<MemorySource>(std::move(page));
    Budget budget = Budget::ForFile(source->size());
    const auto document =
        json::Document::Of({.source = source, .offset = 0, .length = source->size()}, budget);
    if (!document.root().is_list()) FailMalformed("not a list");
    json::Items items(document.root());
    while (const auto item = items.Next()) Add(*item);
  }

  Listing Take() { return Listing(std::move(files_)); }

 private:
  void Add(const json::Node& entry) {
    const std::string_view type = FindText(entry, "type");
    const std::string_view path = FindText(entry, "path");
    if (type != "file") return;
    if (!path.starts_with(folder_)) {
      Fail(EBADMSG, "unexpected path in a listing (found {}, expected prefix {})", Quoted(path),
           Quoted(folder_));
    }
    if (path.size() >= kLongestPath || !IsPlainPath(path) || !utf8::IsValid(path)) return;
    if (files_.size() == kMostFiles) {
      Fail(EFBIG, "has more than {} files: name a folder in it", kMostFiles);
    }
    File file{.path = "", .size = FindSize(entry), .id = {}};
    if (const auto lfs = entry.Find("lfs"); lfs && lfs->is_object()) {
      constexpr size_t kSha256Size = 32;
      file.id = ParseId(lfs->Find("oid"), kSha256Size);
      if (FindSize(*lfs) != file.size) FailMalformed("a file with two sizes");
    } else {
      constexpr size_t kSha1Size = 20;
      file.id = ParseId(entry.Find("oid"), kSha1Size);
    }
    budget_.Charge(sizeof(File) + path.size());
    file.path = path;
    files_.push_back(std::move(file));
  }

  const std::string_view folder_;
  Budget budget_{kMostMemory};
  std::vector<File> files_;
};

}  // namespace

std::string ContentId::Hex() const { return ckptfs::Hex(std::span(bytes).first(size)); }

Listing::Listing(std::vector<File> files) : files_(std::move(files)) {
  std::ranges::sort(files_, {}, &File::path);
  const auto is_same = [](const File& a, const File& b) {
    if (a.path != b.path) return false;
    if (a.size == b.size && a.id.size == b.id.size && a.id.bytes == b.id.bytes) return true;
    Fail(EBADMSG, "malformed listing: two files {}", Quoted(a.path));
  };
  files_.erase(std::unique(files_.begin(), files_.end(), is_same), files_.end());
  for (const File& file : files_) {
    if (HasFolder(file.path + "/")) {
      Fail(EBADMSG, "malformed listing: {} is a file and a folder", Quoted(file.path));
    }
  }
}

const File* Listing::Find(std::string_view path) const {
  const auto found = std::ranges::lower_bound(files_, path, {}, &File::path);
  return found == files_.end() || found->path != path ? nullptr : &*found;
}

bool Listing::HasFolder(std::string_view folder) const {
  const auto found = std::ranges::lower_bound(files_, folder, {}, &File::path);
  return found != files_.end() && found->path.starts_with(folder);
}

void Listing::Visit(std::string_view folder,
                    const std::function<void(std::string_view name, bool is_folder)>& visit) const {
  auto next = std::ranges::lower_bound(files_, folder, {}, &File::path);
  while (next != files_.end() && next->path.starts_with(folder)) {
    const std::string_view path = next->path;
    const size_t slash = path.find('/', folder.size());
    if (slash == std::string_view::npos) {
      visit(path.substr(folder.size()), false);
      ++next;
      continue;
    }
    visit(path.substr(folder.size(), slash - folder.size()), true);
    next = std::ranges::lower_bound(next, files_.end(), EndOf(path.substr(0, slash + 1)), {},
                                    &File::path);
  }
}

std::vector<std::string> Listing::FilesIn(std::string_view folder) const {
  std::vector<std::string> names;
  Visit(folder, [&](std::string_view name, bool is_folder) {
    if (!is_folder) names.emplace_back(name);
  });
  return names;
}

std::vector<std::string> Listing::FoldersIn(std::string_view folder) const {
  std::vector<std::string> names;
  Visit(folder, [&](std::string_view name, bool is_folder) {
    if (is_folder) names.emplace_back(name);
  });
  // "a-b/" precedes "a/", but "a" precedes "a-b".
  std::ranges::sort(names);
  return names;
}

std::string FindNextPage(const http::Response& response) {
  std::string_view rest = response.Find("link");
  while (true) {
    const size_t begin = rest.find('<');
    const size_t end = rest.find('>', std::min(begin, rest.size()));
    if (end == std::string_view::npos) return {};
    const std::string_view url = rest.substr(begin + 1, end - begin - 1);
    rest.remove_prefix(end + 1);
    if (rest.substr(0, rest.find('<')).find("rel=\"next\"") != std::string_view::npos) {
      return std::string(url);
    }
  }
}

Listing List(std::string_view folder, const http::Url& first,
             const std::function<http::Response(const http::Url&)>& fetch) {
  constexpr size_t kLongestUrl = 8192;
  Collector collector(folder);
  std::unordered_set<size_t> seen;  // Hashes of the URLs of all pages so far.
  http::Url url = first;
  for (size_t pages = 0; pages < kMostPages; ++pages) {
    seen.insert(HashOf(url.text));
    http::Response response = fetch(url);
    collector.Add(std::move(response.body));
    std::string next = FindNextPage(response);
    if (next.empty()) return collector.Take();
    if (next.size() > kLongestUrl) FailMalformed("the URL of the next page is too long");
    if (next.starts_with('/') && !next.starts_with("//")) next.insert(0, first.Origin());
    url = http::ParseUrl(next);
    // The token of the first page would be of no use there, and what it returns not of this server.
    if (url.Origin() != first.Origin()) FailMalformed("the next page is on another server");
    if (seen.contains(HashOf(url.text))) FailMalformed("repeated page");
  }
  Fail(EFBIG, "listing too long: more than {} pages", kMostPages);
}

}  // namespace ckptfs::hub
