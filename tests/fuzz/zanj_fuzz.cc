// The input is the JSON of an object, and after each byte 0xFF the bytes of a member, called "a",
// "b" and so on. They are put into a zip archive, because a fuzzer would rarely generate a valid
// one.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parser/base/error.h"
#include "parser/detect.h"
#include "parser/io/simple_sources.h"
#include "tests/support/reading.h"

namespace {

// Appends a number, least significant byte first.
void Append(std::string& out, uint32_t number, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(number >> (8 * i));
}

// Appends the common fields of the two headers of a member.
void AppendCommon(std::string& out, std::string_view name, std::string_view data) {
  Append(out, 20, 2);  // Version needed; no flags, stored, no time, no CRC.
  out.append(12, '\0');
  Append(out, static_cast<uint32_t>(data.size()), 4);
  Append(out, static_cast<uint32_t>(data.size()), 4);
  Append(out, static_cast<uint32_t>(name.size()), 2);
  Append(out, 0, 2);
}

std::string Archive(const std::vector<std::pair<std::string, std::string_view>>& members) {
  std::string zip;
  std::string directory;
  for (const auto& [name, data] : members) {
    const auto offset = static_cast<uint32_t>(zip.size());
    zip += "PK\3\4";
    AppendCommon(zip, name, data);
    zip.append(name).append(data);
    directory += "PK\1\2";
    Append(directory, 20, 2);
    AppendCommon(directory, name, data);
    directory.append(10, '\0');
    Append(directory, offset, 4);
    directory += name;
  }
  const auto begin = static_cast<uint32_t>(zip.size());
  zip += directory;
  zip.append("PK\5\6").append(4, '\0');
  Append(zip, static_cast<uint32_t>(members.size()), 2);
  Append(zip, static_cast<uint32_t>(members.size()), 2);
  Append(zip, static_cast<uint32_t>(directory.size()), 4);
  Append(zip, begin, 4);
  Append(zip, 0, 2);
  return zip;
}

}  // namespace

// The oracle: an input is a checkpoint whose tensors can be read or have an error, or throws Error.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::vector<std::pair<std::string, std::string_view>> members;
  std::string name = "__zanj__.json";
  for (char next = 'a';; ++next) {
    const size_t end = next > 'z' ? std::string_view::npos : rest.find('\xFF');
    members.emplace_back(name, rest.substr(0, end));
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
    name = next;
  }
  try {
    ckptfs::ReadTensors(
        ckptfs::ReadCheckpoint(std::make_shared<const ckptfs::MemorySource>(Archive(members)))
            .root);
  } catch (const ckptfs::Error&) {
  }
  return 0;
}
