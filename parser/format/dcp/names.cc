#include "parser/format/dcp/names.h"

namespace ckptfs::dcp {

uint32_t Names::NumberOf(std::string_view text) {
  // An empty text may begin where another one does.
  if (!text.empty()) {
    if (const auto known = by_place_.find(text.data()); known != by_place_.end()) {
      return known->second;
    }
  }
  const auto [found, is_new] = by_text_.try_emplace(text, static_cast<uint32_t>(texts_.size()));
  if (is_new) texts_.push_back(text);
  if (!text.empty()) by_place_.emplace(text.data(), found->second);
  return found->second;
}

}  // namespace ckptfs::dcp
